"""N3: questions to the directory of a node, which its cache answers.

The cache holds what a seed said of 5,000 nodes, 100 for each of 50 capabilities. Every question
looks at the clock, since a passport may have expired.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from anabranch import Settings
from anabranch.clock import SystemClock
from anabranch.market.identities import identity
from anabranch.market.node.directory import part as directory
from anabranch.market.node.directory.artifacts import kept_passport
from anabranch.market.node.directory.passport_cache import CachedPassport, SourceContent
from anabranch.market.node.keys import KeyFolder
from anabranch.market.node.node import Node
from anabranch.market.node.ports import NodeConfig, PeerTransport
from anabranch.market.passports import passport_draft
from anabranch.store.factory import open_store
from anabranch.work.participants.performers import rfc3339
from bench.rows import Row

NODES, CAPABILITIES = 5_000, 50
QUESTIONS = 200_000
AIM = 50_000
DAY = 86_400_000
NOWHERE = cast(PeerTransport, None)  # no question leaves the node
ISSUER = identity("participant", b"i" * 32)


def _node(number: int) -> str:
    return identity("node", number.to_bytes(32, "big"))


def _content(now: int) -> SourceContent:
    content = SourceContent({}, {}, now)
    for number in range(NODES):
        node, capability = _node(number), f"capability-{number % CAPABILITIES}"
        document = passport_draft(
            ISSUER, node, node, capability, issued_at=rfc3339(now - DAY),
            expires_at=rfc3339(now + DAY + number),
        )  # fmt: skip
        row = CachedPassport(kept_passport(document), 1, now)
        content.rows[node] = {capability: row}
        content.advertisements[node] = {
            "published-at": rfc3339(now),
            "capabilities/presented": [],
            "endpoints": [
                {
                    "endpoint/url": f"http://127.0.0.1:{number}",
                    "endpoint/transport": "http",
                    "endpoint/role": "peer",
                    "endpoint/priority": 0,
                }
            ],
        }
    return content


def _per_second(ask: Callable[[int], object]) -> float:
    begin = time.perf_counter()
    for number in range(QUESTIONS):
        ask(number)
    return QUESTIONS / (time.perf_counter() - begin)


async def n3(folder: Path) -> list[Row]:
    """Who holds a capability, and where a node is."""
    signer = KeyFolder.create(folder / "keys").signer()
    store = open_store(Settings(store=str(folder / "directory.db")))
    config = NodeConfig(raw={"directory": {"issuers": [ISSUER]}})
    makers = [(directory.make, directory.FAMILIES)]
    node = Node(store, SystemClock(), signer, config, NOWHERE, makers)
    await node.open()
    try:
        part = cast(directory.DirectoryPart, node.parts[0])
        begin = time.perf_counter()
        part.cache.replace("a seed", _content(node.context.clock.now()))
        names = [f"capability-{number}" for number in range(CAPABILITIES)]
        assert all(len(part.holders(name)) == NODES // CAPABILITIES for name in names)
        filled = time.perf_counter() - begin
        nodes = [_node(number) for number in range(NODES)]
        bare = {name: list(range(NODES // CAPABILITIES)) for name in names}
        copies = _per_second(lambda number: list(bare[names[number % CAPABILITIES]]))
        holders = _per_second(lambda number: part.holders(names[number % CAPABILITIES]))
        places = _per_second(lambda number: part.endpoint(nodes[number % NODES]))
    finally:
        await node.close()
        store.close()
    words = f"a dictionary and a copy of its list: {copies:,.0f}/s"
    aim = f"≥ {AIM:,}/s"
    return [
        Row(
            "N3 holders of a capability",
            holders,
            "/s",
            words,
            holders / copies,
            aim,
            holders >= AIM,
        ),
        Row("N3 where a node is", places, "/s", words, places / copies, aim, places >= AIM),
        Row("N3 cache filled", filled, "s", f"{NODES:,} passports", None, "", None),
    ]
