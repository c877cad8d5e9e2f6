"""Modules reach the world through their host alone."""

from __future__ import annotations

import ast
from pathlib import Path

import anabranch.modules

FOLDER = Path(anabranch.modules.__file__).parent
#: What opens connections or signs: only the clients for loopback may use the first.
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
    "anabranch.market.node.modules.transport.HttpTransport",
}
LOOPBACK_CLIENTS = ("kit/http_host.py", "kit/loopback.py")  # the host; role modules


def test_only_the_clients_for_loopback_open_connections_and_nothing_signs() -> None:
    found = [
        f"{path.relative_to(FOLDER)} imports {name}"
        for path in sorted(FOLDER.rglob("*.py"))
        if str(path.relative_to(FOLDER)) not in LOOPBACK_CLIENTS
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
