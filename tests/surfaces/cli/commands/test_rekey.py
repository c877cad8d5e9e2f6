"""`credential rekey`: a store with another key, all of it or nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from anabranch import Engine
from anabranch.operations.access.secret_key import SecretKey
from anabranch.operations.webhooks.secrets import secrets_of
from anabranch.settings import Settings
from anabranch.store.sqlite.store import SqliteStore

from ..support import HEAD, Here
from .test_credentials import audit_log

VALUES = {"one": "first-secret-1234", "two": "second-secret-5678"}
NEW = "n" * 40
TELL = f"""{HEAD}metadata: {{name: tell}}
workflow:
  - step: s
    tool: {{kind: python, args: {{a: "{{{{ keychain.one }}}}", b: "{{{{ keychain.two }}}}"}},
            code: "result = [len(a), len(b)]"}}
"""


@pytest.fixture
def kept(here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    """A store with two credentials, a webhook, and a file with another key."""
    monkeypatch.setenv("ANABRANCH_WEBHOOK_ADDRESSES", "any")
    for name, value in VALUES.items():
        here.run("credential", "add", name, "--type", "secret", "--value-stdin", stdin=value)
    made = here.run("webhook", "create", "http://127.0.0.1:1/", "--kind", "*", "--json")
    assert made.code == 0, made.err
    here.write("new.key", NEW)
    return here


def key_states(here: Here) -> set[str]:
    return {one["key"] for one in json.loads(here.run("credential", "list", "--json").out)}


def lengths(here: Here, **settings: Any) -> Any:
    """What a run finds in the credentials."""

    async def scenario() -> Any:
        async with Engine(str(here.store), settings=Settings(**settings)) as engine:
            return (await engine.wait(await engine.start(TELL))).result

    return asyncio.run(scenario())


def hook_secrets(here: Here, key: SecretKey) -> tuple[str, ...]:
    store = SqliteStore(here.store, read_only=True)
    try:
        (hook,) = store.hooks()
        return secrets_of(hook, 0, key)
    finally:
        store.close()


def own_key(here: Here) -> SecretKey:
    return SecretKey(file=Path(f"{here.store}.key"), made=False)


def test_with_another_key_values_and_webhook_secrets_stay_and_the_old_key_opens_nothing(
    kept: Here,
) -> None:
    before = hook_secrets(kept, own_key(kept))
    assert len(before) == 1
    done = kept.run("credential", "rekey", "--new-key-file", "new.key", "--actor", "ann", "--json")
    told = json.loads(done.out)
    assert (told["credentials"], told["webhooks"]) == (2, 1), done.err
    assert told["new_key"] == SecretKey(NEW).id != told["old_key"]
    assert ("ann", "credentials.rekey", told["new_key"], "done") in audit_log(kept)
    assert hook_secrets(kept, SecretKey(NEW)) == before
    assert hook_secrets(kept, own_key(kept)) == ()
    assert key_states(kept) == {"other key"}
    new_file = str(kept.folder / "new.key")
    assert lengths(kept, secret_key_file=new_file) == [len(one) for one in VALUES.values()]
    content = b"".join(f.read_bytes() for f in kept.folder.iterdir() if f.name != "new.key")
    assert NEW.encode() not in content


def test_the_last_line_says_how_to_start_and_a_second_time_there_is_nothing_to_do(
    kept: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEW_KEY", NEW)
    done = kept.run("credential", "rekey", "--new-key-env", "NEW_KEY")
    assert "2 credentials, 1 secrets of webhooks" in done.out
    assert "set ANABRANCH_SECRET_KEY to what NEW_KEY holds" in done.out
    again = kept.run("credential", "rekey", "--new-key-env", "NEW_KEY", "--json")
    assert (json.loads(again.out)["credentials"], json.loads(again.out)["webhooks"]) == (0, 0)


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("w" * 40, "is not the key of this store: the credential 'one' was encrypted with the key"),
        (NEW, "are the same"),
        ("short", "less than 32"),
    ],
)
def test_a_wrong_old_key_changes_nothing_and_is_named(kept: Here, old: str, said: str) -> None:
    kept.write("old.key", old)
    words = ("--new-key-file", "new.key", "--old-key-file", "old.key")
    refused = kept.run("credential", "rekey", *words)
    assert refused.code == 2
    assert said in refused.err
    assert old not in refused.err
    assert key_states(kept) == {"ok"}
    assert len(hook_secrets(kept, own_key(kept))) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--new-key-file", "nope.key"), "nope.key cannot be read"),
        (("--new-key-env", "NOPE_NOPE"), "the environment has no variable NOPE_NOPE"),
        (("--new-key-file", "new.key", "--server", "http://127.0.0.1:1"), "keys are not sent"),
        ((), "--new-key-file"),
    ],
)
def test_a_new_key_that_is_not_there_is_named(
    kept: Here, words: tuple[str, ...], said: str
) -> None:
    refused = kept.run("credential", "rekey", *words)
    assert (refused.code, said in refused.err) == (2, True), refused.err
    assert key_states(kept) == {"ok"}


def test_a_store_that_an_engine_uses_is_refused(kept: Here) -> None:
    store = SqliteStore(kept.store)
    store.acquire("a server")
    try:
        refused = kept.run("credential", "rekey", "--new-key-file", "new.key")
    finally:
        store.release()
        store.close()
    assert refused.code != 0
    assert "a server" in refused.err
    assert key_states(kept) == {"ok"}
    assert [one[3] for one in audit_log(kept) if one[1] == "credentials.rekey"] == [
        "refused: store_in_use"
    ]


def test_whoever_is_interrupted_has_the_old_key_for_everything(
    kept: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = SqliteStore.change_credential
    changed: list[Any] = []

    def stop_at_the_second(self: SqliteStore, *given: Any, **more: Any) -> bool:
        if changed:
            raise OSError("the disk is gone")
        changed.append(given)
        return change(self, *given, **more)

    monkeypatch.setattr(SqliteStore, "change_credential", stop_at_the_second)
    with pytest.raises(OSError, match="the disk is gone"):
        kept.run("credential", "rekey", "--new-key-file", "new.key")
    assert len(changed) == 1
    assert key_states(kept) == {"ok"}
    assert lengths(kept) == [len(one) for one in VALUES.values()]
