"""What a story is to those who play it, and what all of them have in common."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from anabranch.surfaces.stories.laws import Law
from anabranch.surfaces.stories.market import StoryMarket
from anabranch.surfaces.stories.narration import Narrator
from anabranch.surfaces.stories.plan import NodePlan
from anabranch.surfaces.stories.processes import part
from anabranch.surfaces.stories.trail import Trail


class Story:
    """A subclass says who takes part, how a run begins, and what it must come to."""

    number = ""
    title = ""
    variants: tuple[str, ...] = ()
    #: The capability whose holders are asked, if there is one.
    capability: str | None = None
    fan_outs: tuple[str, ...] = ()  # steps that ask many

    def __init__(self, variant: str = "") -> None:
        self.variant = variant

    def plans(self) -> list[NodePlan]:
        """The first one buys."""
        raise NotImplementedError

    @property
    def provider(self) -> str:
        """Who gets the order, or the one of the orders at which processes are killed."""
        raise NotImplementedError

    def budget(self, runs: int) -> int:
        """What is paid in for so many runs."""
        raise NotImplementedError

    async def prepare(self, market: StoryMarket, narrator: Narrator) -> None:
        """Once, before the first run."""

    async def begin(self, market: StoryMarket, narrator: Narrator) -> None:
        """Before each run."""

    async def submit(self, market: StoryMarket, run: str) -> str:
        """Start a run of this id; safe to ask again. The id it has."""
        raise NotImplementedError

    async def accompany(self, market: StoryMarket, trail: Trail, narrator: Narrator) -> None:
        """After each look: what people do meanwhile."""
        await accept_all(market, trail, narrator)

    def is_over(self, trail: Trail) -> bool:
        return trail.closed and trail.settled

    async def end(self, market: StoryMarket, trail: Trail, narrator: Narrator) -> None:
        """After each run."""

    def outcome(self, trail: Trail) -> list[str]:
        """What is wrong with how a run of this variant has ended."""
        raise NotImplementedError

    def laws(
        self,
        market: StoryMarket,  # noqa: ARG002 - a default
        trails: Sequence[Trail],  # noqa: ARG002
    ) -> list[Law]:
        """Laws of this story alone, about nodes that have stopped."""
        return []


async def accept_all(market: StoryMarket, trail: Trail, narrator: Narrator) -> None:
    """The payer accepts what came."""
    for one in trail.executions.values():
        if one["state"] == "awaiting_acceptance":
            path = f"/v1/executions/{part(one['execution_id'])}/accept"
            at = time.time()
            await market.buyer.ask("POST", path, {"reason": "as ordered"})
            narrator.tell("the payer", "accepted", f"accepts the result of {one['order_id']}", at)


def expect(found: dict[str, Any], **wanted: Any) -> list[str]:
    """Where the two differ."""
    return [
        f"{name} is {found.get(name)!r}, not {value!r}"
        for name, value in wanted.items()
        if found.get(name) != value
    ]


def states(trail: Trail) -> dict[str, str]:
    """How the order of each step has ended."""
    return {one["workflow"]["phase_id"]: one["state"] for one in trail.executions.values()}
