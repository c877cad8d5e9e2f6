"""Modules reach the world through their host alone."""

from __future__ import annotations

import ast
from pathlib import Path

import anabranch.modules

FOLDER = Path(anabranch.modules.__file__).parent
#: What opens connections or signs: only the client for the host may use the first.
FORBIDDEN = {
    "aiohttp",
    "http",
    "requests",
    "socket",
    "urllib3",
    "cryptography",
    "anabranch.market.identities.SigningKey",
    "anabranch.market.node.keys",
    "anabranch.market.node.peers.http_transport",
}
HOST_CLIENT = "kit/http_host.py"


def test_only_the_client_for_the_host_opens_connections_and_nothing_signs() -> None:
    found = [
        f"{path.relative_to(FOLDER)} imports {name}"
        for path in sorted(FOLDER.rglob("*.py"))
        if str(path.relative_to(FOLDER)) != HOST_CLIENT
        for name in _imports(path)
        if any(name == one or name.startswith(f"{one}.") for one in FORBIDDEN)
    ]
    assert not found


def _imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names
