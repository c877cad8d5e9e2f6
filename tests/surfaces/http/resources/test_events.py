"""Events over HTTP: pages that lose nothing, streams that go on exactly where they broke off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import StoreError
from anabranch.store.outages import AWAY
from anabranch.surfaces.http.io.readers import read_inline
from anabranch.surfaces.http.io.request_body import Limits
from anabranch.surfaces.http.resources import events
from anabranch.surfaces.http.resources.events import STREAMS

from ...tables import wrong_answers
from ..support import ASKING, HELLO, Client, gated, looping, run, serving


class Stream:
    """Reads server-sent events as a browser would."""

    def __init__(self, response: Any) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[dict[str, str]]:
        fields: dict[str, str] = {}
        async for raw in self._response.content:
            line = raw.decode().rstrip("\n")
            if line.startswith(":"):
                yield {"event": "comment", "data": line}
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                yield fields
                fields = {}


@asynccontextmanager
async def following(client: Client, name: str, **more: Any) -> AsyncIterator[Stream]:
    url = f"{client.url}/api/v1/runs/{name}/events/stream"
    async with client.session.get(url, **more) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield Stream(response)


async def seqs(stream: Stream) -> list[int]:
    """The numbers of the events until the stream ends, which it says."""
    found: list[int] = []
    async for one in stream:
        if one.get("event") == "end":
            return found
        if "id" in one:
            found.append(int(one["id"]))
    raise AssertionError("the stream ended without a word")


async def logged(client: Client, name: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = (await client.get(f"/runs/{name}/events?limit=1000")).json[
        "items"
    ]
    return events


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_pages_of_events_together_are_the_log(limit: int, tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(tmp_path / "a.db") as client:
            name = await client.start(looping(30, max_in_flight=4))
            await client.ended(name)
            whole, seen = await logged(client, name), list[Any]()
            after: int | None = 0
            while after is not None:
                page = (await client.get(f"/runs/{name}/events?after={after}&limit={limit}")).json
                assert page["finished"]
                assert len(page["items"]) <= limit
                seen += page["items"]
                after = page["next"]
            assert seen == whole
            assert [one["seq"] for one in seen] == list(range(1, len(seen) + 1))

    run(go())


def test_a_page_shows_shards_the_same_wherever_it_begins() -> None:
    """What came before has to be known: it is read again where nobody remembers it."""

    async def go() -> None:
        async with serving() as client:
            name = await client.start(looping(30, max_in_flight=4))
            await client.ended(name)
            whole = await logged(client, name)
            for after in (5, 20, len(whole) - 1, len(whole), len(whole) + 5):
                page = (await client.get(f"/runs/{name}/events?after={after}&limit=1000")).json
                assert page["items"] == whole[after:]
                assert page["next"] is None

    run(go())


# -- streams ---------------------------------------------------------------------------------------


def test_a_stream_shows_the_log_and_then_what_happens_until_the_end() -> None:
    async def go() -> None:
        async with serving() as client:
            name = await client.start(ASKING)
            await client.stands(name)
            async with following(client, name) as stream:
                reading = asyncio.create_task(seqs(stream))
                await client.post(f"/runs/{name}/gates/ask/decide", {"verdict": "fulfil"})
                seen = await reading
            whole = await logged(client, name)
            assert seen == [one["seq"] for one in whole]
            assert whole[-1]["kind"] == "run.finished"

    run(go())


def test_the_data_of_a_stream_is_what_a_page_shows() -> None:
    async def go() -> None:
        async with serving() as client:
            name = await client.start(HELLO)
            await client.ended(name)
            async with following(client, name) as stream:
                shown = [json.loads(one["data"]) async for one in stream if "id" in one]
            assert shown == await logged(client, name)

    run(go())


def test_what_a_stream_tells_as_it_happens_is_what_a_page_shows_later(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(tmp_path / "a.db") as client:
            name = await client.start(gated())
            await client.stands(name)
            async with following(client, name) as stream:
                told: list[Any] = []
                async for one in stream:
                    if "id" in one:
                        told.append(json.loads(one["data"]))
                    if one.get("event") == "token.held":
                        await client.post(
                            f"/runs/{name}/patch", {"values": {"a": [1, {"b": None}]}}
                        )
                    if one.get("event") == "context.patched" and len(told) < 8:
                        await client.post(f"/runs/{name}/pause", {"reason": "wait"})
                        await client.post(f"/runs/{name}/resume", {})
                        await client.post(f"/runs/{name}/patch", {"values": {"go": True}})
            assert told == await logged(client, name)
            assert told[-1]["kind"] == "run.finished"

    run(go())


def test_a_stream_goes_on_exactly_behind_the_last_event_seen(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(tmp_path / "a.db") as client:
            name = await client.start(looping(20, max_in_flight=4))
            await client.ended(name)
            count = len(await logged(client, name))
            for after in range(count + 1):
                headers = {"Last-Event-ID": str(after)}
                async with following(client, name, headers=headers, params={"after": "1"}) as one:
                    assert await seqs(one) == list(range(after + 1, count + 1))
            async with following(client, name, params={"after": str(count - 2)}) as one:
                assert await seqs(one) == [count - 1, count]

    run(go())


def test_a_follower_who_is_cut_off_again_and_again_sees_every_event_once(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(tmp_path / "a.db") as client:
            name = await client.start(looping(60, max_in_flight=3))
            seen: list[int] = []
            ended = False
            while not ended:
                headers = {"Last-Event-ID": str(seen[-1])} if seen else {}
                async with following(client, name, headers=headers) as stream:
                    took = 0
                    async for one in stream:
                        ended = one.get("event") == "end"
                        if "id" in one:
                            seen.append(int(one["id"]))
                            took += 1
                        if ended or took == 11:
                            break
            assert seen == list(range(1, len(await logged(client, name)) + 1))

    run(go())


def test_many_followers_of_a_running_run_see_the_same(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(tmp_path / "a.db") as client:
            name = await client.start(gated())

            async def follow() -> list[int]:
                async with following(client, name) as stream:
                    return await seqs(stream)

            followers = [asyncio.create_task(follow()) for _ in range(40)]
            while len(client.app[STREAMS]) < 40:
                await asyncio.sleep(0.005)
            for number in range(20):
                await client.post(f"/runs/{name}/patch", {"values": {"n": number}})
            await client.post(f"/runs/{name}/patch", {"values": {"go": True}})
            seen = await asyncio.gather(*followers)
            expected = [one["seq"] for one in await logged(client, name)]
            assert all(one == expected for one in seen)
            while len(client.app[STREAMS]):
                await asyncio.sleep(0.005)

    run(go())


def test_a_stream_that_has_nothing_to_say_shows_that_it_lives() -> None:
    async def go() -> None:
        async with serving(limits=Limits(stream_beat_seconds=0.02)) as client:
            name = await client.start(gated())
            await client.stands(name)
            async with following(client, name) as stream:
                beats = 0
                async for one in stream:
                    beats += one["event"] == "comment" if "event" in one else 0
                    if beats == 3:
                        break

    run(go())


def test_a_stream_has_one_timer_however_many_events_it_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds, timers = 50_000.0, 0

    async def go() -> None:
        limits = Limits(stream_beat_seconds=seconds, stream_write_seconds=seconds)
        async with serving(limits=limits) as client:
            name, loop = await client.start(gated()), asyncio.get_running_loop()
            call_at = loop.call_at

            def counted(when: float, *more: Any, **named: Any) -> asyncio.TimerHandle:
                nonlocal timers
                timers += when - loop.time() > seconds / 2
                return call_at(when, *more, **named)

            monkeypatch.setattr(loop, "call_at", counted)
            told = 0
            async with following(client, name) as stream:
                async for one in stream:
                    if one.get("event") in ("token.held", "context.patched"):
                        told += 1
                        values = {"n": told, "go": told == 8}
                        await client.post(f"/runs/{name}/patch", {"values": values})
                    if one.get("event") == "run.finished":
                        break
            assert told >= 8

    run(go())
    assert timers == 1


def test_a_server_that_stops_tells_its_followers() -> None:
    async def go() -> None:
        async with serving() as client:
            name = await client.start(gated())
            await client.stands(name)
            async with following(client, name) as stream:
                words = []
                async for one in stream:
                    words.append(one)
                    if one.get("event") == "token.held":
                        client.app[STREAMS].close()
            last = words[-1]
            assert last["event"] == "end"
            assert json.loads(last["data"])["reason"] == "server_stops"

    run(go())


# -- followers that misbehave ----------------------------------------------------------------------


def test_a_follower_that_never_reads_is_dropped_and_costs_little_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        limits = Limits(stream_write_seconds=0.3, stream_beat_seconds=0.05)
        async with serving(tmp_path / "a.db", limits=limits) as client:
            name = await client.start(gated())
            await client.stands(name)
            text = "x" * 60_000
            for number in range(200):  # twelve megabytes of events
                await client.post(f"/runs/{name}/patch", {"values": {"t": f"{number}{text}"}})
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port, limit=1024)
            path = f"/api/v1/runs/{name}/events/stream"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await writer.drain()
            while not len(client.app[STREAMS]):
                await asyncio.sleep(0.01)
            most = 0
            while len(client.app[STREAMS]):  # the test's own limit makes a hang a failure
                most = max(most, client.unsent())
                await asyncio.sleep(0.01)
            assert 0 < most < 1024 * 1024
            assert (await client.get(f"/runs/{name}")).status == 200
            writer.close()
            del reader

    run(go())
    assert "takes nothing: dropped" in caplog.text


def test_more_followers_than_the_server_takes_are_told_so() -> None:
    async def go() -> None:
        async with serving(limits=Limits(streams=1)) as client:
            name = await client.start(gated())
            async with following(client, name) as stream:
                async for _ in stream:
                    break
                second = await client.get(f"/runs/{name}/events/stream")
                assert (second.status, second.code) == (503, "too_many_streams")

    run(go())


def test_a_last_event_id_that_is_no_number_is_refused() -> None:
    async def go() -> None:
        async with serving() as client:

            async def check(given: str) -> None:
                name = await client.start(HELLO)
                await client.ended(name)
                path = f"/runs/{name}/events/stream"
                reply = await client.get(path, headers={"Last-Event-ID": given})
                assert (reply.status, reply.code) == (400, "parameter")

            assert await wrong_answers(["x", "-1", "1.5", "١", "1" * 30], check) == []

    run(go())


def test_a_follower_ahead_of_the_log_is_refused() -> None:
    """It has seen another run, or another store: going on silently would lose events."""

    async def go() -> None:
        async with serving() as client:
            name = await client.start(HELLO)
            await client.ended(name)
            reply = await client.get(f"/runs/{name}/events/stream?after=9000")
            assert (reply.status, reply.code) == (409, "ahead_of_log")

    run(go())


# -- what tasks did --------------------------------------------------------------------------------


def test_tasks_are_shown_where_they_are_asked_for_and_pages_lose_none_of_them() -> None:
    async def go() -> None:
        async with serving() as client:
            name = await client.start(HELLO)
            await client.ended(name)
            plain = await logged(client, name)
            found: list[dict[str, Any]] = []
            after: int | None = 0
            while after is not None:
                path = f"/runs/{name}/events?limit=1&tasks=true&after={after}"
                page = (await client.get(path)).json
                found, after = found + page["items"], page["next"]
            tasks = [one for one in found if one["kind"].startswith("task.")]
            assert [one["kind"] for one in tasks] == ["task.started", "task.processed"]
            assert [one for one in found if one not in tasks] == plain

    run(go())


def test_a_stream_with_tasks_has_ids_for_what_is_recorded_only() -> None:
    """Whoever is cut off between a task and its report hears of both once more."""

    async def go() -> None:
        async with serving() as client:
            name = await client.start(HELLO)
            await client.ended(name)
            told = []
            async with following(client, name, params={"tasks": "true"}) as stream:
                async for one in stream:
                    told.append((one.get("event", ""), "id" in one))
                    if one.get("event") == "end":
                        break
            kinds = [kind for kind, _ in told]
            at = kinds.index("job.reported")
            assert told[at - 2 : at + 1] == [
                ("task.started", False),
                ("task.processed", False),
                ("job.reported", True),
            ]

    run(go())


def failing_reads(monkeypatch: pytest.MonkeyPatch, error: Exception, times: int) -> list[int]:
    """Once a stream has begun, its next reads of the log fail half-way; counts them."""
    failed = [0]

    async def read(request: Any, work: Any) -> Any:
        if getattr(work, "__name__", "") == "_next" and failed[0] < times:
            failed[0] += 1
            await read_inline(request, work)
            raise error
        return await read_inline(request, work)

    monkeypatch.setattr(events, "read_inline", read)
    monkeypatch.setattr(events, "AWAY_SECONDS", 0.01)
    return failed


def test_a_stream_goes_on_when_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = failing_reads(monkeypatch, StoreError("hung up", code=AWAY), 5)

    async def go() -> None:
        async with serving() as client:
            name = await client.start(gated())
            await client.stands(name)
            async with following(client, name) as stream:
                reading = asyncio.create_task(seqs(stream))
                while failed != [5]:
                    await asyncio.sleep(0.01)
                await client.post(f"/runs/{name}/patch", {"values": {"go": True}})
                found = await reading
            assert found == [one["seq"] for one in await logged(client, name)]

    run(go())


def test_a_stream_ends_without_a_second_answer_where_the_log_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing_reads(monkeypatch, StoreError("the rows are damaged"), 1)

    async def go() -> None:
        async with serving() as client:
            name = await client.start(gated())
            url = f"{client.url}/api/v1/runs/{name}/events/stream"
            async with client.session.get(url) as response:
                assert response.status == 200
                assert await response.text() == "retry: 2000\n\n"

    run(go())
