"""Story 009 and the variants of both stories in virtual time: how each must end."""

from __future__ import annotations

from typing import Any

from anabranch.surfaces.stories.story006 import Story006
from anabranch.surfaces.stories.story009 import PARAMETERS, STEPS, Story009

from .story_world import StoryWorld


def orders(story: StoryWorld) -> dict[str, str]:
    return {one["workflow"]["phase_id"]: one["state"] for one in story.items("/v1/executions")}


def money(story: StoryWorld) -> list[str]:
    return sorted(one["kind"] for one in story.items("/v1/ledger/movements"))


def run_006(story: StoryWorld) -> dict[str, Any]:
    run = story.start("run:one")
    story.play([run])
    story.require_laws([run])
    return story.snapshot(run)


# -- story 006 -------------------------------------------------------------------------------------


def test_where_every_provider_is_silent_the_step_times_out_and_nothing_is_ordered() -> None:
    with StoryWorld(Story006("silent")) as story:
        for name in ("north", "south", "east"):
            story.world.drop("buyer", name)
        shown = run_006(story)
        assert (shown["status"], shown["error"]["step_id"]) == ("step_timeout", "offers")
        assert (orders(story), money(story)) == ({}, ["top-up"])


def test_where_the_budget_is_short_the_order_is_refused_before_anything_is_on_hold() -> None:
    with StoryWorld(Story006("budget")) as story:
        shown = run_006(story)
        assert shown["status"] == "failed"
        assert (shown["error"]["code"], shown["error"]["step_id"]) == (
            "settlement-blocked",
            "order",
        )
        assert (orders(story), money(story)) == ({}, ["top-up"])


def test_where_the_provider_stalls_the_step_times_out_and_the_money_comes_back() -> None:
    with StoryWorld(Story006("stalled")) as story:
        shown = run_006(story)
        assert (shown["status"], shown["error"]["step_id"]) == ("step_timeout", "order")
        assert orders(story) == {"order": "expired"}
        assert money(story) == ["hold", "refund", "top-up"]


# -- story 009 -------------------------------------------------------------------------------------


def run_009(story: StoryWorld, *, paused: bool = False) -> dict[str, Any]:
    told = story.story
    assert isinstance(told, Story009)
    template = told.template()
    story.ask(story.buyer, "POST", "/v1/enact/arca/templates", template)
    body = {"template_id": template["template_id"], "parameters": PARAMETERS, "run_id": "run:one"}
    run = str(story.ask(story.buyer, "POST", "/v1/enact/arca/runs", body)["run_id"])
    until = (lambda: story.buyer.run_status(run) == "paused") if paused else None
    story.play([run], until)
    story.require_laws([run])
    return story.snapshot(run)


def test_five_orders_by_task_type_are_carried_out_in_their_order() -> None:
    with StoryWorld(Story009()) as story:
        shown = run_009(story)
        assert shown["status"] == "completed", shown
        assert orders(story) == dict.fromkeys(STEPS, "released")
        assert money(story) == []
        announced = shown["steps"][-1]["output"]
        assert announced["event"] == "workflow.completed"
        opened = {one["workflow"]["phase_id"]: one["opened_at"]
                  for one in story.items("/v1/executions")}  # fmt: skip
        assert opened["illustrate"] == opened["review"], "in parallel"


def test_a_review_that_rejects_pauses_the_run_and_nothing_is_published() -> None:
    with StoryWorld(Story009("rejects")) as story:
        shown = run_009(story, paused=True)
        assert shown["status"] == "paused"
        assert orders(story) == dict.fromkeys(("research", "illustrate", "review"), "released")


def test_an_illustrator_that_stalls_is_named_and_not_replaced() -> None:
    with StoryWorld(Story009("stalled")) as story:
        shown = run_009(story)
        assert (shown["status"], shown["error"]["step_id"]) == ("step_timeout", "illustrate")
        found = orders(story)
        assert found == {"research": "released", "review": "released", "illustrate": "expired"}
        (drawn,) = (one["offer_id"] for one in story.items("/v1/executions")
                    if one["workflow"]["phase_id"] == "illustrate")  # fmt: skip
        assert drawn == "offer:studio-image-illustrate"
