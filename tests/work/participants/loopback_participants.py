"""Participants that misbehave, on real sockets of this machine, and a workflow that asks them.

A `Party` is a server in a thread of its own, so that nothing the engine does can hold it up. What a
connection does is a coroutine `(reader, writer, request)`; when each connection was made and closed
is written down by the monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anabranch
from anabranch.app import Engine
from anabranch.operations.read.dispatches import Dispatch
from anabranch.settings import Settings
from free_ports import free_port
from hangs import HANG_SECONDS


@dataclass
class Visit:
    """One connection, as the server saw it."""

    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    asked_at: float = 0.0
    closed_at: float = 0.0


#: How a conversation may end besides being over.
LEFT = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError)

Behaviour = Callable[[asyncio.StreamWriter, Visit], Awaitable[None]]


def reply(
    body: bytes | str, *, status: str = "200 OK", kind: str = "application/json", **headers: str
) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    named = {"Content-Type": kind, "Content-Length": str(len(data))}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items() if value)
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + data


def says(body: Any, **more: str) -> Behaviour:
    """Answers at once."""
    data = reply(json.dumps(body), **more)

    async def answer(writer: asyncio.StreamWriter, _visit: Visit) -> None:
        writer.write(data)

    return answer


def sends(*pieces: bytes, pause: float = 0.0, end: bool = True) -> Behaviour:
    """Sends these bytes, resting between them; then ends the connection, or leaves it as it is."""

    async def answer(writer: asyncio.StreamWriter, _visit: Visit) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        if end:
            writer.close()
        else:
            await asyncio.sleep(3600)

    return answer


async def never(_writer: asyncio.StreamWriter, _visit: Visit) -> None:
    await asyncio.sleep(3600)


class Party:
    """A server on a free port; `behaviours` by path."""

    def __init__(self, behaviours: Mapping[str, Behaviour]) -> None:
        self._behaviours = behaviours
        self.visits: list[Visit] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    def book(self) -> dict[str, Any]:
        return {name: {"url": self.url(name)} for name in self._behaviours}

    def seen(self, path: str) -> list[Visit]:
        return [visit for visit in self.visits if visit.path == f"/{path}"]

    def all_closed(self) -> bool:
        return all(visit.closed_at for visit in self.visits)

    def wait(self, holds: Callable[[], bool], seconds: float = HANG_SECONDS) -> bool:
        """Until that is so, as soon as something happens here."""
        with self._changed:
            return self._changed.wait_for(holds, seconds)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._visited, "127.0.0.1", 0, limit=2**20, backlog=1024)
        )
        self._happened(port=server.sockets[0].getsockname()[1])
        self._loop.run_forever()
        server.close()
        everything = asyncio.all_tasks(self._loop)
        for task in everything:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*everything, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0))  # the transports learn that they are closed
        self._loop.close()

    def _happened(self, port: int = 0) -> None:
        with self._changed:
            self.port = port or self.port
            self._changed.notify_all()

    async def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit()
        try:
            with suppress(*LEFT):
                await self._read(reader, visit)
                self.visits.append(visit)
                self._happened()
                await self._act(reader, writer, visit)
        finally:
            writer.transport.abort()

    async def _act(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, visit: Visit
    ) -> None:
        acting = asyncio.ensure_future(self._behaviours[visit.path.strip("/")](writer, visit))
        try:
            with suppress(OSError):
                await reader.read()  # until the other side closes
        finally:
            visit.closed_at = time.monotonic()
            self._happened()
            acting.cancel()
            await asyncio.wait([acting])
            if not acting.cancelled():
                acting.exception()  # it wrote to somebody who had left

    async def _read(self, reader: asyncio.StreamReader, visit: Visit) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        visit.headers = {name.lower(): value.strip() for name, _, value in pairs}
        size = int(visit.headers.get("content-length", 0))
        visit.body = json.loads(await reader.readexactly(size)) if size else None
        visit.asked_at = time.monotonic()
        visit.path = head[0].split(" ")[1].partition("?")[0]

    def __enter__(self) -> Party:
        self._thread.start()
        assert self.wait(lambda: self.port > 0)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_SECONDS)


@contextmanager
def party(**behaviours: Behaviour) -> Iterator[Party]:
    with Party(behaviours) as server:
        yield server


def closed_port() -> int:
    """A port on which nobody listens."""
    return free_port()


# -- workflows -------------------------------------------------------------------------------


def solicit(
    names: Sequence[str], policy: str = "any_one", timeout: str = "PT2S", **more: Any
) -> str:
    """A definition of one step that asks those participants."""
    fan_in = {"policy": policy}
    if policy == "best_of":
        fan_in |= {"score_field": "/price", "score_order": "asc"}
    step = {
        "step_id": "ask",
        "service_type": "text/summarise",
        "input": {"text": "x"},
        "target": {"resolve": "static", "participants": list(names)},
        "fan_in": fan_in | more.pop("fan_in", {}),
        "timing": {"timeout": timeout} | more.pop("timing", {}),
        **more,
    }
    definition = {"workflow_id": "solicit", "plan": {"steps": [step]}}
    return json.dumps(definition, indent=1)


@asynccontextmanager
async def engine(participants: Mapping[str, Any], **settings: Any) -> AsyncIterator[Engine]:
    chosen = Settings(store=":memory:", grace_seconds=0.0, **settings)
    async with Engine(settings=chosen, participants=participants) as opened:
        yield opened


async def asked(
    participants: Mapping[str, Any], definition: str, **settings: Any
) -> tuple[anabranch.RunResult, dict[str, Dispatch]]:
    """Run it to its end; the result and the last dispatch of each participant."""
    async with engine({"participants": participants}, **settings) as opened:
        run = await opened.start(definition)
        result = await opened.wait(run)
        return result, {each.record.target: each for each in opened.read.dispatches(run)}
