"""The store has no secret of a webhook: it is made from a key beside it, or encrypted with it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from anabranch.clock import ManualClock
from anabranch.errors import InputError
from anabranch.operations.access.secret_key import SecretKey, key_of
from anabranch.operations.webhooks import secrets
from anabranch.operations.webhooks.secrets import OVERLAP_MS, secrets_of
from anabranch.operations.webhooks.webhooks import HookDraft, Webhooks
from anabranch.settings import Settings
from anabranch.store.hook_ports import Hook
from anabranch.store.sqlite.store import SqliteStore

from ..support import run
from .deliveries import Scene

NOW = 1_800_000_000_000
DRAFT = HookDraft(url="https://example.org/x", kinds=["*"])


class Place:
    """A store on disk with its webhooks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(NOW)
        self.store = SqliteStore(folder / "store.db")
        self.hooks = Webhooks(self.store, self.clock)

    def kept(self, hook_id: str) -> Hook:
        hook = self.store.hook(hook_id)
        assert hook is not None
        return hook

    def secrets(self, hook_id: str) -> tuple[str, ...]:
        """As somebody else reads them, who has opened the store just now."""
        return secrets_of(self.kept(hook_id), self.clock.now(), key_of(self.store))

    def bytes(self) -> bytes:
        """Everything that a copy of the store has."""
        files = sorted(self.folder.glob("store.db*"))
        return b"".join(one.read_bytes() for one in files if not one.name.endswith(".key"))

    def legacy(self, secret: str) -> str:
        """A hook as it was made before there was a key."""
        made = self.hooks.create(DRAFT)
        self.store.change_hook(replace(self.kept(made.id), secret=secret))
        return made.id


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_copy_of_the_store_has_no_secret_in_it(place: Place) -> None:
    made = place.hooks.create(DRAFT)
    rotated = place.hooks.rotate(made.id)
    assert made.secret
    assert rotated.secret
    assert made.secret != rotated.secret
    for secret in (made.secret, rotated.secret):
        assert secret.removeprefix("whs_").encode() not in place.bytes()
    assert place.secrets(made.id) == (rotated.secret, made.secret)


def test_the_key_is_made_when_it_is_needed_and_nobody_else_can_read_it(place: Place) -> None:
    file = place.folder / "store.db.key"
    assert place.hooks.all() == []
    assert not file.exists()
    place.hooks.create(DRAFT)
    before = file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    Place(place.folder).hooks.create(DRAFT)
    assert file.read_bytes() == before, "there is one"
    assert not list(place.folder.glob(".store*")), "nothing is left beside it"


def test_every_webhook_has_a_secret_of_its_own(place: Place) -> None:
    made = [place.hooks.create(DRAFT).secret for _ in range(5)]
    assert len(set(made)) == 5


def test_the_secret_before_a_rotation_counts_for_a_day(place: Place) -> None:
    made = place.hooks.create(DRAFT)
    second = place.hooks.rotate(made.id).secret
    third = place.hooks.rotate(made.id).secret
    assert place.secrets(made.id) == (third, second)
    place.clock.advance_to(place.clock.now() + OVERLAP_MS)
    assert place.secrets(made.id) == (third,)


@pytest.mark.parametrize("written", ["text:whs_plain", "text:whs_plain|whs_older|{until}"])
def test_secrets_of_before_are_encrypted_at_the_start_and_wiped(place: Place, written: str) -> None:
    pytest.importorskip("cryptography")
    hook = place.legacy(written.format(until=NOW + 1000))
    before = place.secrets(hook)
    assert before[0] == "whs_plain"
    assert b"whs_plain" in place.bytes()
    assert place.hooks.protect() == 0
    assert place.secrets(hook) == before, "the receiver notices nothing"
    assert b"whs_plain" not in place.bytes()
    assert b"whs_older" not in place.bytes()
    place.clock.advance_to(place.clock.now() + 2000)
    place.hooks.protect()
    assert "|" not in place.kept(hook).secret, "what is over is not kept"
    rotated = place.hooks.rotate(hook).secret
    assert place.secrets(hook) == (rotated, "whs_plain")


def test_without_the_package_secrets_of_before_are_counted_and_a_rotation_gets_rid_of_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "can_seal", lambda: False)
    hook = place.legacy("text:whs_plain")
    assert place.hooks.protect() == 1
    rotated = place.hooks.rotate(hook).secret
    assert place.secrets(hook) == (rotated, "whs_plain"), "for a day"
    place.clock.advance_to(place.clock.now() + OVERLAP_MS)
    assert place.hooks.protect() == 0
    assert b"whs_plain" not in place.bytes()


def test_without_its_key_a_webhook_signs_nothing_rather_than_wrongly(place: Place) -> None:
    made = place.hooks.create(DRAFT)
    file = place.folder / "store.db.key"
    kept = file.read_bytes()
    file.unlink()
    assert place.secrets(made.id) == ()
    file.write_text("another key of at least 32 letters, surely")
    assert place.secrets(made.id) == ()
    fresh = Webhooks(place.store, place.clock)
    rotated = fresh.rotate(made.id).secret
    assert place.secrets(made.id) == (rotated,), "the old one cannot be made any more"
    file.write_bytes(kept)
    assert place.secrets(made.id) == ()


def test_a_delivery_without_a_key_says_so() -> None:
    async def go() -> None:
        scene = Scene()
        hook = scene.hook("run.*")
        scene.dispatcher._key = SecretKey(file=Path("/nowhere/store.db.key"))
        stored = scene.store.hook(hook.id)
        assert stored is not None
        assert "/nowhere/store.db.key is missing" in scene.dispatcher._why_no_secret(stored)

    run(go())


def test_the_key_can_come_from_a_setting_or_a_file_of_ones_own(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    clock = ManualClock(NOW)
    mine = tmp_path / "mine.key"
    mine.write_text("x" * 40)
    for settings in (Settings(secret_key="k" * 40), Settings(secret_key_file=str(mine))):
        key = key_of(store, settings)
        made = Webhooks(store, clock, key=key).create(DRAFT)
        hook = store.hook(made.id)
        assert hook is not None
        assert secrets_of(hook, NOW, key_of(store, settings)) == (made.secret,)
    assert not (tmp_path / "store.db.key").exists()
    assert "kkkk" not in repr(Settings(secret_key="k" * 40))
    gone = Settings(secret_key_file=str(tmp_path / "none.key"))
    with pytest.raises(InputError, match=r"less than 32") as short:
        key_of(store, Settings(secret_key="short"))
    assert short.value.code == "secret_key"
    with pytest.raises(Exception, match=r"none\.key cannot be read"):
        Webhooks(store, clock, key=key_of(store, gone)).create(DRAFT)
    assert not (tmp_path / "none.key").exists(), "a file that somebody names is theirs to make"


def test_what_is_sealed_for_one_purpose_opens_for_no_other() -> None:
    pytest.importorskip("cryptography")
    key, other = SecretKey("a" * 40), SecretKey("b" * 40)
    sealed = key.seal("text", "webhook", "1")
    assert key.unseal(sealed, "webhook", "1") == "text"
    for wrong, purpose in ((key, "2"), (other, "1")):
        with pytest.raises(Exception, match="not the key"):
            wrong.unseal(sealed, "webhook", purpose)
    assert key.derive("a", "bc") != key.derive("ab", "c")
