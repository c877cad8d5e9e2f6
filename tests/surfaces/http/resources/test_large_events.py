"""Events of many megabytes: each follower is told them, and together they cost little memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse

from anabranch.operations.read.event_pages import Follower
from anabranch.surfaces.http.guard.unread_answers import UNREAD_MAX
from anabranch.surfaces.http.io import readers
from anabranch.surfaces.http.resources import events
from anabranch.surfaces.http.resources.events import STREAM_BYTES
from anabranch.surfaces.http.routes import API

from ..access import Door, serving
from ..support import gated, run

FOLLOWERS = 12
VALUES = {f"v{number}": "x" * 50_000 for number in range(18)}  # each too small for a payload


@asynccontextmanager
async def following(door: Door, name: str, token: str) -> AsyncIterator[ClientResponse]:
    url = f"{door.server.url}{API}/runs/{name}/events/stream"
    async with door.session.get(url, headers={"Authorization": f"Bearer {token}"}) as response:
        assert response.status == 200
        yield response


async def told(response: ClientResponse, kind: str) -> Any:
    """The data of the first event of this kind. A line may be longer than a reader takes."""
    rest = b""
    async for part in response.content.iter_any():
        rest += part
        *whole, rest = rest.split(b"\n\n")
        for frame in whole:
            fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line)
            if fields.get(b"event") == kind.encode():
                return json.loads(fields[b"data"])
    raise AssertionError("the stream has ended")


async def waiting(door: Door, token: str) -> str:
    name = (await door.ask("POST", "/runs", token, {"definition": gated()})).json["run"]
    await door.server.parts.engine.wait(name, standing=True)
    return str(name)


def test_followers_make_no_copy_each_of_what_became_durable_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They look at the log, a few at a time, and write it in pieces."""
    heard: list[int] = []
    hear = Follower.hear

    def count(self: Follower, news: Any) -> Any:
        heard.append(len(news.row))
        return hear(self, news)

    monkeypatch.setattr(Follower, "hear", count)
    reading: list[int] = []

    async def read_inline(*given: Any) -> Any:
        reading.append(1)
        most.append(len(reading))
        try:
            return await read(*given)
        finally:
            reading.pop()

    read, most = readers.read_inline, list[int]()

    async def go() -> None:
        async with serving(store=str(tmp_path / "a.db"), require_tokens="yes") as door:
            token = door.token("operate")
            name = await waiting(door, token)
            async with asyncio.TaskGroup() as group:
                streams = [following(door, name, token) for _ in range(FOLLOWERS)]
                responses = [await one.__aenter__() for one in streams]
                first = [group.create_task(told(one, "token.held")) for one in responses]
                await asyncio.wait(first)
                monkeypatch.setattr(events, "read_inline", read_inline)
                tasks = [group.create_task(told(one, "context.patched")) for one in responses]
                await door.ask("POST", f"/runs/{name}/patch", token, {"values": VALUES})
                seen = [await one for one in tasks]
            assert all(one == seen[0] for one in seen)
            page = await door.ask("GET", f"/runs/{name}/events?after={seen[0]['seq'] - 1}", token)
            assert page.json["items"][0] == seen[0]
            assert max(heard, default=0) <= STREAM_BYTES
            assert max(most) <= events.LARGE_AT_ONCE
            for stream in streams:
                await stream.__aexit__(None, None, None)

    run(go())


def test_who_does_not_read_large_events_is_told_no_more_of_them_on_other_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "AWAY_SECONDS", 0.01)

    async def go() -> None:
        async with serving(store=str(tmp_path / "a.db"), require_tokens="yes") as door:
            token, other = door.token("operate"), door.token("read", name="bob")
            writer = door.token("operate", name="cy")
            counted, whose = door.server.limiter.unread, token.split("_")[1]
            name = await waiting(door, token)
            async with (
                following(door, name, token) as mine,
                following(door, name, other) as theirs,
            ):
                assert await told(mine, "token.held")
                counted.count("elsewhere", whose, UNREAD_MAX + 1)
                await door.ask("POST", f"/runs/{name}/patch", writer, {"values": VALUES})
                assert await told(theirs, "context.patched")
                heard = await mine.content.readany()
                assert set(heard.split(b"\n\n")) == {b": beat", b""}, "it is alive, and waits"
                counted.forget("elsewhere")
                assert await told(mine, "context.patched")

    run(go())
