"""A crowd of clients: each starts runs under keys of its own and watches them to their end.

A third follows the stream of events, a third asks for the run again and again, a third asks to be
told when it has ended; now and then they list runs and ask why one waits. None rests longer than
its run needs. A *patient* client meets a server that has just been killed, or whose store is away,
with the same key and the id of the last event it saw; for the others whatever goes wrong is an
error. Where there are several servers, each request goes to another one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector

API = "/api/v1"
POOL = "crowd"
ANSWER_SECONDS = 60.0
AGAIN_SECONDS = 0.05
LIST_EVERY, EXPLAIN_EVERY = 5, 7

Way = Literal["stream", "poll", "wait"]
WAYS: tuple[Way, ...] = ("stream", "poll", "wait")
AWAY = frozenset({502, 503, 504})  # the server, or its store, is not there for the moment


class Away(Exception):
    """The server cannot say at the moment."""


BROKEN = (Away, ClientError, OSError, TimeoutError, asyncio.IncompleteReadError)

#: For server and workers. `second_time` fails once, so its step waits for a timer; `note` writes
#: down under which key it was called, so that one can see afterwards what was done how often.
TOOLS = """
import asyncio, os
import anabranch

SECONDS = float(os.environ.get("CROWD_WORK_SECONDS", "0"))

@anabranch.tool("second_time")
async def second_time(n, task):
    if task.attempt < 2:
        raise ConnectionError("not the first time")
    return {"v": n}

@anabranch.tool("note")
async def note(n, task):
    with open("done.keys", "a") as file:
        file.write(f"{task.key}\\n")
    await asyncio.sleep(SECONDS)
    return {"v": n}
"""


def definition(timer_ms: int, *, pooled: bool) -> str:
    """A fan-out of three and its join: plain work, a timer, and a job that may be a worker's."""

    def step(name: str, tool: Mapping[str, Any], *then: str, **spec: Any) -> dict[str, Any]:
        arcs = {"next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": one} for one in then]}}
        return {"step": name, "tool": tool, **({"spec": spec} if spec else {}), **arcs}

    n, pool = "{{ workload.n }}", {"pool": POOL} if pooled else {}
    retry = {"attempts": 3, "delay": f"{timer_ms}ms"}
    total = "{{ steps.plain.v + steps.timed.v + steps.worked.v }}"
    workflow = [
        step("begin", {"kind": "noop"}, "plain", "timed", "worked"),
        step("plain", {"kind": "noop", "result": {"v": n}}, "meet"),
        step("timed", {"kind": "second_time", "n": n}, "meet", retry=retry),
        step("worked", {"kind": "note", "n": n}, "meet", **pool),
        step("meet", {"kind": "noop", "result": total}, join="all"),
    ]
    del workflow[-1]["next"]
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook"}
    name = "pooled" if pooled else "fan"
    return json.dumps({**head, "metadata": {"name": name}, "workflow": workflow}) + "\n"


@dataclass(slots=True)
class Visit:
    """One run as the client that began it saw it."""

    key: str
    n: int
    way: Way
    pooled: bool
    run: str = ""  # once it was acknowledged
    status: str = ""
    result: Any = None
    seen: list[int] = field(default_factory=list)  # the ids on the stream, in their order
    cuts: int = 0  # how often the server went away in the middle
    repeated: bool = False  # so that its start was sent more than once

    @property
    def expected(self) -> int:
        """What the run must come to: three branches, each with the number it was given."""
        return 3 * self.n


@dataclass(slots=True)
class Notes:
    """What the crowd saw. Times are in seconds."""

    visits: list[Visit] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    requests: int = 0
    ended: int = 0
    shown: list[float] = field(default_factory=list)  # GET run
    begun: list[float] = field(default_factory=list)  # POST /runs
    told: list[float] = field(default_factory=list)  # from the turn of an event until it was seen


def for_seconds(seconds: float) -> Callable[[], bool]:
    until = time.perf_counter() + seconds
    return lambda: time.perf_counter() < until


class Wrong(Exception):
    """The server said what it must not say; this client gives up."""


