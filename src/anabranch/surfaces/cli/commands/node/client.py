"""Questions to a node that runs: its address and its token are in its folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from anabranch.errors import InputError, NotFound
from anabranch.market.node.folder import NodeFolder
from anabranch.market.node.modules.tokens import CONTROL_HEADER
from anabranch.surfaces.cli.commands.node.failed import NodeFailed

ASK_SECONDS = 60.0
READY_SECONDS = 60.0  # for a module that its node has just started
LOOK_SECONDS = 0.1

Seen = TypeVar("Seen")


class NodeClient:
    def __init__(self, folder: NodeFolder) -> None:
        folder.read()  # says where to look when there is no node
        self.url = _text(folder.url, folder).rstrip("/")
        self._token = _text(folder.control_token, folder)

    async def ask(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None
    ) -> Any:
        """What the node answers; raises with its own words where it refuses."""
        return answered(*await self.call(method, path, body, query))

    async def call(
        self, method: str, path: str, body: Any = None, query: Mapping[str, Any] | None = None
    ) -> tuple[int, bytes]:
        """The status and the body of its answer, whatever it is."""
        import aiohttp  # other verbs need no client

        given = {name: value for name, value in (query or {}).items() if value is not None}
        where = f"{self.url}{path}" + (f"?{urlencode(given)}" if given else "")
        data = None if body is None else msgspec.json.encode(body)
        headers = {CONTROL_HEADER: self._token, "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(method, where, data=data, headers=headers) as response,
            ):
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            raise NodeFailed(
                f"the node at {self.url} does not answer: is `anabranch node serve` running?"
            ) from None


async def started(folder: NodeFolder, seconds: float) -> NodeClient:
    """A client of a node that may still be starting; raises `NodeFailed` once the time is over."""
    end = time.monotonic() + seconds
    while True:
        try:
            client = NodeClient(folder)
            await client.ask("GET", "/readyz")
        except NodeFailed:
            if time.monotonic() >= end:
                raise
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return client


async def hosting(folder: NodeFolder, module: str) -> NodeClient:
    """A client of a node whose module is ready; one that its node has just started is waited for.
    Raises `InputError` where the node hosts none, `NodeFailed` where it does not get ready."""
    node = NodeClient(folder)
    try:
        found = await until(
            lambda: node.ask("GET", f"/v1/modules/{module}"),
            lambda one: one["ready"] or one["state"] in ("failed", "stopped"),
            READY_SECONDS,
        )
    except NotFound:
        raise InputError(
            f"the node in {folder.path} hosts no {module.title()}: make one with `anabranch node "
            f"init DIR --with {module}`, or add it to `modules` in node.json",
            code="no_module",
        ) from None
    if not found["ready"]:
        last = found["last_problem"]
        why = f": {last['code']}: {last['message']}" if last else ""
        raise NodeFailed(f"the module {module} is {found['state']}{why}")
    return node


async def until(
    look: Callable[[], Awaitable[Seen]], is_enough: Callable[[Seen], bool], seconds: float
) -> Seen:
    """What is seen once it is enough, or when the time is over."""
    end = time.monotonic() + seconds
    while not is_enough(seen := await look()) and time.monotonic() < end:
        await asyncio.sleep(LOOK_SECONDS)
    return seen


def part(text: str) -> str:
    """An id as one part of a path."""
    return quote(text, safe=":")


def answered(status: int, raw: bytes) -> Any:
    try:
        body = msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError:
        body = None
    if status < 400:
        return body
    found = body if isinstance(body, dict) else {}
    said = str(found.get("detail") or f"the node answered with status {status}")
    code = str(found.get("code") or "node")
    if status == 404:
        raise NotFound(said, code=code)
    if status < 500:
        raise InputError(said, code=code)
    raise NodeFailed(said, code=code)


def _text(path: Path, folder: NodeFolder) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        raise NodeFailed(
            f"the node in {folder.path} does not run: start it with `anabranch node serve`"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", code="node_file") from None
