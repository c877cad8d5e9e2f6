"""S6: what requests cost a server, by its processor: a start, a look at a run, a stream to its end.

The server is `anabranch serve`, a process of its own, whose time of the processor the system tells.
The probe is a bare server (`bench/bare.py`), asked in the same way.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from bench import crowd
from bench.bare import bare_server
from bench.rows import Row
from bench.station import Station
from bench.world import playbook

CONNECTIONS = 8
CLIENTS = int(os.environ.get("ANABRANCH_BENCH_CLIENTS", "200"))
GETS, POSTS, STREAMS = 3_000, 1_500, 400
WARM = 100
GETS_A_CLIENT, ROUNDS = 3, 10
PACE = 1_000  # requests a second, at which a start must be quick
API = "/api/v1/runs"


class Connection:
    """One kept connection, and a client that does next to nothing."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._writer.close()

    async def ask(
        self, method: str, path: str, body: bytes = b"", key: str = ""
    ) -> tuple[int, bytes]:
        await self._send(method, path, body, key)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status, length = int(head[9:12]), 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, await self._reader.readexactly(length)

    async def follow(self, path: str) -> int:
        """A stream in chunks to its end; how many events it had."""
        await self._send("GET", path)
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head[9:12] == b"200", head
        events = 0
        while size := int(await self._reader.readline(), 16):
            events += (await self._reader.readexactly(size + 2)).count(b"\nid: ")
        await self._reader.readline()
        return events

    async def _send(self, method: str, path: str, body: bytes = b"", key: str = "") -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        if key:
            head += f"Idempotency-Key: {key}\r\n"
        self._writer.write(head.encode() + b"\r\n" + body)
        await self._writer.drain()


def cpu_seconds(process: int) -> float:
    """What a process has taken of the processor so far, with all of its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


Do = Callable[[Connection, int], Awaitable[Any]]


async def cpu_ms(process: int, port: int, do: Do, times: int) -> float:
    """Of the server, for each time that this is done."""
    await _many(port, do, WARM, first=-WARM)
    before = cpu_seconds(process)
    await _many(port, do, times)
    return (cpu_seconds(process) - before) / times * 1000


async def _many(port: int, do: Do, times: int, first: int = 0) -> None:
    numbers = iter(range(first, first + times))

    async def one() -> None:
        async with Connection(port) as connection:
            for number in numbers:
                await do(connection, number)

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))


def start_of(text: str, **more: Any) -> bytes:
    return json.dumps({"definition": text, "input": {}, **more}).encode()


ONE_STEP = playbook("one", [{"step": "only", "tool": {"kind": "noop"}}])


async def begin(connection: Connection, body: bytes, key: str) -> str:
    status, answered = await connection.ask("POST", API, body, key)
    assert status == 201, answered
    run: str = json.loads(answered)["run"]
    return run


async def s6(folder: Path) -> list[Row]:
    with Station(folder) as station:
        station.serve()
        station.wait_ready()
        assert station.server is not None
        async with bare_server(folder) as bare:
            bare_get = await cpu_ms(bare.process, bare.port, _bare_get, GETS)
            bare_post = await cpu_ms(bare.process, bare.port, _bare_post, POSTS)
            rows = await _costs(station.server.pid, station.port, bare_get, bare_post)
        return [*rows, *await _rate(station.port)]


async def _costs(server: int, port: int, bare_get: float, bare_post: float) -> list[Row]:
    fan = start_of(crowd.definition(1, pooled=False), input={"n": 1})
    one = start_of(ONE_STEP)
    async with Connection(port) as connection:
        run = await begin(connection, fan, "shown")
        await connection.follow(f"{API}/{run}/events/stream")

    async def get(connection: Connection, _number: int) -> None:
        status, answered = await connection.ask("GET", f"{API}/{run}")
        assert status == 200, answered

    async def post_one(connection: Connection, number: int) -> None:
        await begin(connection, one, f"one-{number}")

    async def post_fan(connection: Connection, number: int) -> None:
        await begin(connection, fan, f"fan-{number}")

    async def watch(connection: Connection, number: int) -> None:
        begun = await begin(connection, fan, f"watched-{number}")
        assert await connection.follow(f"{API}/{begun}/events/stream") > 20

    shown = await cpu_ms(server, port, get, GETS)
    begun = await cpu_ms(server, port, post_one, POSTS)
    fanned = await cpu_ms(server, port, post_fan, POSTS)
    watched = await cpu_ms(server, port, watch, STREAMS)
    got, posted = f"bare GET: {bare_get:.2f} ms", f"bare POST: {bare_post:.2f} ms"
    unit = "ms cpu"
    return [
        Row("S6 GET run", shown, unit, got, shown / bare_get, "≤ 0.25 ms", shown <= 0.25),
        Row("S6 POST run of one step", begun, unit, posted, begun / bare_post, *_aim(begun, 0.7)),
        Row("S6 POST run of five steps", fanned, unit, posted, fanned / bare_post, "", None),
        Row(
            "S6 run begun and watched",
            watched,
            unit,
            posted,
            watched / bare_post,
            *_aim(watched, 2),
        ),
    ]


def _aim(figure: float, most: float) -> tuple[str, bool]:
    return f"≤ {most:g} ms", figure <= most


async def _rate(port: int) -> list[Row]:
    """So many clients at once: each begins a run of one step and looks at it a few times. First as
    fast as they can, where each waits for all others, and then at the pace of the aim."""
    begun = time.perf_counter()
    posted = await _clients(port, "fast", pace=0.0)
    requests = len(posted) * (1 + GETS_A_CLIENT)
    rate = requests / (time.perf_counter() - begun)
    said = f"{CLIENTS} clients, a start for {GETS_A_CLIENT} looks"
    paced = _p99(await _clients(port, "paced", pace=CLIENTS * (1 + GETS_A_CLIENT) / PACE))
    at_pace = f"{said}, {PACE:,} requests/s; as fast as they can: {_p99(posted):.0f} ms"
    return [
        Row("S6 requests", rate, "1/s", said, None, f"≥ {PACE:,}/s", rate >= PACE),
        Row("S6 p99 of POST", paced, "ms", at_pace, None, "≤ 60 ms", paced <= 60),
    ]


async def _clients(port: int, key: str, pace: float) -> list[float]:
    """The seconds of each start. `pace` is the seconds from one round of a client to the next."""
    body = start_of(ONE_STEP)
    posted: list[float] = []

    async def client(number: int) -> None:
        await asyncio.sleep(pace * number / CLIENTS)  # they do not all begin at once
        async with Connection(port) as connection:
            for round_ in range(ROUNDS):
                begun = time.perf_counter()
                run = await begin(connection, body, f"{key}-{number}-{round_}")
                posted.append(time.perf_counter() - begun)
                for _ in range(GETS_A_CLIENT):
                    status, answered = await connection.ask("GET", f"{API}/{run}")
                    assert status == 200, answered
                await asyncio.sleep(max(0.0, begun + pace - time.perf_counter()))

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    return posted


def _p99(seconds: list[float]) -> float:
    """In milliseconds."""
    return sorted(seconds)[int(len(seconds) * 0.99)] * 1000


async def _bare_get(connection: Connection, _number: int) -> None:
    assert (await connection.ask("GET", "/"))[0] == 200


async def _bare_post(connection: Connection, _number: int) -> None:
    assert (await connection.ask("POST", "/", b"x" * 1000))[0] == 201
