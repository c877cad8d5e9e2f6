"""Many clients at once: nothing fails, nothing is lost, nothing is mixed up."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from bench.crowd import Crowd
from bench.station import Station

from anabranch.operations.definitions.prepare import prepare
from seeds import seeds

from .support import HELLO, Client, run, serving

CLIENTS = 50
REQUESTS = len(seeds(100, least=8))  # of each client
VISITS = len(seeds(500))  # of a crowd of a hundred


class Seen:
    """What the clients were told."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}  # run → the number it was begun with
        self.asked = 0
        self.wrong: list[str] = []


async def one_client(client: Client, seen: Seen, number: int) -> None:
    dice = random.Random(number)
    for turn in range(REQUESTS):
        await one_request(client, seen, dice, number * 100_000 + turn)


async def one_request(client: Client, seen: Seen, dice: random.Random, number: int) -> None:
    seen.asked += 1
    if not seen.begun or dice.random() < 0.2:
        body = {"definition": HELLO, "input": {"n": number}, "labels": {"n": str(number)}}
        headers = {"Idempotency-Key": str(number)} if dice.random() < 0.5 else {}
        reply = await client.post("/runs", body, headers=headers)
        if reply.status == 201:
            seen.begun[reply.json["run"]] = number
    elif dice.random() < 0.2:
        reply = await client.get(f"/runs?limit={dice.randint(1, 50)}")
    else:
        name = dice.choice(list(seen.begun))
        reply = await client.get(f"/runs/{name}")
        if reply.status == 200 and reply.json["input"] != {"n": seen.begun[name]}:
            seen.wrong.append(f"{name} is not the run that was asked for")
    if reply.status >= 400:
        seen.wrong.append(f"{reply.status} {reply.text[:200]}")


@pytest.mark.slow
def test_fifty_clients_at_once_are_all_served(tmp_path: Path) -> None:
    async def go() -> None:
        seen = Seen()
        async with serving(tmp_path / "a.db") as client:
            work = (one_client(client, seen, number) for number in range(CLIENTS))
            await asyncio.gather(*work)
            assert seen.wrong == []
            assert seen.asked == CLIENTS * REQUESTS
            names: list[str] = []
            cursor: str | None = ""
            while cursor is not None:
                page = (await client.get(f"/runs?limit=500&cursor={cursor}")).json
                names += [item["run"] for item in page["items"]]
                cursor = page["next"]
            assert sorted(names) == sorted(seen.begun)
            for name in names:
                assert await client.ended(name) == "completed"

    run(go())


@pytest.mark.slow
def test_a_crowd_that_starts_and_watches_runs_is_served_without_an_error(tmp_path: Path) -> None:
    """Against a real server and real workers; `python -m bench server` measures the same."""
    with Station(tmp_path) as station:
        station.serve()
        station.wait_ready()
        for _ in range(2):
            station.work()
        crowd = Crowd(station.url, timer_ms=400, poll_seconds=0.1)
        visits = count()
        run(crowd.go(100, lambda: next(visits) < VISITS))
        notes = crowd.notes
        assert notes.errors == []
        assert notes.ended == len(notes.visits) == VISITS
        for visit in notes.visits:
            assert (visit.status, visit.result) == ("completed", visit.expected), visit
            assert visit.seen == list(range(1, len(visit.seen) + 1)), visit
            assert bool(visit.seen) == (visit.way == "stream")
        assert {visit.way for visit in notes.visits} == {"stream", "poll", "wait"}
        assert any(visit.pooled for visit in notes.visits)


def test_a_definition_that_many_begin_at_once_is_compiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[Any] = []

    def counting(*asked: Any, **more: Any) -> Any:
        compiled.append(asked)
        return prepare(*asked, **more)

    monkeypatch.setattr("anabranch.surfaces.http.resources.definitions.prepare", counting)

    async def go() -> None:
        async with serving() as client:
            begun = [client.post("/runs", {"definition": HELLO}) for _ in range(40)]
            replies = await asyncio.gather(*begun)
            assert {reply.status for reply in replies} == {201}
            assert len(compiled) == 1
            wrong = [client.post("/runs", {"definition": "nothing"}) for _ in range(5)]
            assert {reply.status for reply in await asyncio.gather(*wrong)} == {422}

    run(go())
