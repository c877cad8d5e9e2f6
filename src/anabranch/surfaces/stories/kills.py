"""Killing a process at an arrow, exactly: the node of the arrow waits there meanwhile.

ordered               the node of the arrow dies right after it is durable
before:ordered        … right before
ordered@buyer/arca    another process dies there: a node, or a module of one
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, cast

from anabranch.errors import InputError
from anabranch.net.problems import did_you_mean
from anabranch.surfaces.stories.arrows import ARROWS, BY_NAME, OF_SETUP, Arrow, Hold, When
from anabranch.surfaces.stories.market import StoryMarket
from anabranch.surfaces.stories.narration import Narrator
from anabranch.surfaces.stories.plan import NodePlan
from anabranch.surfaces.stories.processes import LOOK_SECONDS

ALL, RANDOM = "all", "random"
COMES_SECONDS = 60.0  # within which an arrow of the start comes, if it does


class KillPoint(NamedTuple):
    arrow: Arrow
    when: When = "after"
    process: str = ""  # "" is the node of the arrow; else NODE or NODE/MODULE

    @property
    def of_setup(self) -> bool:
        """Whether it comes while the nodes start, before any run."""
        return self.arrow.name in OF_SETUP

    @property
    def text(self) -> str:
        when = "before:" if self.when == "before" else ""
        return f"{when}{self.arrow.name}" + (f"@{self.process}" if self.process else "")


def read_point(text: str) -> KillPoint:
    """Raises `InputError`."""
    named, _, process = text.partition("@")
    when, _, name = named.rpartition(":")
    if when not in ("", "before", "after"):
        raise InputError(f"--kill: {when!r} is neither before nor after", code="usage")
    arrow = BY_NAME.get(name)
    if arrow is None:
        hint = did_you_mean(name, BY_NAME)
        known = ", ".join(BY_NAME)
        text = f"--kill: there is no arrow {name!r}{f' ({hint})' if hint else ''}: {known}"
        raise InputError(text, code="usage")
    return KillPoint(arrow, cast(When, when or "after"), process)


def points_of(kill: str, seed: int, buyer: str, provider: str) -> list[KillPoint]:
    """What `--kill` asks for; each is for a run of its own. `provider` gets the order."""
    if not kill:
        return []
    if kill not in (ALL, RANDOM):
        return [read_point(one.strip()) for one in kill.split(",")]
    points = list(all_points(buyer, provider))
    return points if kill == ALL else [random.Random(seed).choice(points)]


def all_points(buyer: str, provider: str) -> Iterator[KillPoint]:
    """Every arrow of a run, before and after it, and every process that has to do with it."""
    victims = {
        "buyer": ("", f"{buyer}/arca", provider),
        "provider": ("", f"{provider}/dator", f"{provider}/role", buyer),
    }
    for arrow in ARROWS:
        if arrow.name not in OF_SETUP:
            for process in victims[arrow.side]:
                yield KillPoint(arrow, "before", process)
                yield KillPoint(arrow, "after", process)


def require_known(points: Sequence[KillPoint], plans: Sequence[NodePlan]) -> None:
    """Raises `InputError` for a process that the story does not have."""
    modules = {plan.name: plan.modules for plan in plans}
    for point in points:
        name, _, module = point.process.partition("/")
        if name and name not in modules:
            known = ", ".join(modules)
            raise InputError(f"--kill: there is no node {name!r}, but {known}", code="usage")
        if module and module not in modules[name]:
            known = ", ".join(modules[name])
            raise InputError(f"--kill: {name} has no module {module!r}, but {known}", code="usage")
    begin = [point for point in points if point.of_setup]
    if len(begin) > 1 or any(point.process for point in begin):
        text = f"--kill: of {', '.join(OF_SETUP)} one can be chosen, and its own node dies there"
        raise InputError(text, code="usage")


class Killer:
    """Carries out one point: waits for its arrow, kills, lets the others go on, starts again."""

    def __init__(
        self, market: StoryMarket, narrator: Narrator, point: KillPoint, provider: str
    ) -> None:
        self._narrator = narrator
        self._point = point
        self._holder = (
            market.buyer if point.arrow.side == "buyer" else market.nodes[provider]
        )  # whose commit it is
        name, _, self._module = (point.process or self._holder.name).partition("/")
        self._node = market.nodes[name]
        self._pid: int | None = None
        self._task: asyncio.Task[None] | None = None
        self.done = False

    async def arm(self) -> None:
        """Before the run begins, or the nodes start."""
        if self._module:
            self._pid = await self._node.module_pid(self._module)
        self._holder.hold(Hold(self._point.arrow.name, self._point.when))
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while not self._holder.is_held:
            await asyncio.sleep(LOOK_SECONDS / 4)
        await self._kill()
        self._holder.release()
        self.done = True
        await self._node.revive()

    async def _kill(self) -> None:
        who = self._point.process or self._node.name
        where = f"right {self._point.when} `{self._point.arrow.name}`"
        if self._module:
            if self._pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
        else:
            await self._node.kill()
        self._narrator.tell(who, "killed", f"is killed with -9, {where}")

    async def came(self) -> None:
        """Returns when the process was killed and is back, or when that does not come."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=COMES_SECONDS)
            self.require_well()

    def require_well(self) -> None:
        """Raises what went wrong with the kill, or with the start after it."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def disarm(self) -> bool:
        """When the run is over; whether the arrow came."""
        self._holder.release()
        if self._task is not None and not self.done:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._task is not None and self.done:
            await self._task
        return self.done
