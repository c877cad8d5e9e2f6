"""Who calls is known by a token alone, and tokens stay where they belong."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest

from anabranch.errors import InputError
from anabranch.market.node.api import OPEN, OPERATOR, Caller
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.tokens import ModuleTokens


def tokens(folder: Path | None = None) -> ModuleTokens:
    numbers = count(1)
    return ModuleTokens(
        {"arca": "", "dator": ""}, lambda size: bytes([next(numbers)]) * size, folder
    )


def test_every_module_and_the_operator_has_a_token_of_its_own() -> None:
    secrets = tokens().secrets()
    assert len(secrets) == len(set(secrets)) == 5
    assert all(len(one) == 43 for one in secrets)


def test_a_token_says_who_calls() -> None:
    known = tokens()
    dator = {"x-orbiplex-module-authtok": known.of_module("dator")}
    assert known.caller({}) == OPEN
    assert known.caller({"x-orbiplex-authtok": known.control()}) == OPERATOR
    assert known.caller(dator) == Caller("module", module="dator", actor="dator")


@pytest.mark.parametrize(
    "headers",
    [
        {"x-orbiplex-authtok": ""},
        {"x-orbiplex-authtok": "guess"},
        {"x-orbiplex-authtok": "OF dator"},
        {"x-orbiplex-authtok": "\udcff"},
        {"x-orbiplex-module-authtok": ""},
        {"x-orbiplex-module-authtok": "guess"},
        {"x-orbiplex-module-authtok": "CONTROL"},
        {"x-orbiplex-module-authtok": "TO dator"},
        {"x-orbiplex-module-authtok": "OF dator", "x-orbiplex-authtok": "CONTROL"},
    ],
)
def test_any_other_token_is_refused_and_not_repeated(headers: Mapping[str, str]) -> None:
    known = tokens()
    real = {
        "CONTROL": known.control(),
        "OF dator": known.of_module("dator"),
        "TO dator": known.to_module("dator"),
    }
    given = {name: real.get(value, value) for name, value in headers.items()}
    with pytest.raises(NodeError) as refused:
        known.caller(given)
    assert (refused.value.status, refused.value.code) == (401, "unauthorized")
    assert not any(value and value in refused.value.message for value in given.values())


def test_files_are_for_their_owner_alone_even_where_a_link_lay_in_wait(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("as it was")
    home = tmp_path / "data" / "middleware" / "arca"
    home.mkdir(parents=True)
    (home / "authtok").symlink_to(outside)
    (home / "authtok.new").symlink_to(outside)
    known = tokens(tmp_path / "data")
    known.write()
    assert outside.read_text() == "as it was"
    files = {
        known.control_file(): known.control(),
        known.file_of_module("arca"): known.of_module("arca"),
        known.file_to_module("arca"): known.to_module("arca"),
    }
    for path, token in files.items():
        assert path is not None
        assert path.read_text() == token
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "middleware").write_text("in the way")
    with pytest.raises(InputError, match="host-authtok"):
        tokens(tmp_path).write()


def test_no_representation_shows_a_token() -> None:
    known = tokens()
    assert not any(secret in repr(known) for secret in known.secrets())


def test_the_file_for_a_module_can_be_named(tmp_path: Path) -> None:
    named = tmp_path / "elsewhere" / "token"
    known = ModuleTokens({"arca": str(named)}, lambda size: b"x" * size, tmp_path / "data")
    known.write()
    assert known.file_to_module("arca") == named
    assert named.read_text() == known.to_module("arca")


def test_a_text_is_shown_without_any_of_them() -> None:
    known = tokens()
    said = " and ".join(known.secrets())
    assert known.redacted(said) == " and ".join(["[redacted]"] * 5)
