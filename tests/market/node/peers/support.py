"""Nodes of a few parts in one process, on a loop in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from anabranch.clock import Clock
from anabranch.market.identities import SigningKey
from anabranch.market.node.api import OPERATOR, Answer, Call, Caller
from anabranch.market.node.node import MakePart, Node
from anabranch.market.node.peers import part as peers
from anabranch.market.node.peers.memory_transport import MemoryNetwork
from anabranch.market.node.ports import InboundMessage, NodeConfig
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Store
from market.support import NOW

PARTS: tuple[MakePart, ...] = ((peers.make, peers.FAMILIES),)


class LoopClock:
    """The time of the running loop, from a day in 2026; `ahead` sets it wrong."""

    def __init__(self, ahead: int = 0) -> None:
        self.ahead = ahead

    def now(self) -> int:
        return NOW + self.ahead + round((asyncio.get_running_loop().time() - 1_000_000) * 1000)


class KeySigner:
    """The keys of a node, from seeds."""

    def __init__(self, number: int) -> None:
        self.node = SigningKey.from_seed(bytes([number]) * 32)
        self.participant = SigningKey.from_seed(bytes([number + 100]) * 32)
        self.node_id = self.node.identity("node")
        self.participant_id = self.participant.identity("participant")
        self.org_id = ""

    def sign_as_node(self, document: dict[str, Any]) -> dict[str, Any]:
        return self.node.sign(document)

    def sign_as_participant(
        self, document: dict[str, Any], without: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        return self.participant.sign(document, without)


_numbers = count(1)


def counted_bytes(size: int) -> bytes:
    """Bytes that never repeat, also after a restart."""
    return next(_numbers).to_bytes(size, "big")


class Host:
    """A node of these parts, and what its tests reach for."""

    def __init__(
        self,
        network: MemoryNetwork,
        number: int,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        raw: Mapping[str, Any] | None = None,
        seeds: Sequence[str] = (),
        parts: Sequence[MakePart] = PARTS,
    ) -> None:
        self.signer = KeySigner(number)
        self.id = self.signer.node_id
        self.participant = self.signer.participant_id
        self.url = f"http://node{number}.test"
        self.store = store or MemoryStore()
        self.clock = clock or LoopClock()
        self.network = network
        self.node = Node(
            self.store,
            self.clock,
            self.signer,
            NodeConfig(name=f"node{number}", url=self.url, seeds=tuple(seeds), raw=raw or {}),
            network.transport(self.id),
            parts,
            random_bytes=counted_bytes,
        )
        self.context = self.node.context

    async def open(self) -> Host:
        self.network.attach(self.id, self.url, self.node.handle)
        await self.node.open()
        return self

    async def close(self) -> None:
        self.network.detach(self.id)
        await self.node.close()

    async def call(
        self, method: str, path: str, body: Any = None, *, caller: Caller = OPERATOR,
        raw: bytes = b"", remote: str = "",
    ) -> Answer:  # fmt: skip
        path, _, query = path.partition("?")
        pairs = dict(part.split("=", 1) for part in query.split("&") if part)
        found = Call(
            method=method, path=path, query=pairs, body=body, caller=caller, raw=raw, remote=remote
        )
        return await self.node.handle(found)


class KnownPlaces:
    """A directory that knows where nodes are, because it was told."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = dict(places)
        self.trusted: set[str] = set()

    def endpoint(self, node_id: str) -> str:
        return self.places.get(node_id, "")

    async def locate(self, node_id: str) -> str:
        return self.endpoint(node_id)

    def is_trusted(self, node_id: str) -> bool:
        return node_id in self.trusted

    def nodes_of(self, participant_id: str) -> list[str]:  # noqa: ARG002
        return []

    def holders(self, capability_id: str) -> list[Mapping[str, Any]]:  # noqa: ARG002
        return []


def acquainted(*hosts: Host) -> None:
    """Every node knows where the others are."""
    for host in hosts:
        host.context.directory = KnownPlaces({other.id: other.url for other in hosts})


class Echo:
    """Answers with what it was asked, and remembers it."""

    def __init__(self) -> None:
        self.seen: list[InboundMessage] = []

    async def __call__(self, message: InboundMessage) -> Any:
        self.seen.append(message)
        return {"echo": message.payload}
