"""Logs over HTTP: pages, a stream that goes on where it broke off, and what workers hand in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.runtime import log_writer
from hangs import HANG_SECONDS

from .support import Client, playbook, run, serving, step

LINES = playbook(step("s", "python", code="for n in range(50): print('line', n)"), name="lines")


async def printed(client: Client, name: str) -> None:
    """All of it is in the store."""
    await client.ended(name)
    client.parts.engine.logs.flush()


async def frames(response: Any) -> AsyncIterator[tuple[str, int, Any]]:
    event, number = "", 0
    async for raw in response.content:
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name == "id":
            number = int(value)
        elif name == "event":
            event = value
        elif name == "data":
            yield event, number, json.loads(value)


def test_a_page_ends_with_a_whole_row_and_the_next_one_goes_on() -> None:
    async def scenario() -> None:
        async with serving() as client:
            loop = {"in": list(range(5)), "iterator": "n"}
            spec = {"loop_mode": "fanout", "fanout": {"shard_size": 1, "max_concurrent": 1}}
            each = step("each", "shell", command="echo item {{ iter.n }}", loop=loop, spec=spec)
            name = await client.start(playbook(each))
            await printed(client, name)
            found: list[tuple[int, str]] = []
            after: int | None = 0
            pages = 0
            while after is not None:
                page = (await client.get(f"/runs/{name}/logs?limit=1&after={after}")).json
                found += [(one["item"], one["text"]) for one in page["items"]]
                after, pages = page["next"], pages + 1
            assert sorted(found) == [(n, f"item {n}") for n in range(5)]
            assert pages >= 5
            newest = (await client.get(f"/runs/{name}/logs?newest=true&limit=1")).json
            assert [one["text"] for one in newest["items"]] == [found[-1][1]]
            assert newest["earlier"]

    run(scenario())


def test_lines_are_chosen_by_step_level_attempt_and_text() -> None:
    async def scenario() -> None:
        async with serving() as client:
            code = "import sys\nprint('Good')\nprint('bad', file=sys.stderr)"
            name = await client.start(playbook(step("a", "python", "b", code=code), step("b")))
            await printed(client, name)

            async def texts(query: str) -> list[str]:
                reply = await client.get(f"/runs/{name}/logs?{query}")
                assert reply.status == 200, reply.text
                return [one["text"] for one in reply.json["items"]]

            assert sorted(await texts("")) == ["Good", "bad"]
            assert await texts("level=warning") == ["bad"]
            assert await texts("search=gOO") == ["Good"]
            assert await texts("step=b") == []
            assert await texts("attempt=2") == []

    run(scenario())


def test_a_wrong_question_is_refused_with_its_reason() -> None:
    async def scenario() -> None:
        async with serving() as client:
            name = await client.start(LINES)
            await client.ended(name)
            for query, status in (
                ("level=loud", 400),
                ("limit=0", 400),
                ("limit=1000000", 400),
                ("attempt=0", 400),
                ("after=-1", 400),
                ("lvel=info", 400),
                ("step=nowhere", 404),
                (f"search={'x' * 1001}", 400),
            ):
                for path in ("logs", "logs/stream"):
                    if path == "logs/stream" and query.startswith("limit"):
                        continue
                    reply = await client.get(f"/runs/{name}/{path}?{query}")
                    assert reply.status == status, (path, query, reply.text)
            assert (await client.get("/runs/nobody/logs")).status == 404
            assert (await client.get("/runs/nobody/logs/stream")).status == 404

    run(scenario())


def test_a_stream_tells_lines_as_they_are_printed_and_ends_with_the_run(tmp_path: Path) -> None:
    door = tmp_path / "door"
    command = f"echo begun; while [ ! -e {door} ]; do sleep 0.02; done; echo ended"

    async def scenario() -> None:
        async with serving() as client:
            name = await client.start(playbook(step("s", "shell", command=command)))
            url = f"{client.url}/api/v1/runs/{name}/logs/stream"
            async with client.session.get(url) as response:
                assert response.content_type == "text/event-stream"
                heard = frames(response)
                event, number, data = await anext(heard)
                assert (event, [one["text"] for one in data["items"]]) == ("logs", ["begun"])
                door.touch()
                rest = [one async for one in heard]
            assert [one["text"] for one in rest[0][2]["items"]] == ["ended"]
            assert rest[-1][0] == "end"
            assert rest[-1][2]["reason"] == "finished"
            again = {"Last-Event-ID": str(number)}
            async with client.session.get(url, headers=again) as response:
                told = [one async for one in frames(response) if one[0] == "logs"]
            assert [one["text"] for _, _, data in told for one in data["items"]] == ["ended"]
            async with client.session.get(url, headers={"Last-Event-ID": "x"}) as response:
                assert response.status == 400

    run(scenario())


def test_lines_that_are_written_late_are_told_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "FLUSH_SECONDS", HANG_SECONDS)  # after the first line
    door = tmp_path / "door"
    command = f"echo begun; while [ ! -e {door} ]; do sleep 0.02; done; echo ended"

    async def scenario() -> list[str]:
        async with serving() as client:
            name = await client.start(playbook(step("s", "shell", command=command)))
            async with client.session.get(
                f"{client.url}/api/v1/runs/{name}/logs/stream"
            ) as response:
                told: list[str] = []
                async for event, _, data in frames(response):
                    told += [one["text"] for one in data["items"]] if event == "logs" else [event]
                    door.touch()
                return told

    assert run(scenario()) == ["begun", "ended", "end"]


def test_a_server_that_stops_lets_the_followers_go() -> None:
    async def scenario() -> list[str]:
        async with serving() as client:
            name = await client.start(playbook(step("s", "decision", ask="Go on?")))
            await client.stands(name)
            url = f"{client.url}/api/v1/runs/{name}/logs/stream"

            async def follow() -> list[str]:
                async with client.session.get(url) as response:
                    began.set()
                    return [event async for event, _, _ in frames(response)]

            began = asyncio.Event()
            following = asyncio.ensure_future(follow())
            await began.wait()
            await client._runner.shutdown()
            return await following

    assert run(scenario()) == ["end"]
