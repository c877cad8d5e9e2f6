"""Story 009: a template of five orders over three nodes, two of which are carried out in parallel.

    research (A) → illustrate (B) ∥ review (C) → publish (C) → announce (C)

The orders cost nothing and name a type of task, not a provider. Outputs are pointers. Nothing is
published before both branches are done and the review accepts; the last order records the fact
`workflow.completed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from anabranch.surfaces.stories.facts import FILE, Facts
from anabranch.surfaces.stories.laws import Law, law
from anabranch.surfaces.stories.market import StoryMarket
from anabranch.surfaces.stories.narration import Narrator
from anabranch.surfaces.stories.plan import (
    CAPABILITY,
    ROLE,
    WORK_SECONDS,
    NodePlan,
    Offering,
    definition,
)
from anabranch.surfaces.stories.processes import START_SECONDS, StoryFailed, until
from anabranch.surfaces.stories.story import Story, expect, states
from anabranch.surfaces.stories.trail import Trail

EDITOR, STUDIO, PRESS = "editor", "studio", "press"
OF_THE_PRESS = ("text/review", "site/publish", "workflow/announce")
STEPS = ("research", "illustrate", "review", "publish", "announce")
POINTER_BYTES_MAX = 4 * 1024
STALLED_SECONDS = 4  # within which an order of the variant `stalled` is to be done
PARAMETERS = {"subject": "the ferry at the lower crossing"}


class Story009(Story):
    number = "009"
    title = "an editor has a post researched, drawn, reviewed, published and announced"
    variants = ("rejects", "stalled")
    capability = CAPABILITY

    def __init__(self, variant: str = "", depth: int = 100) -> None:
        """`depth` is that of the queue of every offer."""
        super().__init__(variant)
        self._depth = depth

    def plans(self) -> list[NodePlan]:
        stalled, rejects = self.variant == "stalled", self.variant == "rejects"
        draws = Offering(
            service_type="image/illustrate", seconds=STALLED_SECONDS if stalled else WORK_SECONDS
        )
        #: It could draw, too, for money: a provider that stalls is not replaced.
        dear = Offering(service_type=draws.service_type, amount=1, confirmation="self-confirmed")
        offers: dict[str, tuple[Offering, ...]] = {
            EDITOR: (Offering(service_type="text/research"),),
            STUDIO: (draws,),
            PRESS: (*(Offering(service_type=name) for name in OF_THE_PRESS), dear),
        }
        roles = {
            STUDIO: "stalled" if stalled else "work",
            PRESS: "rejecting" if rejects else "work",
        }
        return [
            NodePlan(
                name=name,
                passports=(CAPABILITY,),
                offers=tuple(msgspec.structs.replace(one, depth=self._depth) for one in offered),
                role=roles.get(name, "work"),
            )
            for name, offered in offers.items()
        ]

    @property
    def provider(self) -> str:
        return PRESS

    def budget(self, runs: int) -> int:  # noqa: ARG002 - nothing is paid for
        return 0

    def template(self) -> dict[str, Any]:
        found = definition("story009")
        if self.variant == "stalled":
            for step in found["plan"]["steps"]:
                if step["step_id"] == "illustrate":
                    step["timing"]["timeout"] = "PT2S"
        return found

    async def prepare(self, market: StoryMarket, narrator: Narrator) -> None:
        template = self.template()
        await market.buyer.surely("POST", "/v1/enact/arca/templates", template)
        narrator.tell(EDITOR, "template", f"keeps the template {template['template_id']}")

    async def begin(self, market: StoryMarket, narrator: Narrator) -> None:
        """Types of tasks are looked up in the catalog of the buyer, so it must have the offers."""
        wanted = {one.offer_id(plan.name) for plan in self.plans() for one in plan.offers}

        async def knows_them() -> bool:
            await market.buyer.surely("POST", "/v1/enact/offer-catalog/sync")
            found = await market.buyer.surely("GET", "/v1/enact/service-catalog")
            return wanted <= {one["offer"]["offer/id"] if "offer" in one else one["offer/id"]
                              for one in found["offers"]}  # fmt: skip

        await until(knows_them, START_SECONDS, "the catalog of the editor to have all offers")
        narrator.tell(EDITOR, "catalog", f"has {len(wanted)} offers in its catalog")

    async def submit(self, market: StoryMarket, run: str) -> str:
        body = {"template_id": self.template()["template_id"], "parameters": PARAMETERS,
                "run_id": run}  # fmt: skip
        shown = await market.buyer.surely(
            "POST", "/v1/enact/arca/runs", {**body, "run_id": None, "start": False}
        )
        found = [step["step_id"] for step in shown["definition"]["plan"]["steps"]]
        if found != list(STEPS):
            raise StoryFailed(f"the template comes to the steps {found}")
        started = await market.buyer.surely("POST", "/v1/enact/arca/runs", {**body, "start": True})
        return str(started["run_id"])

    def is_over(self, trail: Trail) -> bool:
        if self.variant == "rejects":
            return trail.status == "paused" and trail.settled and "illustrate" in states(trail)
        return super().is_over(trail)

    # -- what it must come to --------------------------------------------------------------------

    def outcome(self, trail: Trail) -> list[str]:
        shown, orders = trail.snapshot, states(trail)
        done = dict.fromkeys(STEPS[:3], "released")
        match self.variant:
            case "rejects":
                wrong = expect(shown, status="paused") + expect({"orders": orders}, orders=done)
                return wrong + _pointers(trail)
            case "stalled":
                error = shown.get("error") or {}
                wrong = expect(shown, status="step_timeout") + expect(error, step_id="illustrate")
                wrong += expect({"orders": orders}, orders={**done, "illustrate": "expired"})
                return wrong + _providers(trail) + _pointers(trail)
        wrong = expect(shown, status="completed")
        wrong += expect({"orders": orders}, orders=dict.fromkeys(STEPS, "released"))
        return wrong + _providers(trail) + _pointers(trail) + _in_order(trail)

    def laws(self, market: StoryMarket, trails: Sequence[Trail]) -> list[Law]:
        wanted = {trail.run: int(trail.status == "completed") for trail in trails}
        found = Counter(one["run"] for one in completed_facts(market))
        wrong = [f"{found[run]} facts about {run}, not {count}" for run, count in wanted.items()
                 if found[run] != count]  # fmt: skip
        return [law("one fact `workflow.completed` for each run that is completed", wrong)]


def _pointers(trail: Trail) -> list[str]:
    """Outputs point at facts, and are small."""
    wrong = []
    for step in trail.snapshot["steps"]:
        output = step.get("output")
        if output is None:
            continue
        size = len(msgspec.json.encode(output))
        if size >= POINTER_BYTES_MAX or not str(output.get("record_id", "")).startswith("sha256:"):
            wrong.append(f"the output of {step['step_id']} is no pointer: {size} bytes")
    return wrong


def _providers(trail: Trail) -> list[str]:
    """No other provider was asked in the place of the one that was chosen."""
    wanted = {"research": EDITOR, "illustrate": STUDIO}
    return [
        f"{one['workflow']['phase_id']} was ordered from {one['offer_id']}"
        for one in trail.executions.values()
        if not one["offer_id"].startswith(
            f"offer:{wanted.get(one['workflow']['phase_id'], PRESS)}-"
        )
    ]


def _in_order(trail: Trail) -> list[str]:
    """Each order was opened when those that it depends on had been released."""
    at = {one["workflow"]["phase_id"]: one for one in trail.executions.values()}
    needs = {"illustrate": ("research",), "review": ("research",),
             "publish": ("illustrate", "review"), "announce": ("publish",)}  # fmt: skip
    return [
        f"{step} was ordered before {earlier} was done"
        for step, before in needs.items()
        for earlier in before
        if step in at and earlier in at and at[step]["opened_at"] < at[earlier]["updated_at"]
    ]


def completed_facts(market: StoryMarket) -> list[dict[str, Any]]:
    """The facts `workflow.completed` that the press has recorded."""
    home = market.nodes[PRESS].folder.path / "middleware" / ROLE
    return [one for one in Facts(home / FILE).all() if one.get("event") == "workflow.completed"]
