"""What a module finds when its host starts it: who it is, where it listens, its tokens, its home.

The variables are those of docs/modules.md. Its configuration is read in layers: the files that came
with it (`ORBIPLEX_MIDDLEWARE_CONFIG_DIR`), then those of the operator (`ORBIPLEX_NODE_CONFIG_DIR`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.files import FileRefused, read_limited
from anabranch.market.node.modules.config import loopback_address
from anabranch.market.node.modules.layers import read_layers

_TOKEN_BYTES = 4096


class ModuleEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """`auth_header` is empty where the host shows no token to the module."""

    module_id: str
    home: Path
    address: tuple[str, int]
    host_url: str
    host_header: str = "X-Orbiplex-Module-Authtok"
    host_token: str = ""
    auth_header: str = ""
    auth_token: str = ""
    config: Mapping[str, Any] = {}  # all layers, merged; modules read their own section


def read_environment(env: Mapping[str, str], module: str, endpoint: str) -> ModuleEnvironment:
    """`module` and `endpoint` stand in where the variables do not say them. Raises `InputError`
    for what is missing or cannot be read."""
    url = env.get("ORBIPLEX_HOST_CAPABILITY_BASE_URL", "")
    home = env.get("ORBIPLEX_MIDDLEWARE_HOME", "")
    if not url or not home:
        raise InputError(
            "a module is started by its node: ORBIPLEX_HOST_CAPABILITY_BASE_URL and "
            "ORBIPLEX_MIDDLEWARE_HOME are not set",
            code="no_host",
        )
    folders = [
        Path(folder)
        for name in ("ORBIPLEX_MIDDLEWARE_CONFIG_DIR", "ORBIPLEX_NODE_CONFIG_DIR")
        if (folder := env.get(name, ""))
    ]
    return ModuleEnvironment(
        module_id=env.get("ORBIPLEX_MIDDLEWARE_MODULE_ID", module),
        home=Path(home),
        address=loopback_address(env.get("ORBIPLEX_MIDDLEWARE_ENDPOINT", endpoint)),
        host_url=url,
        host_header=env.get("ORBIPLEX_HOST_CAPABILITY_AUTH_HEADER", "X-Orbiplex-Module-Authtok"),
        host_token=_token(env, "ORBIPLEX_HOST_CAPABILITY_AUTHTOK_FILE"),
        auth_header=env.get("ORBIPLEX_MIDDLEWARE_AUTH_HEADER", ""),
        auth_token=_token(env, "ORBIPLEX_MIDDLEWARE_AUTHTOK_FILE"),
        config=read_layers(folders),
    )


def _token(env: Mapping[str, str], name: str) -> str:
    file = env.get(name, "")
    if not file:
        return ""
    try:
        token = read_limited(Path(file), _TOKEN_BYTES).decode("ascii").strip()
    except FileRefused as error:
        raise InputError(f"{name}: {error.message}", code="no_token") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: {file} cannot be read: {error}", code="no_token") from None
    if not token:
        raise InputError(f"{name}: {file} is empty", code="no_token")
    return token
