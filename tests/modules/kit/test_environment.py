"""What a module finds in its environment, and what it says where something is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import AnabranchError, InputError
from anabranch.modules.kit.environment import read_environment
from anabranch.modules.kit.http_host import HttpHost

URL = "http://127.0.0.1:8801"


def environment(folder: Path, **changes: str) -> dict[str, str]:
    found = {
        "ORBIPLEX_HOST_CAPABILITY_BASE_URL": URL,
        "ORBIPLEX_MIDDLEWARE_HOME": str(folder),
        "ORBIPLEX_MIDDLEWARE_ENDPOINT": "http://127.0.0.1:47981",
    }
    return {**found, **changes}


def read(env: dict[str, str]) -> None:
    HttpHost.of(read_environment(env, "arca", "http://127.0.0.1:47981"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ORBIPLEX_HOST_CAPABILITY_BASE_URL": ""}, "ORBIPLEX_HOST_CAPABILITY_BASE_URL"),
        ({"ORBIPLEX_MIDDLEWARE_HOME": ""}, "ORBIPLEX_MIDDLEWARE_HOME"),
        ({"ORBIPLEX_HOST_CAPABILITY_BASE_URL": "https://127.0.0.1:1"}, "is no host"),
        ({"ORBIPLEX_HOST_CAPABILITY_BASE_URL": "http://["}, "is no host"),
        ({"ORBIPLEX_HOST_CAPABILITY_BASE_URL": "http://example.org:1"}, "loopback"),
        ({"ORBIPLEX_HOST_CAPABILITY_BASE_URL": "http://127.0.0.1:99999"}, "loopback"),
        ({"ORBIPLEX_MIDDLEWARE_ENDPOINT": "http://0.0.0.0:1"}, "loopback"),
        ({"ORBIPLEX_HOST_CAPABILITY_AUTHTOK_FILE": "missing"}, "missing"),
        ({"ORBIPLEX_MIDDLEWARE_AUTHTOK_FILE": "."}, "MIDDLEWARE_AUTHTOK_FILE"),
        ({"ORBIPLEX_HOST_CAPABILITY_AUTHTOK_FILE": "empty"}, "is empty"),
        ({"ORBIPLEX_HOST_CAPABILITY_AUTHTOK_FILE": "odd"}, "AUTHTOK_FILE"),
    ],
)
def test_what_is_missing_or_wrong_is_told_by_name(
    changes: dict[str, str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    files = {
        name: str(tmp_path / value) if name.endswith("_FILE") else value
        for name, value in changes.items()
    }
    with pytest.raises(AnabranchError) as raised:
        read(environment(tmp_path, **files))
    assert said in raised.value.message
    assert isinstance(raised.value, InputError)
