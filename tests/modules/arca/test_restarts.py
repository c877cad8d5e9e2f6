"""A module or a node that ends in the middle: runs go on, and nothing is told or made twice."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.testing.market.disk import Died
from in_loop import in_loop

from .support import BUYER, HOST_RUNS, RUNS, Stage, step, workflow

CHAIN = workflow(step("a"), step("b", input_from="a"), step("c", input_from="b"))


async def notified(stage: Stage) -> list[str]:
    return [one["title"] for one in (await stage.ask("GET", "/v1/notifications")).body["items"]]


@pytest.mark.parametrize("who", ["module", "node", "orderly"])
@in_loop
async def test_a_step_that_waits_goes_on_as_the_same_try(who: str) -> None:
    async with Stage() as stage:
        await stage.start(CHAIN)
        stage.desk.answer("a", {"x": 1})
        await stage.until(lambda shown: shown["steps"][0]["status"] == "completed")
        if who == "module":
            stage.world.crash_module(BUYER, "arca")
        elif who == "node":
            stage.world.crash(BUYER, down_seconds=20)
        else:
            assert (await stage.ask("POST", "/v1/modules/arca/restart")).status == 200
        stage.world.advance(10)
        assert stage.desk.asked.count(("run:one", "a", 1)) == 1, "what was answered is not asked"
        assert stage.desk.asked[-1] == ("run:one", "b", 1)
        assert not [one for one in stage.desk.asked if one[2] > 1], "a lost execution is no retry"
        stage.desk.answer("b", {})
        stage.desk.answer("c", {})
        assert (await stage.ended())["status"] == "completed"
        assert await notified(stage) == ["Run run:one of summaries is completed"]


@pytest.mark.parametrize("side", ["before", "after"])
@in_loop
async def test_killed_at_every_commit_a_run_comes_to_its_end_once(side: str) -> None:
    for number in range(1, 40):
        async with Stage() as stage:
            module = stage.node.modules["arca"]
            killed: list[int] = []

            def kill(when: str, at: int, *, wanted: int = number, hit: list[int] = killed) -> None:
                if when == side and at == wanted and not hit:
                    hit.append(at)
                    raise Died(9)

            module.on_commit = kill
            for name in ("a", "b", "c"):
                stage.desk.answer(name, {"of": name})
            body = {"definition": CHAIN, "run_id": "run:one"}
            for _ in range(5):
                if (await stage.ask("POST", "/v1/enact/arca/runs", body)).status in (200, 201):
                    break
                stage.world.advance(5)
            shown = await stage.ended()
            assert shown["status"] == "completed", number
            assert await notified(stage) == ["Run run:one of summaries is completed"]
            assert not stage.world.defects
            if not killed:
                break
    else:
        raise AssertionError("a run of three steps has not so many commits")
    assert number >= 4


@in_loop
async def test_a_run_whose_home_was_lost_is_started_again_under_its_id() -> None:
    async with Stage() as stage:
        await stage.start(CHAIN)
        stage.desk.answer("a", {"x": 1})
        await stage.until(lambda shown: shown["steps"][0]["status"] == "completed")
        stage.stores.lose()
        stage.world.crash_module(BUYER, "arca")
        stage.world.advance(5)
        assert stage.desk.asked.count(("run:one", "a", 1)) == 2, "it is found by the same id"
        shown = await stage.at_host()
        assert shown["steps"][0]["status"] == "completed", "what the host has closed stays so"
        stage.desk.answer("b", {})
        stage.desk.answer("c", {})
        assert (await stage.ended())["status"] == "completed"
        assert await notified(stage) == ["Run run:one of summaries is completed"]


@in_loop
async def test_a_lost_run_without_its_definition_fails_by_name() -> None:
    async with Stage() as stage:
        await stage.start(CHAIN)
        stage.world.advance(1)
        gone = {
            "schema_version": "v1",
            "capability_id": "module_store_delete",
            "record_kind": "workflow-run-definition",
            "record_id": "run:one",
        }
        await stage.ask("POST", "/v1/module/store/records/delete", gone, as_="arca")
        stage.stores.lose()
        stage.world.crash_module(BUYER, "arca")
        shown = await stage.ended()
        assert (shown["status"], shown["error"]["code"]) == ("failed", "definition_lost")
        assert {one["status"] for one in shown["steps"]} == {"cancelled"}
        assert (await stage.ask("GET", "/v1/enact/arca/runs/run:one")).body["status"] == "failed"


@in_loop
async def test_a_run_that_the_host_has_lost_is_made_again() -> None:
    async with Stage() as stage:
        await stage.start(CHAIN)
        stage.world.advance(1)
        module = stage.modules[-1].runs.mirror
        module._runs["run:one"].revision = 99  # as of a host that was put back from a copy
        stage.desk.answer("a", {"x": 1})
        shown = await stage.until(lambda shown: shown["steps"][0]["status"] == "completed")
        assert shown["revision"] < 99


@in_loop
async def test_the_module_is_ready_when_its_host_has_answered() -> None:
    async with Stage() as stage:
        stage.host_is_away = True
        stage.world.crash_module(BUYER, "arca")
        stage.world.advance(3)
        view: Any = (await stage.ask("GET", "/v1/modules/arca")).body
        assert view["ready"] is False
        stage.host_is_away = False
        stage.world.advance(20)
        assert (await stage.ask("GET", "/v1/modules/arca")).body["ready"] is True
        assert (await stage.ask("GET", HOST_RUNS)).status == 200


@in_loop
async def test_the_same_run_is_the_same_whatever_the_order_of_the_keys() -> None:
    """A template that a host has read from its disk has its keys in another order."""
    definition = workflow(step("a"), step("b", depends_on=["a"]))
    turned = dict(reversed(definition.items()))
    async with Stage() as stage:
        first = await stage.ask("POST", RUNS, {"definition": definition, "run_id": "run:one"})
        again = await stage.ask("POST", RUNS, {"definition": turned, "run_id": "run:one"})
        other = {**definition, "label": "another"}
        refused = await stage.ask("POST", RUNS, {"definition": other, "run_id": "run:one"})
        assert (first.status, again.status, refused.status) == (201, 200, 409)
