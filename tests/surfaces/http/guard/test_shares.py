"""One caller with many streams, waits or checks keeps nobody else out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from aiohttp import ClientError, ClientResponse, ClientSession, TCPConnector

from anabranch.operations.definitions.prepare import check
from anabranch.surfaces.http.guard.auth import COOKIE
from anabranch.surfaces.http.guard.connection_limits import ConnectionLimiter
from anabranch.surfaces.http.io.request_body import Limits
from anabranch.surfaces.http.resources import definitions
from hangs import HANG_SECONDS

from ..access import DEFINITION, START, Door, serving
from ..support import run


class Crowd:
    """Somebody with many connections, and the answers that came."""

    def __init__(self, door: Door, session: ClientSession, **headers: str) -> None:
        self.door, self.session, self.headers = door, session, headers
        self.answers: list[ClientResponse] = []
        self.cut = 0
        self._tasks: list[asyncio.Task[None]] = []

    def asks(self, path: str, times: int) -> None:
        for _ in range(times):
            self._tasks.append(asyncio.create_task(self._ask(path)))

    async def _ask(self, path: str) -> None:
        url = f"{self.door.server.url}/api/v1{path}"
        try:
            async with self.session.get(url, headers=self.headers) as response:
                self.answers.append(response)
                await response.read()
        except ClientError:
            self.cut += 1

    def with_status(self, status: int) -> list[ClientResponse]:
        return [one for one in self.answers if one.status == status]

    def has_answers(self, count: int) -> bool:
        return len(self.with_status(200)) == count

    async def go_home(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def crowd(door: Door, token: str = "", **headers: str) -> AsyncIterator[Crowd]:
    if token:
        headers["Authorization"] = f"Bearer {token}"
    async with ClientSession(connector=TCPConnector(limit=0)) as session:
        many = Crowd(door, session, **headers)
        try:
            yield many
        finally:
            await many.go_home()


async def until(fits: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not fits():
            await asyncio.sleep(0.01)


async def waiting_run(door: Door, token: str = "") -> str:
    return str((await door.ask("POST", "/runs", token, START)).json["run"])


async def one_by_one(many: Crowd, path: str, times: int) -> None:
    for n in range(1, times + 1):
        many.asks(path, 1)
        await until(partial(many.has_answers, n))


def test_one_read_token_with_many_streams_and_waits_keeps_nobody_out() -> None:
    async def go() -> None:
        few: Any = {"streams_per_token_max": 10, "waits_per_token_max": 10}
        few["limits"] = Limits(stream_beat_seconds=0.5)  # with it ends what nobody follows
        async with serving(require_tokens="yes", serve_connections_max=60, **few) as door:
            hers, his = door.token("operate", name="her"), door.token("read", name="his")
            name = await waiting_run(door, hers)
            async with crowd(door, his) as many:
                many.asks(f"/runs/{name}/events/stream", 40)
                await until(lambda: len(many.answers) == 40)
                many.asks(f"/runs/{name}/wait?seconds=60", 40)
                await until(lambda: len(many.with_status(429)) == 60)
                assert len(many.with_status(200)) == 10
                for refused in many.with_status(429):
                    assert int(refused.headers["Retry-After"]) > 0
                told = await door.ask("GET", f"/runs/{name}/wait?seconds=60", his)
                assert (told.status, told.code) == (429, "too_many_at_once")
                assert "waits_per_token_max" in told.json["detail"]
                told = await door.ask("GET", f"/runs/{name}/events/stream", his)
                assert "streams_per_token_max" in told.json["detail"]
                stream = await door.ask("GET", f"/runs/{name}/events/stream", hers)
                assert stream.status == 200
                assert (await door.ask("GET", f"/runs/{name}/wait?seconds=0", hers)).status == 200
                assert (await door.ask("GET", "/runs", his)).status == 200
                assert many.cut == 0, "nobody was reset"
            shares = door.server.shares
            await until(lambda: not len(shares))  # who has gone has given them back
            assert (await door.ask("GET", f"/runs/{name}/wait?seconds=0", his)).status == 200

    run(go())


def test_the_sessions_of_browsers_count_for_their_token() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes", streams_per_token_max=2) as door:
            token = door.token("operate")
            name = await waiting_run(door, token)
            text, _ = door.server.keeper.sessions.begin(token.split("_")[1])
            async with crowd(door, Cookie=f"{COOKIE}={text}") as many:
                many.asks(f"/runs/{name}/events/stream", 2)
                await until(lambda: len(many.with_status(200)) == 2)
                told = await door.ask("GET", f"/runs/{name}/events/stream", token)
                assert told.status == 429

    run(go())


def test_without_tokens_streams_and_waits_leave_room_for_short_requests() -> None:
    async def go() -> None:
        async with serving(serve_connections_max=20) as door:
            name = await waiting_run(door)
            async with crowd(door) as many:
                await one_by_one(many, f"/runs/{name}/events/stream", 16)
                told = await door.ask("GET", f"/runs/{name}/wait?seconds=60")
                assert (told.status, told.code) == (503, "too_many_streams")
                assert "serve_connections_max" in told.json["detail"]
                for _ in range(20):
                    assert (await door.ask("GET", "/runs")).status == 200
                assert many.cut == 0

    run(go())


def test_whoever_has_most_gives_up_the_oldest_for_somebody_with_few() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes", serve_connections_max=20) as door:
            hers, his = door.token("operate", name="her"), door.token("read", name="his")
            name = await waiting_run(door, hers)
            async with crowd(door, his) as many, crowd(door, hers) as few:
                await one_by_one(many, f"/runs/{name}/events/stream", 16)
                few.asks(f"/runs/{name}/wait?seconds=60", 3)
                await until(lambda: many.cut == 3)
                assert (few.answers, few.cut) == ([], 0), "they wait"

    run(go())


def test_claims_that_wait_make_room_for_others_too() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes", serve_connections_max=20) as door:
            hers, works = door.token("operate", name="her"), door.token("work", name="w")
            name = await waiting_run(door, hers)
            claim = {"worker": "w1", "wait_seconds": 60}
            held = [
                asyncio.create_task(door.ask("POST", "/pools/gpu/claim", works, claim))
                for _ in range(16)
            ]
            await until(lambda: len(door.server.shares) == 16)
            async with crowd(door, hers) as few:
                few.asks(f"/runs/{name}/events/stream", 1)
                await until(lambda: few.has_answers(1))
                await until(lambda: any(one.done() for one in held))
            assert sum(one.done() for one in held) == 1
            for one in held:
                one.cancel()
            await asyncio.gather(*held, return_exceptions=True)

    run(go())


def test_a_new_connection_takes_the_place_of_one_that_only_waits() -> None:
    class Transport:
        def __init__(self) -> None:
            self.aborted = False

        def get_write_buffer_size(self) -> int:
            return 0

        def abort(self) -> None:
            self.aborted = True

    async def go() -> None:
        limiter: Any = ConnectionLimiter(most=2)
        first, second = Transport(), Transport()
        for one in (first, second):
            assert limiter.came(one)
            limiter.begin(one)
        limiter.spare = lambda: first
        assert limiter.came(Transport())
        assert len(limiter) == 2
        limiter.spare = lambda: None
        limiter.close()

    run(go())


def test_checks_of_one_token_wait_in_line_and_let_others_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once, most, gate, lock = 0, 0, threading.Event(), threading.Lock()
    really = check

    def slow(source: Any, *rest: Any, **more: Any) -> Any:
        nonlocal at_once, most
        if b"slow" not in str(source).encode():
            return really(source, *rest, **more)
        with lock:
            at_once += 1
            most = max(most, at_once)
        gate.wait(HANG_SECONDS)
        with lock:
            at_once -= 1
        return really(source, *rest, **more)

    monkeypatch.setattr(definitions, "check", slow)

    async def go() -> None:
        async with serving(require_tokens="yes", checks_per_token_max=1) as door:
            hers, his = door.token("read", name="her"), door.token("read", name="his")
            body = {"definition": DEFINITION.replace("name: gate", "name: slow")}
            asked = [
                asyncio.create_task(door.ask("POST", "/definitions/check", his, body))
                for _ in range(13)
            ]
            try:
                await until(lambda: sum(one.done() for one in asked) == 2)
                plain = await door.ask(
                    "POST", "/definitions/check", hers, {"definition": DEFINITION}
                )
                assert plain.json["ok"]
            finally:
                gate.set()
            answers = [await one for one in asked]
            assert sorted(one.status for one in answers) == [200] * 11 + [429] * 2
            told = next(one for one in answers if one.status == 429)
            assert "checks_per_token_max" in told.json["detail"]
            assert most == 1

    run(go())


GIVEN = {"definition": DEFINITION}
TEMPLATE = {"template_id": "t.v1", "parameters": {}, "plan": {"steps": []}}
COMPILING: dict[str, tuple[str, Any]] = {
    "check": ("/definitions/check", GIVEN),
    "format": ("/definitions/format", GIVEN),
    "draw": ("/definitions/graph", GIVEN),
    "keep": ("/definitions", GIVEN),
    "start": ("/runs", {"definition": f"{DEFINITION}# of its own\n"}),
    "start by path": ("/runs", {"path": "nowhere"}),
    "start a template": ("/runs", {"template": "t.v1"}),
    "register": ("/catalog", {"definitions": [{"definition": DEFINITION, "path": "p"}]}),
    "put a template": ("/templates", {"template": TEMPLATE}),
    "materialise": ("/templates/t.v1/definition", {}),
    "test a trigger": ("/triggers/t/test", {}),
    "gas": ("/sessions/gas", {"rule": "{}"}),
}


def test_whatever_compiles_for_a_token_takes_its_share() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes", checks_per_token_max=1) as door:
            token = door.token("admin")
            async with door.server.shares.turn(token.split("_")[1]):
                asked = {
                    name: asyncio.create_task(door.ask("POST", path, token, body))
                    for name, (path, body) in COMPILING.items()
                }
                await asyncio.wait(asked.values(), timeout=1.0)
                assert [name for name, one in asked.items() if one.done()] == []
                assert door.server.shares._counts.total() == 1 + len(asked)
            answers = {name: (await one).status for name, one in asked.items()}
            assert {name for name, status in answers.items() if status >= 500} == set()
            assert not door.server.shares._counts

    run(go())


def test_starts_wait_in_any_line_and_are_not_refused() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes", checks_per_token_max=1) as door:
            token = door.token("admin")
            async with door.server.shares.turn(token.split("_")[1]):
                starts = [
                    asyncio.create_task(
                        door.ask("POST", "/runs", token, {"definition": f"{DEFINITION}# {n}"})
                    )
                    for n in range(13)
                ]
                await until(lambda: door.server.shares._counts.total() == 14)
                assert (await door.ask("POST", "/definitions/graph", token, GIVEN)).status == 429
            assert {(await one).status for one in starts} == {201}

    run(go())


def test_health_and_hooks_have_threads_that_no_compilation_takes() -> None:
    gate = threading.Event()

    async def go() -> None:
        async with serving() as door:
            shares = door.server.shares
            held = [shares.threads.submit(gate.wait, HANG_SECONDS) for _ in range(100)]
            loop = asyncio.get_running_loop()
            try:
                await asyncio.to_thread(int)  # which logs, hooks and others use
                others = [loop.run_in_executor(None, gate.wait, HANG_SECONDS) for _ in range(64)]
                assert (await door.ask("GET", "/health")).status == 200
            finally:
                gate.set()
            await asyncio.gather(*others, *map(asyncio.wrap_future, held))

    run(go())
