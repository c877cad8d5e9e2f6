"""Whoever follows a run sees each event once and in order, however often the server is killed."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import aiohttp
import pytest

from seeds import seeds

from .collector import collector, process, run

STEPS = 24
KILLS = 3


def chain(url: str) -> str:
    steps = [
        f"  - step: s{number}\n    tool: {{kind: http, url: '{url}/slow', method: GET}}\n"
        f"    next: {{arcs: [{{step: s{number + 1}}}]}}"
        for number in range(STEPS)
    ]
    head = ["apiVersion: noetl.io/v2", "kind: Playbook", "metadata: {name: chain}", "workflow:"]
    last = f"  - step: s{STEPS}\n    tool: {{kind: http, url: '{url}/held', method: GET}}"
    return "\n".join([*head, *steps, last])


async def follow(url: str, run_id: str, seen: list[tuple[int, str]]) -> bool:
    """Behind the last event seen, until the stream breaks off; whether the run has finished."""
    headers = {"Last-Event-ID": str(seen[-1][0])} if seen else {}
    no_limit = aiohttp.ClientTimeout(total=None)
    try:
        async with (
            aiohttp.ClientSession(timeout=no_limit) as session,
            session.get(f"{url}/api/v1/runs/{run_id}/events/stream", headers=headers) as answer,
        ):
            number = 0
            async for raw in answer.content:
                line = raw.decode().rstrip("\n")
                if line.startswith("id: "):
                    number = int(line[4:])
                elif line.startswith("data: ") and number:
                    seen.append((number, json.loads(line[6:])["kind"]))
                    number = 0
    except aiohttp.ClientError:
        pass
    return bool(seen) and seen[-1][1] == "run.finished"


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, least=1))
def test_a_follower_goes_on_behind_its_last_event_at_the_next_server(
    seed: int, tmp_path: Path
) -> None:
    async def work() -> None:
        dice, store = random.Random(seed), tmp_path / "store.db"
        seen: list[tuple[int, str]] = []
        async with collector() as service:
            service.delay = 0.03
            begun, finished = "", False
            for kills in range(KILLS + 1):  # the run cannot end before the last server
                async with process(store, {}) as server:
                    begun = begun or await server.start(chain(service.url))
                    following = asyncio.create_task(follow(server.url, begun, seen))
                    if kills < KILLS:
                        wanted = len(seen) + dice.randrange(5, 30)
                        while len(seen) < wanted:
                            await asyncio.sleep(0.01)
                        server.kill()
                        await following
                        continue
                    service.held.set()
                    finished = await following
                    page = await server.get(f"/runs/{begun}/events?limit=500")
        assert finished
        log = [(event["seq"], event["kind"]) for event in page["items"]]
        assert seen == log
        assert [number for number, _ in seen] == list(range(1, len(seen) + 1))

    run(work())
