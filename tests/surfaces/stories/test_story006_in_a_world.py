"""Story 006 in virtual time: one run, a thousand at once, two buyers and a queue of one, and modules
that are killed in the middle of everything."""

from __future__ import annotations

from collections import Counter

import pytest

from anabranch.surfaces.stories.roles import summarise
from anabranch.surfaces.stories.story006 import Story006

from .story_world import StoryWorld


def test_the_cheapest_offer_is_ordered_carried_out_paid_and_told() -> None:
    story = StoryWorld(Story006())
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


@pytest.mark.parametrize("runs", [20])
def test_many_runs_at_once_each_have_one_order_one_hold_and_one_receipt(runs: int) -> None:
    story = StoryWorld(Story006(), runs=runs)
    names = [story.start(f"run:n{number}") for number in range(runs)]
    story.play(names)
    assert Counter(map(story.buyer.run_status, names)) == {"completed": runs}
    story.require_laws(names)
