"""M1 and M4: the stories with real processes. A run from its submission to its receipt, and many
runs of five orders at once.

The nodes are those of `anabranch story`: each with Arca and, where it sells, with Dator and a role,
all on this machine. The payer accepts what has come at once.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from anabranch.surfaces.stories.market import StoryMarket
from anabranch.surfaces.stories.narration import Narrator
from anabranch.surfaces.stories.processes import part
from anabranch.surfaces.stories.story import Story
from anabranch.surfaces.stories.story006 import Story006
from anabranch.surfaces.stories.story009 import PARAMETERS, STEPS, Story009
from anabranch.surfaces.stories.trail import CLOSED
from bench import probe
from bench.rows import Row

WARM, TURNS = 3, 15  # runs of M1
RUNS = 200  # of M4, at once
LOOK_SECONDS = 0.003
DEPTH = 100_000  # of every queue: nobody waits for a place


@asynccontextmanager
async def nodes_of(story: Story, folder: Path, runs: int) -> AsyncIterator[StoryMarket]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        market = StoryMarket(folder, session)
        market.create(story.plans())
        try:
            await market.start(held=False)
            quiet = Narrator(quiet=True)
            await story.prepare(market, quiet)
            await market.introduce(story.capability)
            await market.top_up(story.budget(runs), "bench")
            await story.begin(market, quiet)
            yield market
        finally:
            await market.stop()


async def m1(folder: Path) -> list[Row]:
    """One run of story 006 after the other."""
    story = Story006()
    async with nodes_of(story, folder / "m1", WARM + TURNS) as market:
        taken = [await _paid(story, market, f"run:m1n{number}") for number in range(WARM + TURNS)]
    commit = probe.commit_seconds(folder)
    seconds = statistics.median(taken[WARM:])
    words = f"a raw commit: {commit * 1000:.2f} ms; 4 nodes"
    return [Row("M1 submit to receipt", seconds, "s", words, None, "≤ 1 s", seconds <= 1)]


async def _paid(story: Story006, market: StoryMarket, run: str) -> float:
    begin = time.perf_counter()
    await story.submit(market, run)
    while True:
        found = await market.buyer.ask("GET", "/v1/executions", query={"run_id": run})
        for one in found["items"]:
            if one["state"] == "awaiting_acceptance":
                path = f"/v1/executions/{part(one['execution_id'])}/accept"
                done = await market.buyer.ask("POST", path, {})
                seconds = time.perf_counter() - begin
                if not done["receipt_id"]:
                    raise RuntimeError(f"there is no receipt: {done}")
                return seconds
        await asyncio.sleep(LOOK_SECONDS)


async def m4(folder: Path) -> list[Row]:
    """Many runs of story 009 at once; until the last one is closed."""
    story = Story009(depth=DEPTH)
    async with nodes_of(story, folder / "m4", RUNS) as market:
        await _posts(market, ["run:m4warm"])
        begin = time.perf_counter()
        names = [f"run:m4n{number}" for number in range(RUNS)]
        await _posts(market, names)
        seconds = time.perf_counter() - begin
    orders = RUNS * len(STEPS)
    commit = probe.commit_seconds(folder)
    words = f"{1 / commit:,.0f} raw commits/s; {RUNS} runs, 3 nodes"
    rate = orders / seconds
    return [Row("M4 orders of runs at once", rate, "orders/s", words, rate * commit, "", None)]


async def _posts(market: StoryMarket, names: list[str]) -> None:
    """Start a run for each, and wait for all of them."""
    template = Story009().template()["template_id"]

    async def start(name: str) -> None:
        body = {"template_id": template, "parameters": PARAMETERS, "run_id": name}
        await market.buyer.ask("POST", "/v1/enact/arca/runs", body)

    await asyncio.gather(*map(start, names))
    left = set(names)
    while left:
        open_runs = await market.buyer.items("/v1/module/workflow/runs", status="active")
        left &= {one["run_id"] for one in open_runs}
        await asyncio.sleep(0.1)
    for one in await market.buyer.items("/v1/module/workflow/runs"):
        if one["run_id"] in names and one["status"] != "completed":
            raise RuntimeError(f"{one['run_id']} is {one['status']}, one of {CLOSED}")
