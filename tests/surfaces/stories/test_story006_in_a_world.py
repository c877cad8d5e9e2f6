"""Story 006 in virtual time: one run, many at once, two buyers and a queue of one, and processes
that are killed in the middle of everything."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from anabranch.errors import AnabranchError
from anabranch.surfaces.stories.plan import CAPABILITY, ROLE, NodePlan, Offering
from anabranch.surfaces.stories.roles import summarise
from anabranch.surfaces.stories.story006 import Story006
from anabranch.testing.market import NodeSpec, World, arca, check_laws, dator
from anabranch.testing.market.disk import Died
from seeds import seeds

from .story_world import StoryWorld, spec_of


def test_the_cheapest_offer_is_ordered_carried_out_paid_and_told() -> None:
    with StoryWorld(Story006()) as story:
        run = story.start("run:one")
        story.play([run])
        shown = story.snapshot(run)
        assert shown["status"] == "completed", shown
        offers, order = shown["steps"]
        assert offers["selected_output"]["offer"]["offer/id"] == "offer:south-text-summarise"
        assert order["output"] == summarise(Story006().definition()["input"])
        (execution,) = story.items("/v1/executions")
        assert (execution["state"], execution["payment"]["amount"]) == ("released", 250)
        story.require_laws([run])


def test_many_runs_at_once_each_have_one_order_one_hold_and_one_receipt() -> None:
    """`make soak` has a thousand."""
    runs = int(os.environ.get("ANABRANCH_STORY_RUNS", "30"))
    with StoryWorld(Story006(depth=100_000), runs=runs) as story:
        names = [story.start(f"run:n{number}") for number in range(runs)]
        story.play(names)
        assert Counter(map(story.buyer.run_status, names)) == {"completed": runs}
        story.require_laws(names)


def test_a_world_runs_a_definition_and_answers_its_end() -> None:
    offering = Offering(service_type="text/summarise")
    seller = NodePlan(name="seller", offers=(offering,), passports=(CAPABILITY,))
    world = World([NodeSpec(name="buyer", modules={"arca": arca()}), spec_of(seller)])
    world.advance(5)
    trusted = {"participant_id": world["seller"].participant_id}
    world["buyer"].request("POST", "/v1/trusted-providers", trusted)
    world["buyer"].request("POST", "/v1/directory/sync")
    definition = Story006().definition()
    status, shown = world.run_workflow(
        "buyer", definition, run_id="run:x", input={"text": "a b"}
    ).result
    assert (status, shown["run_id"], shown["status"]) == (200, "run:x", "completed")
    assert shown["steps"][-1]["output"] == {"summary": "a b", "words": 2}
    with pytest.raises(AnabranchError, match="400"):
        world.run_workflow("buyer", {"plan": {"steps": []}})
    for node in world.nodes:
        node.kill()


# -- two buyers and a queue of one -----------------------------------------------------------------


def test_two_buyers_race_for_a_queue_of_one_and_both_are_served_one_after_the_other() -> None:
    at_work: list[str] = []
    most: list[int] = []

    async def slow(given: dict[str, Any], task: dict[str, Any]) -> dict[str, Any]:
        at_work.append(task["workflow/run-id"])
        most.append(len(at_work))
        await asyncio.sleep(20)
        at_work.remove(task["workflow/run-id"])
        return summarise(given)

    offering = Offering(service_type="text/summarise", amount=0, depth=1)
    seller = NodePlan(name="seller", offers=(offering,), passports=(CAPABILITY,))
    world = World([
        NodeSpec(name="one", modules={"arca": arca()}),
        NodeSpec(name="two", modules={"arca": arca()}),
        NodeSpec(name="seller", config={"directory": {"passports": [CAPABILITY]}},
                 modules={"arca": arca(), "dator": dator(seller.dator({}), {ROLE: slow})}),
    ])  # fmt: skip
    world.advance(5)
    buyers = [world["one"], world["two"]]
    definition = Story006().definition()
    for buyer in buyers:
        trusted = {"participant_id": world["seller"].participant_id}
        buyer.request("POST", "/v1/trusted-providers", trusted)
        buyer.request("POST", "/v1/directory/sync")
    for buyer in buyers:
        body = {"definition": definition, "run_id": f"run:{buyer.name}"}
        assert buyer.request("POST", "/v1/enact/arca/runs", body).result.status == 201
    world.advance(10)
    assert len(at_work) == 1, "the other one waits"
    world.run_until(lambda: all(one.run_status(f"run:{one.name}") == "completed" for one in buyers),
                    600)  # fmt: skip
    assert most == [1, 1], "one after the other, each once"
    world.advance(30)
    assert check_laws(world) == []


# -- killed in the middle of everything ------------------------------------------------------------

RUNS = 6


class Killing:
    """Processes of the world die at commits, as the dice say, until they are let live."""

    def __init__(self, story: StoryWorld, seed: int) -> None:
        self._dice = Random(f"kills of {seed}")
        self._story = story
        self.kills: Counter[str] = Counter()
        self.on = True
        self.down: dict[str, float] = {}
        for node in story.world.nodes:
            node.on_commit = self._at_commit(node.name)
            for name, module in node.modules.items():
                module.on_commit = self._at_commit(f"{node.name}/{name}")

    def _at_commit(self, name: str) -> Callable[[str, int], None]:
        def committing(_when: str, _number: int) -> None:
            if self.on and self._dice.random() < 0.01:
                self.kills[name] += 1
                raise Died(9)

        return committing

    def strike(self) -> None:
        """A module that keeps nothing on a disk of its own dies at any time; nodes come back."""
        for node in self._story.world.nodes:
            if node.node is None:
                with suppress(AnabranchError, Died):  # it may die while it starts
                    node.start()
            elif self.on and "dator" in node.modules and self._dice.random() < 0.1:
                self.kills[f"{node.name}/dator"] += 1
                self._story.world.crash_module(node, "dator")


@pytest.mark.parametrize("seed", seeds(40))
def test_whoever_dies_in_the_middle_of_everything_nothing_is_lost_and_nothing_doubled(
    seed: int,
) -> None:
    names = [f"run:n{number}" for number in range(RUNS)]
    with StoryWorld(Story006(), runs=RUNS) as story:
        killing = Killing(story, seed)
        started: set[str] = set()
        for _ in range(400):
            started |= {name for name in names if name not in started and story.try_start(name)}
            story.world.advance(0.5)
            killing.strike()
            story.try_accept()
            if len(started) == RUNS and story.closed(names):
                break
        killing.on = False
        killing.strike()
        story.play(names)
        assert killing.kills, "nothing was killed"
        assert Counter(map(story.buyer.run_status, names)) == {"completed": RUNS}, killing.kills
        story.require_laws(names)
