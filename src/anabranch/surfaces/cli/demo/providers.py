"""The providers of the demo: small HTTP servers on this machine, each with a character."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def offering(name: str, price: Any, seconds: float) -> Handler:
    """Names its price after a while, and takes orders."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked = json.loads(await request.read())
        await asyncio.sleep(seconds)
        if asked["service_type"] == "freight/order":
            said = {"provider": name, "status": "ordered", "order": f"{name}-1", **asked["input"]}
        else:
            said = {"provider": name, "status": "offer", "price": price}
        return web.json_response(said)

    return answer


def saying(text: str) -> Handler:
    async def answer(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=text, content_type="application/json")

    return answer


async def hanging_up(request: web.BaseRequest) -> web.StreamResponse:
    """Hears what is asked, and is gone."""
    await request.read()
    if request.transport is not None:
        request.transport.close()
    return web.Response()


PROVIDERS: dict[str, Handler | None] = {
    "alba": offering("alba", 48, 0.1),
    "bora": offering("bora", 39, 0.2),
    "cirro": offering("cirro", 55, 0.0),
    "delta": None,  # nobody is there
    "eco": hanging_up,
    "foehn": offering("foehn", "almost nothing", 0.0),  # a price that is no number
    "garua": saying("<h1>It works!</h1>"),  # nonsense
    "halo": saying(json.dumps({"status": "no_offer_available"})),
}


@asynccontextmanager
async def providers() -> AsyncIterator[dict[str, Any]]:
    """All of them, while the context is open; gives the book that says where they are."""
    async with AsyncExitStack() as stack:
        urls = {}
        for name, handler in PROVIDERS.items():
            listening = socket.create_server(("127.0.0.1", 0))
            urls[name] = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            if handler is None:
                listening.close()
            else:
                await stack.enter_async_context(_served(handler, listening))
        yield {"participants": {name: {"url": url} for name, url in urls.items()}}


@asynccontextmanager
async def _served(handler: Handler, listening: socket.socket) -> AsyncIterator[None]:
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    try:
        yield
    finally:
        await runner.cleanup()
