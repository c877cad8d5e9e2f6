"""N2: deliveries of 4 KiB from one node to another, each recorded on both before it is answered.

Both nodes are in this process, each with a store of its own; messages between them are signed and
checked as on the wire, and handed over in memory. Every delivery takes two commits where it is sent
and one or two where it arrives; deliveries that are under way together share them.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from anabranch import Settings
from anabranch.clock import SystemClock
from anabranch.market.documents import digest_of
from anabranch.market.identities import SigningKey, is_signed_by
from anabranch.market.node.api import Endpoint
from anabranch.market.node.deferred import part as deferred
from anabranch.market.node.delivery import part as delivery
from anabranch.market.node.entities import Family
from anabranch.market.node.keys import KeyFolder
from anabranch.market.node.node import Node
from anabranch.market.node.peers import part as peers
from anabranch.market.node.peers.memory_transport import MemoryNetwork
from anabranch.market.node.ports import Acceptance, NodeConfig, NodeContext
from anabranch.store.factory import open_store
from bench.rows import Row

COUNT, SIZE, RUNS = 1_000, 4096, 5
SCHEMA = "bench.v1"


class _Around:
    """What a delivery asks of the other parts: where a node is, and which module takes what."""

    def __init__(self, context: NodeContext, urls: dict[str, str], by_module: bool) -> None:
        self._urls = urls
        self._by_module = by_module
        context.directory = self  # type: ignore[assignment]
        context.modules = self  # type: ignore[assignment]

    async def locate(self, node_id: str) -> str:
        return self._urls.get(node_id, "")

    def acceptor_for(self, _schema: str, _content_type: str) -> str:
        return "bench.acceptor" if self._by_module else ""

    async def accept(self, acceptor_id: str, _invoke: Any) -> Acceptance:
        return Acceptance(status="accepted", acceptor_id=acceptor_id)

    def endpoints(self) -> Sequence[Endpoint]:
        return ()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def wake(self, _family: Family[Any], _thing: str) -> None: ...


@asynccontextmanager
async def _node(
    folder: Path, name: str, network: MemoryNetwork, urls: dict[str, str], by_module: bool
) -> AsyncIterator[Node]:
    signer = KeyFolder.create(folder / f"{name}.keys").signer()
    store = open_store(Settings(store=str(folder / f"{name}.db")))
    url = urls[signer.node_id] = f"http://{name}.test"
    section = {
        "outbound": [{"component/id": "bench", "schema": SCHEMA}],
        "acceptors": [{"acceptor_id": "host.bench", "artifact_schema": SCHEMA}],
    }
    makers = [
        (lambda context: _Around(context, urls, by_module), ()),
        *((one.make, one.FAMILIES) for one in (deferred, peers, delivery)),
    ]
    transport = network.transport(signer.node_id)
    config = NodeConfig(url=url, raw={"delivery": section})
    node = Node(store, SystemClock(), signer, config, transport, makers)
    await node.open()
    network.attach(signer.node_id, url, node.handle)
    try:
        yield node
    finally:
        network.detach(signer.node_id)
        await node.close()
        store.close()


def _envelope(number: int, to: str) -> dict[str, Any]:
    data = number.to_bytes(8, "big") * (SIZE // 8)
    return {
        "schema": "artifact-delivery-envelope.v1",
        "component/id": "bench",
        "artifact": {
            "schema": SCHEMA,
            "content/type": "application/octet-stream",
            "digest": digest_of(data),
            "size/bytes": len(data),
            "bytes/base64": b64encode(data).decode(),
        },
        "delivery/plan": {
            "stages": [{"stage/id": "s", "targets": [{"selector/kind": "node", "node/id": to}]}]
        },
    }


async def n2(folder: Path) -> list[Row]:
    """So many deliveries at once, admitted by the host and by a module of the receiving node. The
    median of several runs, since one of them says more about the machine's moment."""
    rows = []
    for by_module in (False, True):
        runs = [
            await _deliveries(folder / f"{by_module}-{turn}", by_module) for turn in range(RUNS)
        ]
        rates = sorted(COUNT / seconds for seconds, _ in runs)
        each = statistics.median(busy for _, busy in runs) / COUNT
        rate, checks = statistics.median(rates), each / check_seconds()
        words = (
            f"{rates[0]:.0f} to {rates[-1]:.0f}; CPU {each * 1000:.2f} ms each, "
            f"as {checks:.0f} checks of a signature"
        )
        name = f"N2 deliveries to {'a module' if by_module else 'the host'}"
        rows.append(Row(name, rate, "/s", words, None, "≥ 500/s", rate >= 500))
    return rows


async def _deliveries(folder: Path, by_module: bool) -> tuple[float, float]:
    """Seconds, and seconds of the processor, for all of them."""
    folder.mkdir()
    network, urls = MemoryNetwork(), dict[str, str]()
    async with AsyncExitStack() as stack:
        source, target = [
            await stack.enter_async_context(_node(folder, name, network, urls, by_module))
            for name in ("source", "target")
        ]
        to = target.context.signer.node_id
        await _send(source, [_envelope(number, to) for number in range(COUNT, COUNT + 50)])
        envelopes = [_envelope(number, to) for number in range(COUNT)]
        gc.collect()
        begin, busy = time.perf_counter(), time.process_time()
        await _send(source, envelopes)
        return time.perf_counter() - begin, time.process_time() - busy


def check_seconds(checks: int = 500) -> float:
    """What the processor takes to check one signature: nothing but arithmetic."""
    key = SigningKey.from_seed(bytes(32))
    document = key.sign({"x": "y"})
    identity = key.identity("node")
    begin = time.process_time()
    for _ in range(checks):
        is_signed_by(document, identity)
    return (time.process_time() - begin) / checks


async def _send(source: Node, envelopes: list[dict[str, Any]]) -> None:
    results = await asyncio.gather(
        *(source.context.delivery.send("bench", one) for one in envelopes)
    )
    if any(one["status"] != "succeeded" for one in results):
        raise RuntimeError(next(one for one in results if one["status"] != "succeeded"))
