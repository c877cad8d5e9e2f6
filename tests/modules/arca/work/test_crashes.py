"""The buyer's node or its module is killed between any two steps of a run: nothing is doubled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from anabranch.testing.market import check_laws
from anabranch.testing.market.disk import Died
from seeds import SHARE, part

from .stage import Make, Stage, failed, outputs, step
from .test_hosted_runs import ORDER, SOLICIT

Killed = Literal["node", "module"]
PARTS = 2
#: Points at which someone can be killed, for each of the two; more than there are begin anew.
POINTS = 160
TRIED = POINTS if SHARE >= 1 else POINTS // 2  # of which a part: each is a whole market
SPREAD = 37  # the first few seeds are points all over a run


def begun(made: Make) -> Stage:
    """A fan-out, an order that fails once and is tried again, and one that depends on it."""
    stage = made({"anna": 100, "bert": 70})

    def answer(request: Any) -> Any:
        first = request["request_id"].endswith(":order:a1")
        output = {"made_of": request["request/input"]["text"]}
        return failed() if first else {"status": "completed", "output": output}

    stage.sold["bert"].answers = answer
    again = {**ORDER, "max_retries": 1, "retry_delay_ms": 500}
    after = step("print", input={"text": {"from": "/steps/order/output/made_of"}})
    stage.start([SOLICIT, again, {**after, "depends_on": ["order"]}])
    return stage


def finished(stage: Stage) -> None:
    """The laws that hold however often somebody was killed."""
    run = stage.ended()
    assert run["status"] == "completed", run
    found = outputs(run)
    assert found["order"] == found["print"] == {"made_of": "long"}
    assert [(one["order_id"], one["state"]) for one in stage.executions()] == [
        ("order:run:one-order-a1", "failed"),
        ("order:run:one-order-a2", "released"),
        ("order:run:one-print-a1", "released"),
    ]
    assert stage.movements() == ["hold"] * 3 + ["refund"] + ["release"] * 2
    assert stage.sold["bert"].requests == [
        f"remote-execution:run:one:{name}" for name in ("order:a1", "order:a2", "print:a1")
    ], "each was carried out once"
    assert stage.sold["anna"].requests == []
    assert check_laws(stage.world) == []


def killing(process: Any, at: int, when: str) -> Callable[[str, int], None]:
    def on_commit(now: str, number: int) -> None:
        if number == at and now == when:
            process.on_commit = lambda _when, _number: None
            raise Died

    return on_commit


def test_a_run_that_nobody_kills_comes_to_the_same(made: Make) -> None:
    stage = begun(made)
    nodes, modules = stage.buyer.commits, stage.module.commits
    finished(stage)
    assert stage.buyer.commits - nodes < POINTS / 2, "there are points for all of them"
    assert stage.module.commits - modules < POINTS / 2


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["node", "module"])
@pytest.mark.parametrize("number", range(PARTS))
def test_who_is_killed_at_a_commit_goes_on_with_the_same_orders(
    made: Make, number: int, killed: Killed
) -> None:
    for seed in part(number, PARTS, TRIED, least=8):
        point = seed * SPREAD % POINTS
        stage = begun(made)
        process: Any = stage.buyer if killed == "node" else stage.module
        at, when = process.commits + 1 + point // 2, ("before", "after")[point % 2]
        process.on_commit = killing(process, at, when)
        try:
            finished(stage)
        except AssertionError as error:
            raise AssertionError(f"{killed} killed at point {point} ({when}): {error}") from error


@pytest.mark.parametrize("number", range(2))
def test_a_module_that_is_killed_again_and_again_comes_to_the_same(made: Make, number: int) -> None:
    for seconds in part(number, 2, 20):
        stage = begun(made)
        for _ in range(12):
            stage.world.advance(0.05 + seconds % 20 / 7)
            stage.world.crash_module("buyer", "arca")
        finished(stage)