class Crowd:
    """A run lasts as long as its timer, about; every `pooled_every`th has a job for a worker."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        timer_ms: int,
        poll_seconds: float,
        pooled_every: int = 4,
        patient: bool = False,
        name: str = "client",
    ) -> None:
        self.urls = [url] if isinstance(url, str) else list(url)
        self.notes, self._name = Notes(), name
        self._poll_seconds, self._pooled_every, self._patient = poll_seconds, pooled_every, patient
        self._texts = {one: definition(timer_ms, pooled=one) for one in (False, True)}
        self._spread_seconds = timer_ms / 1000
        self._session: ClientSession

    async def go(self, clients: int, going_on: Callable[[], bool]) -> None:
        """So many clients, as long as that is true; each sees its last run to the end."""
        timeout = ClientTimeout(ANSWER_SECONDS)
        connector = TCPConnector(limit=0)
        async with ClientSession(connector=connector, timeout=timeout) as self._session:
            spread = self._spread_seconds / max(1, clients)  # they do not all come at once
            work = (self._client(n, n * spread, going_on) for n in range(clients))
            await asyncio.gather(*work)

    async def _client(self, number: int, pause: float, going_on: Callable[[], bool]) -> None:
        way, count = WAYS[number % len(WAYS)], 0
        await asyncio.sleep(pause)
        while going_on():
            n = number * 1_000_000 + count
            pooled = (number + count) % self._pooled_every == 0
            visit = Visit(f"{self._name} {number}, run {count}", n, way, pooled)
            self.notes.visits.append(visit)
            count += 1
            try:
                await self._visit(visit, count)
            except (Wrong, *BROKEN) as error:
                self.notes.errors.append(f"{visit.key} ({way}): {error!r}")
                return

    async def _visit(self, visit: Visit, count: int) -> None:
        await self._begin(visit)
        if count % LIST_EVERY == 0:
            await self._get(visit, "/runs?limit=20")
        if count % EXPLAIN_EVERY == 0:
            await self._get(visit, f"/runs/{visit.run}/explain")
        match visit.way:
            case "stream":
                await self._follow(visit)
            case "poll":
                await self._poll(visit)
            case "wait":
                await self._wait(visit)
        shown = await self._show(visit)
        visit.status, visit.result = shown["status"], shown["result"]
        self.notes.ended += 1

    # -- what a client does ------------------------------------------------------------------

    async def _begin(self, visit: Visit) -> None:
        body = {
            "definition": self._texts[visit.pooled],
            "input": {"n": visit.n},
            "labels": {"way": visit.way},
        }
        headers = {"Idempotency-Key": visit.key}
        begin = time.perf_counter()
        said = await self._ask(visit, "POST", "/runs", 201, json=body, headers=headers)
        self.notes.begun.append(time.perf_counter() - begin)
        visit.run, visit.repeated = said["run"], visit.cuts > 0

    async def _show(self, visit: Visit) -> Any:
        begin = time.perf_counter()
        shown = await self._get(visit, f"/runs/{visit.run}")
        self.notes.shown.append(time.perf_counter() - begin)
        return shown

    async def _poll(self, visit: Visit) -> None:
        events = 0
        while True:
            shown = await self._show(visit)
            if shown["events"] < events:
                raise Wrong(f"{shown['events']} events after {events}: what was shown is gone")
            events = shown["events"]
            if shown["finished_at"] is not None:
                return
            await asyncio.sleep(self._poll_seconds)

    async def _wait(self, visit: Visit) -> None:
        while not (await self._get(visit, f"/runs/{visit.run}/wait?seconds=30"))["finished"]:
            pass

    async def _follow(self, visit: Visit) -> None:
        """Until the stream says that it has ended; a stream that broke is taken up again."""
        ended = False
        while not ended:
            path = f"{self._server()}{API}/runs/{visit.run}/events/stream"
            headers = {"Last-Event-ID": str(visit.seen[-1])} if visit.seen else {}
            async with self._patience(visit), self._session.get(path, headers=headers) as response:
                self._check(response, 200, await response.text() if response.status > 200 else "")
                ended = await self._read_stream(visit, response)

    async def _read_stream(self, visit: Visit, response: ClientResponse) -> bool:
        """True at its last word, false where it stopped in the middle."""
        fields: dict[bytes, bytes] = {}
        async for raw in response.content:
            line = raw.rstrip(b"\n")
            if line:
                name, _, value = line.partition(b": ")
                fields[name] = value
                continue
            if b"id" in fields:
                record = json.loads(fields[b"data"])
                visit.seen.append(int(fields[b"id"]))
                self.notes.told.append(max(0.0, time.time() - record["at"] / 1000))
            elif fields.get(b"event") == b"end":
                return bool(json.loads(fields[b"data"])["reason"] == "finished")
            fields = {}
        return False

    # -- asking ------------------------------------------------------------------------------

    async def _get(self, visit: Visit, path: str) -> Any:
        return await self._ask(visit, "GET", path, 200)

    async def _ask(self, visit: Visit, method: str, path: str, expected: int, **more: Any) -> Any:
        while True:
            async with (
                self._patience(visit),
                self._session.request(method, f"{self._server()}{API}{path}", **more) as response,
            ):
                text = await response.text()
                self._check(response, expected, text)
                return json.loads(text)

    def _server(self) -> str:
        """The next one: a run is begun at one server and watched at others."""
        return self.urls[self.notes.requests % len(self.urls)]

    def _check(self, response: ClientResponse, expected: int, text: str) -> None:
        if self._patient and response.status in AWAY:
            raise Away(f"{response.method} {response.url.path}: {response.status} {text[:300]}")
        if response.status != expected:
            raise Wrong(f"{response.method} {response.url.path}: {response.status} {text[:300]}")

    @asynccontextmanager
    async def _patience(self, visit: Visit) -> AsyncIterator[None]:
        """Around one request: a patient client comes back when the server has gone away."""
        self.notes.requests += 1
        try:
            yield
        except BROKEN:
            if not self._patient:
                raise
            visit.cuts += 1
            await asyncio.sleep(AGAIN_SECONDS)
