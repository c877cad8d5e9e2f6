"""A story from its first process to its verdict.

make and start the nodes → introduce them → for each run: submit, watch, accept, maybe kill
→ the laws → stop → the law of the stores → maybe start the nodes again, to be looked at
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from anabranch.surfaces.stories.kept import keep_running
from anabranch.surfaces.stories.kills import Killer, KillPoint, points_of, require_known
from anabranch.surfaces.stories.laws import Law, check_stores, law, laws_of
from anabranch.surfaces.stories.market import StoryMarket
from anabranch.surfaces.stories.narration import Narrator
from anabranch.surfaces.stories.processes import LOOK_SECONDS, NodeAway, NodeRefused, StoryFailed
from anabranch.surfaces.stories.story import Story
from anabranch.surfaces.stories.trail import Trail

RUN_SECONDS = 300.0  # far more than a run takes, also where processes are killed
QUIET_LOOKS = 2  # after the end: what comes late is seen as well


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    story: str
    variant: str
    runs: list[dict[str, Any]]
    kills: list[str]
    missed: list[str]  # places to kill that no run came to
    laws: list[Law]
    nodes: list[dict[str, Any]]
    told: list[dict[str, Any]]
    seconds: float
    kept: bool

    @property
    def ok(self) -> bool:
        return all(one.holds for one in self.laws)


async def play(
    story: Story,
    folder: Path,
    narrator: Narrator,
    *,
    kill: str = "",
    seed: int = 0,
    keep: bool = False,
) -> Verdict:
    """Raises `StoryFailed` where it cannot be played; processes end with it in every case."""
    import aiohttp

    began = time.monotonic()
    connector = aiohttp.TCPConnector(limit=0, force_close=True)  # a node that dies keeps no link
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
        market = StoryMarket(folder, session)
        performance = _Performance(story, market, narrator)
        try:
            laws = await performance.run(kill, seed)
        finally:
            await market.stop()
        laws += [*performance.story_laws(), check_stores(market)]
        narrator.verdict(laws)
        nodes = await keep_running(market, narrator) if keep else performance.nodes()
    return Verdict(
        story=story.number,
        variant=story.variant,
        runs=performance.ends(),
        kills=[point.text for point in performance.killed],
        missed=[point.text for point in performance.missed],
        laws=laws,
        nodes=nodes,
        told=narrator.facts(),
        seconds=round(time.monotonic() - began, 3),
        kept=keep,
    )


class _Performance:
    def __init__(self, story: Story, market: StoryMarket, narrator: Narrator) -> None:
        self._story = story
        self._market = market
        self._narrator = narrator
        self._trails: list[Trail] = []
        self._wrong: list[str] = []
        self.killed: list[KillPoint] = []
        self.missed: list[KillPoint] = []

    async def run(self, kill: str, seed: int) -> list[Law]:
        story, market, narrator = self._story, self._market, self._narrator
        plans = story.plans()
        points = points_of(kill, seed, plans[0].name, story.provider)
        require_known(points, plans)
        variant = f", variant {story.variant}" if story.variant else ""
        narrator.line(f"Story {story.number}{variant}: {story.title}.")
        narrator.title(f"{len(plans)} nodes start")
        market.create(plans)
        await self._start(points)
        await story.prepare(market, narrator)
        await market.introduce(story.capability)
        await self._show_offers()
        await market.top_up(story.budget(max(len(points), 1)), "story")
        for number, point in enumerate([one for one in points if not one.of_setup] or [None], 1):
            await self._one_run(number, point)
        return await self._laws()

    async def _start(self, points: Sequence[KillPoint]) -> None:
        killers = [
            (point, Killer(self._market, self._narrator, point, self._story.provider))
            for point in points
            if point.of_setup
        ]
        for _, killer in killers:
            await killer.arm()
        await self._market.start(held=bool(points))
        for point, killer in killers:
            await killer.came()
            (self.killed if await killer.disarm() else self.missed).append(point)
        for node in self._market.nodes.values():
            modules = ", ".join(node.modules)
            self._narrator.tell(node.name, "started", f"{node.url} with {modules}")

    async def _show_offers(self) -> None:
        for name, plan in self._market.plans.items():
            for one in plan.offers:
                text = f"publishes {one.offer_id(name)} for {one.amount} ORC"
                self._narrator.tell(name, "offers", text)
        if self._story.capability:
            named = [name for name, plan in self._market.plans.items() if plan.passports]
            text = f"knows who holds {self._story.capability}: {', '.join(named)}"
            self._narrator.tell(self._market.buyer.name, "passports", text)

    # -- one run ---------------------------------------------------------------------------------

    async def _one_run(self, number: int, point: KillPoint | None) -> None:
        story, market, narrator = self._story, self._market, self._narrator
        narrator.submitted = None
        narrator.title("A run" if point is None else f"A run; killed at {point.text}")
        await story.begin(market, narrator)
        killer = None
        if point is not None:
            killer = Killer(market, narrator, point, story.provider)
            await killer.arm()
        narrator.submitted = time.time()
        at = time.time()
        run = await story.submit(market, f"run:story{story.number}n{number}")
        narrator.tell(market.buyer.name, "submitted", f"is asked to run {run}", at)
        trail = Trail(market, run, story.fan_outs)
        self._trails.append(trail)
        try:
            await self._watch(trail, killer)
        finally:
            if killer is not None and point is not None:
                (self.killed if await killer.disarm() else self.missed).append(point)
        await story.end(market, trail, narrator)
        self._wrong += [f"{run}: {text}" for text in story.outcome(trail)]

    async def _watch(self, trail: Trail, killer: Killer | None) -> None:
        end = time.monotonic() + RUN_SECONDS
        quiet = 0
        while quiet < QUIET_LOOKS:
            if time.monotonic() > end:
                raise StoryFailed(f"{trail.run} has not come to its end after {RUN_SECONDS:g} s: "
                                  f"it is {trail.status or 'unknown'}")  # fmt: skip
            if killer is not None:
                killer.require_well()
            for one in await trail.look():
                self._narrator.tell(one.who, one.arrow, one.text, one.at)
            try:
                await self._story.accompany(self._market, trail, self._narrator)
            except (NodeAway, NodeRefused):  # it comes with the next look
                continue
            quiet = quiet + 1 if self._story.is_over(trail) else 0
            await asyncio.sleep(LOOK_SECONDS)

    # -- the end ---------------------------------------------------------------------------------

    async def _laws(self) -> list[Law]:
        ended = law("every run has ended as this variant says", self._wrong)
        return [ended, *await laws_of(self._market, self._trails)]

    def story_laws(self) -> list[Law]:
        return self._story.laws(self._market, self._trails)

    def ends(self) -> list[dict[str, Any]]:
        return [
            {"run": trail.run, "status": trail.status,
             "orders": {one["order_id"]: one["state"] for one in trail.executions.values()}}
            for trail in self._trails
        ]  # fmt: skip

    def nodes(self) -> list[dict[str, Any]]:
        return [{"name": node.name, "url": node.url, "folder": str(node.folder.path)}
                for node in self._market.nodes.values()]  # fmt: skip
