"""Keys in files: made whole, kept from others, loaded by role, told nowhere."""

from __future__ import annotations

import logging
import os
import stat
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.market.documents import check, sign
from anabranch.market.identities import SigningKey
from anabranch.market.node.keys import KeyFolder, load_signer, role_of


def seeds(first: int = 1) -> Any:
    numbers = count(first)
    return lambda size: bytes([next(numbers)]) * size


def made(folder: Path, *names: str) -> KeyFolder:
    return KeyFolder.create(folder / "keys", names or ("node", "participant"), seeds())


def test_keys_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keys = made(tmp_path, "node", "participant", "org")
    finally:
        os.umask(before)
    for file in keys.path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o700
    assert sorted(file.name for file in keys.path.iterdir()) == [
        "node.key",
        "org.key",
        "participant.key",
    ], "and nothing is left over"


def test_each_role_has_its_own_key_and_signs_with_it(tmp_path: Path) -> None:
    keys = made(tmp_path, "node", "participant", "org")
    expected = {
        role: SigningKey.from_seed(bytes([number]) * 32).identity(role)
        for number, role in enumerate(("node", "participant", "org"), 1)
    }
    assert keys.identities() == expected
    signer = load_signer(keys.path)
    assert (signer.node_id, signer.participant_id, signer.org_id) == tuple(expected.values())
    document = {"a": 1}
    assert signer.sign_as_node(document) == keys.key("node").sign(document)
    assert signer.sign_as_participant(document) == keys.key("participant").sign(document)


def test_several_organisations_have_keys_by_name(tmp_path: Path) -> None:
    keys = made(tmp_path, "node", "participant", "org-north", "org-south")
    assert set(KeyFolder.open(keys.path).identities()) == {
        "node",
        "participant",
        "org-north",
        "org-south",
    }
    assert load_signer(keys.path).org_id == "", "none of them is the one of the node"
    assert role_of("org-north") == "org"


@pytest.mark.parametrize("name", ["", "nodes", "../node", "org-", "org-A", "org-" + "a" * 64])
def test_a_name_that_is_none_is_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="name of a key"):
        made(tmp_path, "node", name)
    assert not (tmp_path / "keys").exists()


def test_a_key_is_never_replaced_and_none_is_left_of_a_failed_set(tmp_path: Path) -> None:
    keys = made(tmp_path, "participant")
    before = (keys.path / "participant.key").read_bytes()
    with pytest.raises(InputError, match="never replaced"):
        KeyFolder.create(keys.path, ("node", "participant"), seeds(9))
    assert [file.name for file in keys.path.iterdir()] == ["participant.key"]
    assert (keys.path / "participant.key").read_bytes() == before


def test_a_crash_before_the_name_is_there_leaves_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_paths: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(os, "link", crash)
    with pytest.raises(RuntimeError):
        made(tmp_path)
    assert list((tmp_path / "keys").glob("*")) == []


def test_what_a_killed_process_of_the_same_number_left_is_no_hindrance(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    (folder / f".node.key.{os.getpid()}").write_text("half")
    made(tmp_path)
    assert sorted(one.name for one in folder.iterdir()) == ["node.key", "participant.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    keys = made(tmp_path)
    (keys.path / "node.key").chmod(mode)
    with pytest.raises(InputError, match=r"chmod 600 .*node\.key"):
        load_signer(keys.path)


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    keys = made(tmp_path)
    keys.path.chmod(0o777)
    with pytest.raises(InputError, match="chmod go-w"):
        load_signer(keys.path)


@pytest.mark.parametrize("content", [b"", b"zz" * 32, b"00" * 31, b"00" * 33, b"\xff" * 64])
def test_a_file_that_holds_no_key_is_named_and_not_shown(tmp_path: Path, content: bytes) -> None:
    keys = made(tmp_path)
    (keys.path / "node.key").write_bytes(content)
    with pytest.raises(InputError, match=r"node\.key holds no key") as caught:
        load_signer(keys.path)
    assert "zz" not in caught.value.message
    assert caught.value.__cause__ is None


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder of keys"):
        load_signer(tmp_path / "keys")
    made(tmp_path, "node")
    with pytest.raises(InputError, match=r"no key participant\.key"):
        load_signer(tmp_path / "keys")


def test_only_files_are_keys(tmp_path: Path) -> None:
    keys = made(tmp_path, "node")
    os.mkfifo(keys.path / "participant.key", 0o600)
    with pytest.raises(InputError, match="a pipe"):
        load_signer(keys.path)


def test_a_secret_is_in_no_text_and_in_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    keys = made(tmp_path)
    signer = load_signer(keys.path)
    secret = (b"\x01" * 32).hex()
    texts = [repr(keys), repr(signer), str(vars(signer)), str(vars(keys)), caplog.text]
    assert all(secret not in text for text in texts)


def test_the_key_of_the_node_signs_no_offer_even_where_both_roles_have_one_key(
    tmp_path: Path,
) -> None:
    same = SigningKey.from_seed(b"\x05" * 32)
    node, participant = same.identity("node"), same.identity("participant")
    offer = {"provider/participant-id": node}
    with pytest.raises(InputError, match="not its own"):
        sign("service-offer.v1", offer, same)
    signed = same.sign(offer)
    problems = check(signed, kind="service-offer.v1")
    assert ("/provider~1participant-id", "wrong-role") in {(one.path, one.code) for one in problems}
    assert sign("service-offer.v1", {"provider/participant-id": participant}, same)["signature"]
