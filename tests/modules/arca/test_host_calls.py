"""Calls of the host that are lost, late or refused: runs begin once, and come to their ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.market.node.api import Answer
from anabranch.modules.kit.host import HostUnavailable
from anabranch.testing.market.disk import Died
from in_loop import in_loop

from .support import BUYER, HOST_RUNS, RUNS, OnHost, Stage, step, workflow

ONE = workflow(step("a"))
GET_RECORD = "/v1/module/store/records/get"


def lose(path: str, when: str, error: BaseException, times: int = 1) -> OnHost:
    """The first calls of that path come to this."""
    left = [times]

    async def on_host(now: str, method: str, called: str, _body: Any) -> Answer | None:
        if (method, called, now) == ("POST", path, when) and left[0]:
            left[0] -= 1
            raise error
        return None

    return on_host


async def notified(stage: Stage) -> list[str]:
    return [one["title"] for one in (await stage.ask("GET", "/v1/notifications")).body["items"]]


# -- beginning -----------------------------------------------------------------------------------


@in_loop
async def test_a_run_that_the_host_has_made_begins_although_its_answer_was_lost() -> None:
    async with Stage() as stage:
        stage.on_host = lose(HOST_RUNS, "after", HostUnavailable("the answer is lost"))
        answer = await stage.ask("POST", RUNS, {"definition": ONE})
        assert answer.status == 503
        (made,) = (await stage.ask("GET", HOST_RUNS)).body["items"]
        assert made["run_id"] in answer.body["detail"], "it can be asked for again"
        stage.desk.answer("a", {"x": 1})
        assert (await stage.ended(made["run_id"]))["status"] == "completed"
        again = {"definition": ONE, "run_id": made["run_id"]}
        assert (await stage.ask("POST", RUNS, again)).status == 200
        assert len(stage.desk.asked) == 1


@in_loop
async def test_a_run_that_was_never_made_leaves_its_id_to_another() -> None:
    async with Stage() as stage:
        stage.on_host = lose(HOST_RUNS, "before", HostUnavailable("it is away"))
        body = {"definition": workflow(step("a"), step("b")), "run_id": "run:one"}
        assert (await stage.ask("POST", RUNS, body)).status == 503
        stage.world.advance(10)
        await stage.start(ONE)
        stage.desk.answer("a", {"x": 1})
        shown = await stage.ended()
        assert (shown["status"], len(shown["steps"])) == ("completed", 1)


@in_loop
async def test_a_run_that_the_host_refuses_leaves_its_id_to_another() -> None:
    async with Stage() as stage:

        async def on_host(when: str, method: str, path: str, body: Any) -> Answer | None:
            refused = (when, method, path) == ("before", "POST", HOST_RUNS)
            if refused and len(body["steps"]) == 2:
                return Answer(status=400, body={"code": "schema", "detail": "not so"})
            return None

        stage.on_host = on_host
        body = {"definition": workflow(step("a"), step("b")), "run_id": "run:one"}
        assert (await stage.ask("POST", RUNS, body)).status == 400
        await stage.start(ONE)


@pytest.mark.parametrize("slower", ["recovery", "caller"])
@in_loop
async def test_a_caller_who_asks_again_while_the_module_recovers_meets_one_run(slower: str) -> None:
    async with Stage() as stage:
        stage.on_host = lose(HOST_RUNS, "after", Died(9))
        body = {"definition": ONE, "run_id": "run:one"}
        asking = stage.ask("POST", RUNS, body)
        assert (await asking).status != 201, "the module was killed before the run was begun"
        looks = [3.0, 1.0] if slower == "recovery" else [1.0, 3.0]

        async def on_host(when: str, _method: str, path: str, _body: Any) -> None:
            if (when, path) == ("before", GET_RECORD) and looks:
                await asyncio.sleep(looks.pop(0))

        stage.on_host = on_host
        while (await stage.ask("GET", RUNS)).status != 200:
            stage.world.advance(0.05)
        answer = await stage.ask("POST", RUNS, body)
        assert answer.status in (200, 201), answer.body
        stage.world.advance(10)
        assert (await stage.at_host())["status"] == "running"
        stage.desk.answer("a", {"x": 1})
        assert (await stage.ended())["status"] == "completed"
        assert stage.desk.asked == [("run:one", "a", 1)]


@in_loop
async def test_two_who_start_the_same_run_at_once_start_it_once() -> None:
    async with Stage() as stage:
        part = stage.modules[-1].runs.part
        loop = stage.node.modules["arca"].loop
        tasks = [loop.create_task(part.start_run(ONE, {}, "run:one")) for _ in range(5)]
        stage.world.run_until(lambda: all(task.done() for task in tasks), 60)
        assert {task.result() for task in tasks} == {"run:one"}
        stage.world.advance(1)
        assert stage.desk.asked == [("run:one", "a", 1)]


# -- recovering ----------------------------------------------------------------------------------


@in_loop
async def test_a_run_that_cannot_be_given_up_keeps_no_other_from_going_on() -> None:
    async with Stage() as stage:
        await stage.start(ONE, "run:one")
        await stage.start(ONE, "run:two")
        stage.world.advance(1)
        gone = {
            "schema_version": "v1", "capability_id": "module_store_delete",
            "record_kind": "workflow-run-definition", "record_id": "run:two",
        }  # fmt: skip
        await stage.ask("POST", "/v1/module/store/records/delete", gone, as_="arca")

        async def on_host(when: str, method: str, path: str, body: Any) -> Answer | None:
            failing = (when, method, path) == ("before", "POST", HOST_RUNS)
            if failing and body["run_id"] == "run:two":
                return Answer(status=403, body={"code": "forbidden", "detail": "no"})
            return None

        stage.on_host = on_host
        stage.stores.lose()
        stage.world.crash_module(BUYER, "arca")
        stage.desk.answer("a", {"x": 1})
        assert (await stage.ended("run:one"))["status"] == "completed"


# -- showing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [403, 500])
@in_loop
async def test_an_end_that_the_host_refused_for_a_while_is_shown_at_last(status: int) -> None:
    async with Stage() as stage:
        await stage.start(ONE)
        refused: list[str] = []

        async def on_host(when: str, method: str, path: str, _body: Any) -> Answer | None:
            if (when, method) == ("before", "POST") and path.startswith(HOST_RUNS):
                refused.append(path)
                return Answer(status=status, body={"code": "no", "detail": "not now"})
            return None

        stage.on_host = on_host
        stage.desk.answer("a", {"x": 1})
        stage.world.advance(600)
        assert (await stage.at_host())["status"] == "running"
        assert 1 < len(refused) < 30, "it is tried again, and not for ever at once"
        stage.on_host = lose(HOST_RUNS, "before", HostUnavailable(""), times=0)
        shown = await stage.ended()
        assert shown["status"] == "completed"
        assert await notified(stage) == ["Run run:one of summaries is completed"]
