"""Two nodes over HTTP: sessions, messages, a seed that is read and published to."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from anabranch.clock import SystemClock
from anabranch.market.node.directory import part as directory
from anabranch.market.node.modules.tokens import ModuleTokens
from anabranch.market.node.node import Node
from anabranch.market.node.peers import part as peers
from anabranch.market.node.peers.http_transport import HttpPeerTransport
from anabranch.market.node.ports import NodeConfig, PeerUnreachable
from anabranch.store.memory.store import MemoryStore
from anabranch.surfaces.http.node.application import node_application

from .support import Echo, KeySigner, counted_bytes

CAPABILITY = "offer-catalog"


async def served(stack: AsyncExitStack, number: int, seeds: tuple[str, ...] = ()) -> Node:
    """A node on a port of its own, until the stack is left."""
    transport = HttpPeerTransport()
    stack.push_async_callback(transport.close)
    holder: dict[str, Node] = {}
    app = web.Application()

    async def handle(request: web.Request) -> web.StreamResponse:
        return await inner(holder["node"], request)

    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    node = holder["node"] = Node(
        MemoryStore(),
        SystemClock(),
        KeySigner(number),
        NodeConfig(url=url, seeds=seeds, raw={"directory": {"passports": [CAPABILITY]}}),
        transport,
        [(peers.make, peers.FAMILIES), (directory.make, directory.FAMILIES)],
        random_bytes=counted_bytes,
    )
    await node.open()
    stack.push_async_callback(node.close)
    return node


async def inner(node: Node, request: web.Request) -> web.StreamResponse:
    """The node's own application, asked for one request."""
    app = node_application(node, ModuleTokens({}, counted_bytes, None))
    (route,) = app.router.routes()
    found: Any = await route.handler(request)
    response: web.StreamResponse = found
    return response


def test_two_nodes_find_each_other_and_talk() -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            one = await served(stack, 1)
            other = await served(stack, 2, (one.context.config.url,))
            ids = sorted(node.context.signer.node_id for node in (one, other))
            for node in (one, other):
                rows = node.context.directory.holders(CAPABILITY)
                found = sorted(row["node_id"] for row in rows)
                assert found == ids
            echo = Echo()
            one.context.peers.on("a.request", echo)
            payload = {"text": "ł€😀", "number": 1.5, "list": [None, True, 2**60]}
            for source in (other, one):
                answer = await source.context.peers.request(
                    one.context.signer.node_id, "a.request", payload, correlation_id="c", seconds=30
                )
                assert answer == {"echo": payload}
            assert [message.remote_node_id for message in echo.seen] == [
                other.context.signer.node_id, one.context.signer.node_id,
            ]  # fmt: skip

    asyncio.run(scenario())


def test_a_node_that_is_gone_is_unreachable() -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            one = await served(stack, 1)
            async with AsyncExitStack() as inside:
                other = await served(inside, 2, (one.context.config.url,))
                gone = other.context.signer.node_id
            with pytest.raises(PeerUnreachable) as error:
                await one.context.peers.establish(gone, 30)
            assert error.value.code == "peer_unreachable"

    asyncio.run(scenario())
