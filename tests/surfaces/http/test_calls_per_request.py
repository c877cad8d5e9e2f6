"""A look at a run, a start and a watched run take no more calls than they did: counted, which no
machine changes.

What is counted is the thread of the event loop, without the loop itself. Every figure is what it
was when this was written, and MARGIN above it; it may be raised, if somebody says why.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from anabranch.runtime import writer
from anabranch.settings import Settings
from anabranch.surfaces.http.routes import API
from anabranch.surfaces.http.serve import Server
from costs import calls, calls_of_each
from hangs import HANG_SECONDS

from .support import HELLO, gated, run

MARGIN = 1.08
REQUESTS, GOES = 20, 4
SECONDS_APART = 3600.0  # between two looks at the mail, which would be counted now and then


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow commits go to a thread: not here."""
    monkeypatch.setattr(writer, "SLOW_SECONDS", math.inf)


class Client:
    """One kept connection, for a thread of its own: nothing of it is counted."""

    def __init__(self, url: str) -> None:
        self.url = url
        where = urlsplit(url)
        self._host = where.netloc
        self._socket = socket.create_connection((where.hostname, where.port), HANG_SECONDS)
        self._file = self._socket.makefile("rb")

    def ask(self, method: str, path: str, body: bytes = b"", key: str = "") -> dict[str, str]:
        length = self._length_of_answer(method, path, body, key)
        answered: dict[str, str] = json.loads(self._file.read(length))
        return answered

    def follow(self, run: str) -> Iterator[bytes]:
        """What the server writes to the stream of a run, each time as it was written."""
        self._length_of_answer("GET", f"/runs/{run}/events/stream")
        while size := int(self._file.readline(), 16):
            yield self._file.read(size + 2)
        self._file.readline()

    def _length_of_answer(self, method: str, path: str, body: bytes = b"", key: str = "") -> int:
        head = f"{method} {API}{path} HTTP/1.1\r\nHost: {self._host}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        if key:
            head += f"Idempotency-Key: {key}\r\n"
        self._socket.sendall(head.encode() + b"\r\n" + body)
        assert self._file.readline().split()[1] in (b"200", b"201")
        length = 0
        while line := self._file.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name == b"Content-Length" else length
        return length

    def close(self) -> None:
        self._file.close()
        self._socket.close()


START = json.dumps({"definition": HELLO, "input": {}}).encode()
START_GATED = json.dumps({"definition": gated(), "input": {}}).encode()
OPEN_GATE = json.dumps({"values": {"go": True}}).encode()


def looks(client: Client) -> Callable[[int], None]:
    begun = client.ask("POST", "/runs", START)["run"]
    client.ask("GET", f"/runs/{begun}/wait")

    def look(_go: int) -> None:
        for _ in range(REQUESTS):
            assert client.ask("GET", f"/runs/{begun}")["status"] == "completed"

    return look


def starts(client: Client) -> Callable[[int], None]:
    """The run of a start goes on when it is answered: waited for, and asked for once a go."""

    def start(go: int) -> None:
        for number in range(REQUESTS):
            begun = client.ask("POST", "/runs", START, key=f"{go}-{number}")["run"]
        client.ask("GET", f"/runs/{begun}/wait")

    return start


def watches(client: Client) -> Callable[[int], None]:
    """A run at a gate is begun, its gate opened once its stream has begun, and watched to its end.

    The stream is of the other client; its first frames are from the log, the others are told.
    """

    def watch(go: int) -> None:
        with closing(Client(client.url)) as watcher:
            for number in range(REQUESTS):
                begun = client.ask("POST", "/runs", START_GATED, key=f"{go}-{number}")["run"]
                told = watcher.follow(begun)
                assert any(b"event: token.held" in one for one in told)
                client.ask("POST", f"/runs/{begun}/patch", OPEN_GATE)
                assert b"event: end" in list(told)[-1]

    return watch


def fewest(store: Path, way: Callable[[Client], Callable[[int], None]]) -> Counter[str]:
    """The calls of one go; the first one also loads what is loaded once."""

    async def counted() -> list[Counter[str]]:
        settings = Settings(store=str(store), serve_port=0, poll_seconds=SECONDS_APART)
        goes = []
        async with Server(settings) as server:
            client = await asyncio.to_thread(Client, server.url)
            do = await asyncio.to_thread(way, client)
            for go in range(GOES):
                with calls() as found:
                    await asyncio.to_thread(do, go)
                goes.append(found)
            client.close()
        return goes

    return calls_of_each(run(counted()))


@pytest.mark.parametrize(("way", "most"), [(looks, 159), (starts, 652), (watches, 1828)])
def test_a_request_takes_no_more_calls_than_it_did(
    way: Callable[[Client], Callable[[int], None]], most: int, tmp_path: Path
) -> None:
    found = fewest(tmp_path / "store.db", way)
    often = "".join(f"\n{count / REQUESTS:8.2f} {name}" for name, count in found.most_common(100))
    assert found.total() / REQUESTS <= most * MARGIN, f"what is called so often for each:{often}"
