"""A real server in bad company: whoever behaves is served as before, and its memory stays small."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientTimeout
from bench.station import Station

from anabranch.surfaces.http.io.readers import THREADS
from hangs import HANG_SECONDS
from surfaces.cli.support import ADMIT, HELLO

pytestmark = pytest.mark.slow
API = "/api/v1"
HALF_A_HEAD = b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-More: "
POLITE, QUESTIONS = 5, 18
LONG_SECONDS = 60.0  # whoever waits so long was left waiting: the company stays for longer
HALF_OPEN = 1000
MORE_WORK = 5  # times as much, at most, when it has settled down
SETTLING = 5


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """One for all companies, which leave before the next one comes."""
    folder = tmp_path_factory.mktemp("station")
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        with Station(folder) as made:
            made.serve()
            made.wait_ready()
            yield made
        assert "Traceback" not in (folder / "server.log").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


class Guest:
    """Somebody polite, who notes how long it takes to be answered."""

    def __init__(self, session: ClientSession, url: str) -> None:
        self._session, self._url = session, url
        self.waited: list[float] = []

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        begin = time.perf_counter()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(
            method, f"{self._url}{API}{path}", json=body, headers=given
        ) as response:
            said = await response.json()
        self.waited.append(time.perf_counter() - begin)
        assert response.status < 300, said
        return said

    async def start(self, text: str) -> str:
        return str((await self.ask("POST", "/runs", {"definition": text}))["run"])

    async def visit(self) -> None:
        """Begin a run, wait for its end and look at it, again and again."""
        for _ in range(QUESTIONS // 3):
            run = await self.start(HELLO)
            while not (await self.ask("GET", f"/runs/{run}/wait?seconds=30"))["finished"]:
                pass
            assert (await self.ask("GET", f"/runs/{run}"))["result"] == "hello you"


@asynccontextmanager
async def guest(station: Station) -> AsyncIterator[Guest]:
    async with ClientSession(timeout=ClientTimeout(HANG_SECONDS)) as session:
        yield Guest(session, station.url)


async def visits(station: Station) -> list[float]:
    async with guest(station) as one:
        await asyncio.gather(*(one.visit() for _ in range(POLITE)))
    return one.waited


async def served_as_before(
    station: Station, company: Callable[[], Awaitable[None]] | None = None
) -> None:
    """The same visits alone and in company: nobody is refused, nobody waits for the company to
    leave, and a visit is hardly more work for the server. (How long it takes says more of the
    machine than of the server.)"""
    await visits(station)  # the first compiles, imports and connects
    alone, _ = await measured_visits(station)
    if company is not None:
        await company()
    for _ in range(SETTLING):  # what the company asked for at first is work too
        beside, waited = await measured_visits(station)
        assert len(waited) == POLITE * QUESTIONS
        assert max(waited) < LONG_SECONDS
        if beside < MORE_WORK * alone:
            return
    raise AssertionError(f"{beside:.2f} s of work beside them, {alone:.2f} s alone")


async def measured_visits(station: Station) -> tuple[float, list[float]]:
    before = work_of(station)
    waited = await visits(station)
    return work_of(station) - before, waited


def run(work: Any, seconds: float = HANG_SECONDS) -> None:
    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await work

    asyncio.run(limited())


async def connect(station: Station) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", station.port)


def memory_of(station: Station) -> int:
    """Bytes of the server that are in memory."""
    assert station.server is not None
    status = Path(f"/proc/{station.server.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def work_of(station: Station) -> float:
    """Seconds of a processor that the server has had; waiting does not count."""
    assert station.server is not None
    fields = Path(f"/proc/{station.server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- connections that are left half open -----------------------------------------------------------


async def drip(writer: asyncio.StreamWriter) -> None:
    """A head that comes letter by letter and never ends."""
    try:
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(1)
    except ConnectionError:
        pass  # the server has had enough


def test_a_thousand_half_open_connections_and_dripping_heads_slow_nobody_down(
    station: Station,
) -> None:
    async def go() -> None:
        writers: list[asyncio.StreamWriter] = []
        dripping: list[asyncio.Task[None]] = []

        async def company() -> None:
            for n in range(HALF_OPEN):
                writer = (await connect(station))[1]
                writers.append(writer)
                if n % 4:
                    writer.write(HALF_A_HEAD)
                if n % 4 == 3:
                    dripping.append(asyncio.ensure_future(drip(writer)))

        before = memory_of(station)
        await served_as_before(station, company)
        assert sum(not task.done() for task in dripping) > 100, "they have all left too early"
        assert memory_of(station) - before < 100 * 1024 * 1024
        for task in dripping:
            task.cancel()
        await asyncio.wait(dripping)
        for writer in writers:
            writer.transport.abort()
        await visits(station)

    run(go())


# -- followers that never read ---------------------------------------------------------------------

DEAF = 30
LETTERS, PATCHES = 60_000, 30


async def deaf_follower(station: Station, name: str) -> socket.socket:
    """Asks for the stream, and never reads a byte of it."""
    ear = socket.socket()
    ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    ear.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(ear, ("127.0.0.1", station.port))
    asked = f"GET {API}/runs/{name}/events/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    await loop.sock_sendall(ear, asked.encode())
    return ear


async def numbers(session: ClientSession, station: Station, name: str, until: int) -> list[int]:
    """The ids of the events on the stream, up to one."""
    found: list[int] = []
    async with session.get(f"{station.url}{API}/runs/{name}/events/stream") as response:
        async for line in response.content:
            if line.startswith(b"id: "):
                found.append(int(line[4:]))
                if found[-1] == until:
                    return found
    raise AssertionError("the stream ended early")


def test_followers_that_never_read_cost_little_memory_and_hold_up_no_other_follower(
    station: Station,
) -> None:
    async def go() -> None:
        with ExitStack() as left:
            await tell(left)

    async def tell(left: ExitStack) -> None:
        async with (
            guest(station) as one,
            ClientSession(timeout=ClientTimeout(HANG_SECONDS), read_bufsize=2**20) as session,
        ):
            name = await one.start(ADMIT)

            async def say(count: int) -> None:
                for number in range(count):
                    text = f"{number}" + "x" * LETTERS
                    await one.ask("POST", f"/runs/{name}/patch", {"values": {"text": text}})

            await say(PATCHES)  # megabytes that a follower has to be told at first
            # All of the few who read for a server have their caches then.
            await asyncio.gather(
                *(one.ask("GET", f"/runs/{name}/events?limit=8") for _ in range(2 * THREADS))
            )
            before = memory_of(station)

            async def company() -> None:
                for _ in range(DEAF):
                    left.enter_context(closing(await deaf_follower(station, name)))

            await served_as_before(station, company)
            events = (await one.ask("GET", f"/runs/{name}"))["events"]
            hearing = asyncio.ensure_future(numbers(session, station, name, events + PATCHES))
            await say(PATCHES)  # and as many while they do not listen
            assert await hearing == list(range(1, events + PATCHES + 1))
            grown = memory_of(station) - before
            assert grown < DEAF * 1024 * 1024, f"{grown / DEAF / 1024:,.0f} KiB for each of them"
            await one.ask("POST", f"/runs/{name}/patch", {"values": {"go": True}})
            while not (await one.ask("GET", f"/runs/{name}/wait?seconds=30"))["finished"]:
                pass

    run(go())


# -- clients that leave ----------------------------------------------------------------------------


async def leave_in_the_middle(station: Station, number: int) -> None:
    """A start of which only a part is sent: politely closed, reset, or left without a word."""
    body = json.dumps({"definition": HELLO, "run": f"left-{number}"}).encode()
    head = (
        f"POST {API}/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Idempotency-Key: left {number}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    _, writer = await connect(station)
    writer.write(head.encode() + body[: number % len(body)])
    await writer.drain()
    if number % 2:
        writer.transport.abort()
    else:
        writer.close()


def test_clients_that_leave_in_the_middle_of_a_body_begin_nothing_and_slow_nobody_down(
    station: Station,
) -> None:
    async def go() -> None:
        async def company() -> None:
            leaving = (leave_in_the_middle(station, number) for number in range(300))
            await asyncio.gather(*leaving)

        await served_as_before(station, company)
        async with guest(station) as one:
            page = await one.ask("GET", "/runs?prefix=left-")
            assert page["items"] == []
            body = {"definition": HELLO, "run": "left-1"}
            said = await one.ask("POST", "/runs", body, Idempotency_Key="left 1")
            assert said["run"] == "left-1", "the key was taken by a request that never came"

    run(go())


# -- definitions that take long ----------------------------------------------------------------

LONG = "range(90000) | map('abs') | sum > 0"  # an eighth of what one turn may take


def step(name: str, *then: str, **tool: Any) -> dict[str, Any]:
    arcs = [{"step": target, "when": f"{{{{ {LONG} }}}}"} for target in then]
    after = {"next": {"spec": {"mode": "inclusive"}, "arcs": arcs}} if then else {}
    return {"step": name, "tool": {"kind": "noop", **tool}, **after}


def definition(*workflow: Any, **more: Any) -> str:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "long"}}
    return json.dumps({**head, "workflow": workflow, **more})


NAMES = [f"s{number}" for number in range(4)]
SOME = "range(30000) | map('abs') | sum"  # not long: twenty of them are
MANY = [f"m{number}" for number in range(20)]
RULES = {"policy": {"rules": [{"when": f"{{{{ ({SOME}) < 0 }}}}", "then": {"do": "fail"}}]}}
SUM_OF_ITEM = f"{{{{ ({SOME}) + iter.n }}}}"
ITEM = {"kind": "noop", "result": SUM_OF_ITEM, "spec": RULES}


def side_by_side(*more: dict[str, Any], **tool: Any) -> str:
    """Many steps that begin at the same moment."""
    arcs = {"spec": {"mode": "inclusive"}, "arcs": [{"step": name} for name in MANY]}
    steps = [step(name, **tool) for name in MANY]
    return definition({**step("a"), "next": arcs}, *steps, keychain=list(more))


def looped(tool: Any, parallel: int = 0, **fanout: Any) -> str:
    items = {"in": {"range": [0, len(MANY)]}, "iterator": "n"}
    spec = {"loop_mode": "fanout", "fanout": fanout}
    if parallel:
        items["spec"], spec = {"mode": "parallel", "max_in_flight": parallel}, {}
    return definition({"step": "a", "spec": spec, "loop": items, "tool": tool})


LONG_DEFINITIONS = {
    "guards of one turn": definition(step("a", *NAMES), *map(step, NAMES)),
    "inputs of one job": definition(
        step("a", result=[f"{{{{ {LONG} and {number} }}}}" for number in range(4)])
    ),
    "inputs of many jobs": side_by_side(result=f"{{{{ {SOME} }}}}"),
    "inputs with secrets": side_by_side(
        {"name": "k", "kind": "static", "map": {"a": "a long secret"}},
        result=f"{{{{ {SOME} }}}} {{{{ keychain.k.a | length }}}}",
    ),
    "a long keychain": side_by_side(
        *({"name": f"k{n}", "kind": "static", "map": {"a": f"{{{{ {SOME} }}}}"}} for n in range(3)),
        result="{{ keychain.k2.a | length }}",
    ),
    "rules of many pipelines": definition(
        {**step("a"), "next": {"spec": {"mode": "inclusive"}, "arcs": [
            {"step": name} for name in MANY]}},
        *({"step": name, "tool": [{"name": "t", "kind": "noop", "spec": RULES}]} for name in MANY),
    ),
    "items side by side": looped(ITEM, parallel=len(MANY)),
    "shards side by side": looped(ITEM, shard_size=1, max_concurrent=len(MANY)),
    "items of inline code": looped(
        {"kind": "python", "args": {"n": SUM_OF_ITEM}, "code": "result = n", "spec": RULES},
        shard_size=len(MANY),
    ),
    "keys of items": looped({"kind": "noop"}, shard_size=len(MANY), iter_key=SUM_OF_ITEM),
    "tasks of a pipeline": definition(
        {"step": "a", "tool": [
            {"name": f"t{n}", "kind": "noop", "result": [f"{{{{ {LONG} }}}}"] * 3} for n in range(3)
        ]}
    ),
}  # fmt: skip


async def ticks_too_late(session: ClientSession, station: Station) -> float:
    async with session.get(f"{station.url}/metrics") as response:
        said = await response.text()
    [line] = re.findall(r"^anabranch_event_loop_late_total (\S+)$", said, re.MULTILINE)
    return float(line)


def test_definitions_that_take_long_hold_nobody_up(station: Station) -> None:
    async def work() -> None:
        async with guest(station) as one, ClientSession() as session:
            await one.visit()  # the first compiles and imports
            late = {}
            for name, text in LONG_DEFINITIONS.items():
                before = await ticks_too_late(session, station)
                run_id = await one.start(text)
                ended = await one.ask("GET", f"/runs/{run_id}/wait?seconds=60")
                assert ended["status"] == "completed", (name, ended)
                late[name] = await ticks_too_late(session, station) - before
            # One may be late for another reason. Where nothing is shared, there are ten.
            assert sum(late.values()) <= 2, late

    run(work())
