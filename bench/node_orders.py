"""N1 and N4: orders at a node. From the ingress to an opened execution, and a node opened again.

The node has its orders and its ledger; the offer is known, the money is there, the caller is the
operator. An order that costs something is the longest way: money on hold, an execution, a contract
and a signature, in one commit.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from anabranch import Settings
from anabranch.clock import SystemClock
from anabranch.market.documents import sign
from anabranch.market.identities import SigningKey
from anabranch.market.node.api import OPERATOR, Call
from anabranch.market.node.keys import KeyFolder
from anabranch.market.node.ledger import part as ledger
from anabranch.market.node.node import Node
from anabranch.market.node.orders import part as orders
from anabranch.market.node.ports import NodeConfig, PeerTransport
from anabranch.store.factory import open_store
from anabranch.work.participants.performers import rfc3339
from bench import probe
from bench.rows import Row

PROVIDER = SigningKey.from_seed(b"provider" * 4)
PARTY = {
    "provider/node-id": PROVIDER.identity("node"),
    "provider/participant-id": PROVIDER.identity("participant"),
}
HOUR = 3_600_000
OPEN = 10_000
TURNS = 30
NOWHERE = cast(PeerTransport, None)  # an order is not sent by its ingress


class _Offers:
    """One offer, as the node has it once it was admitted."""

    def __init__(self, offer: Mapping[str, Any]) -> None:
        self._offer = offer

    def offer(self, offer_id: str) -> Mapping[str, Any] | None:
        return self._offer if offer_id == self._offer["offer/id"] else None

    def terms(self, offer_id: str, number: int) -> Mapping[str, Any] | None:  # noqa: ARG002
        return self.offer(offer_id)

    def local(self, *, active_only: bool = True) -> list[Mapping[str, Any]]:  # noqa: ARG002
        return []


def _offer(now: int) -> dict[str, Any]:
    document = {
        "schema/v": 1,
        "offer/id": "offer:bench",
        "created-at": rfc3339(now - HOUR),
        "published-at": rfc3339(now - HOUR),
        "expires-at": rfc3339(now + 100 * HOUR),
        "sequence/no": 1,
        **PARTY,
        "service/type": "text/summarise",
        "service/description": "a summary",
        "pricing/amount": 10,
        "pricing/currency": "ORC",
        "pricing/unit": "text",
        "pricing/unit-kind": "per-item",
        "delivery/max-duration-sec": 86_400,
        "queue/auto-accept": True,
        "queue/max-depth": 1_000_000,
        "hybrid": False,
        "confirmation/mode": "self-confirmed",
    }
    return sign("service-offer.v1", document, PROVIDER)


def _draft(name: str, now: int) -> dict[str, Any]:
    return {
        "schema/v": 1,
        "order/id": f"order:{name}",
        "created-at": rfc3339(now),
        **PARTY,
        "offer/id": "offer:bench",
        "offer/seq": 1,
        "service/type": "text/summarise",
        "request/units": 1,
        "request/input": {"text": "something to make shorter " * 8},
        "pricing/max-amount": 10,
        "pricing/currency": "ORC",
        "workflow/run-id": "run:bench",
        "workflow/phase-id": name,
    }


@asynccontextmanager
async def node_at(path: Path) -> AsyncIterator[Node]:
    """A node with its state in this file."""
    keys = path.with_suffix(".keys")
    signer = (KeyFolder.open(keys) if keys.exists() else KeyFolder.create(keys)).signer()
    store = open_store(Settings(store=str(path)))
    makers = [(one.make, one.FAMILIES) for one in (ledger, orders)]
    node = Node(store, SystemClock(), signer, NodeConfig(), NOWHERE, makers)
    node.context.offers = _Offers(_offer(node.context.clock.now()))
    await node.open()
    try:
        yield node
    finally:
        await node.close()
        store.close()


async def _post(node: Node, path: str, body: Any) -> Any:
    answer = await node.handle(Call(method="POST", path=path, caller=OPERATOR, body=body))
    if answer.status != 201:
        raise RuntimeError(f"{answer.status}: {answer.body}")
    return answer.body


async def _order(node: Node, name: str) -> float:
    draft = _draft(name, node.context.clock.now())
    begin = time.perf_counter()
    await _post(node, "/v1/service-orders", draft)
    return time.perf_counter() - begin


async def n1(folder: Path) -> list[Row]:
    """One order from its ingress to the opened execution, against three raw commits. They take
    turns: a disk that others use as well is not the same a second later."""
    taken, limits = [], []
    async with node_at(folder / "n1.db") as node:
        await _post(node, "/v1/ledger/top-up", {"amount": 1_000_000})
        for number in range(100):
            await _order(node, f"warm-{number}")
        gc.collect()
        for turn in range(TURNS):
            limits.append(3 * probe.commit_seconds(folder, 15))
            times = [await _order(node, f"n{turn}-{number}") for number in range(15)]
            taken.append(statistics.median(times))
    ratio = statistics.median(one / limit for one, limit in zip(taken, limits, strict=True))
    seconds, limit = statistics.median(taken), statistics.median(limits)
    words = f"3 commits: {limit * 1000:.2f} ms"
    return [Row("N1 order to execution", seconds * 1000, "ms", words, ratio, "≤ 5×", ratio <= 5)]


async def n4(folder: Path) -> list[Row]:
    """A node with that many open executions, opened again; until it has answered."""
    path = folder / "n4.db"
    async with node_at(path) as node:
        await _post(node, "/v1/ledger/top-up", {"amount": 1_000_000})
        for first in range(0, OPEN, 1000):
            await asyncio.gather(*(_order(node, f"n{first + one}") for one in range(1000)))
    probe.rows_per_second(folder)
    raw = OPEN / probe.read_rows_per_second(folder)
    gc.collect()
    begin = time.perf_counter()
    async with node_at(path) as node:
        path_of_one = f"/v1/executions/execution:n{OPEN - 1}"
        answer = await node.handle(Call(method="GET", path=path_of_one, caller=OPERATOR))
        seconds = time.perf_counter() - begin
        if answer.body["state"] != "opened":
            raise RuntimeError(f"{answer.status}: {answer.body}")
    words = f"{OPEN:,} open; reading as many raw rows: {raw * 1000:.0f} ms"
    return [Row("N4 node open again", seconds, "s", words, seconds / raw, "≤ 5 s", seconds <= 5)]
