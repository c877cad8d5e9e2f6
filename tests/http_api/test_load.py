"""Fifty clients at once for a few seconds: nothing fails, nothing is lost, nothing is mixed up."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from .support import HELLO, Client, run, serving

CLIENTS = 50
SECONDS = 5.0


class Seen:
    """What the clients were told."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}  # run → the number it was begun with
        self.asked = 0
        self.wrong: list[str] = []


async def one_client(client: Client, seen: Seen, number: int, until: float) -> None:
    dice = random.Random(number)
    count = 0
    while time.monotonic() < until:
        count += 1
        await one_request(client, seen, dice, number * 100_000 + count)


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
            until = time.monotonic() + SECONDS
            work = (one_client(client, seen, number, until) for number in range(CLIENTS))
            await asyncio.gather(*work)
            assert seen.wrong == []
            assert seen.asked >= CLIENTS
            names: list[str] = []
            cursor: str | None = ""
            while cursor is not None:
                page = (await client.get(f"/runs?limit=500&cursor={cursor}")).json
                names += [item["run"] for item in page["items"]]
                cursor = page["next"]
            assert sorted(names) == sorted(seen.begun)
            for name in names:
                assert await client.ended(name) == "completed"

    run(go(), seconds=60)
