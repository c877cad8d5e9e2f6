"""`target.order`: under a limit, whoever was asked least recently is asked next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.app import Engine
from anabranch.kernel.events import GatherOpened
from anabranch.kernel.replay import replay
from anabranch.runtime.live_run import history
from work.participants.loopback_participants import engine
from work.support import run

PEOPLE = {
    name: {"function": lambda _request: {"price": 1}, "service_types": ["x"], "price": price}
    for price, name in enumerate(("a", "b", "c"))
}
STATIC = {"resolve": "static", "participants": ["a", "b", "c"]}
TASK = {"resolve": "task_type", "task_type": "x"}


def definition(target: dict[str, Any], **step: Any) -> str:
    one = {"step_id": "s", "service_type": "x", "target": target, **step}
    return json.dumps({"workflow_id": "w", "plan": {"steps": [one]}})


def turns(text: str, count: int = 3) -> list[list[str]]:
    """Whom each of so many runs of one engine asked."""

    async def go() -> list[list[str]]:
        asked: list[list[str]] = []
        async with engine({"participants": PEOPLE}) as opened:
            for _ in range(count):
                started = await opened.start(text)
                assert (await opened.wait(started)).status == "completed"
                asked.append([one.record.target for one in opened.read.dispatches(started)])
        return asked

    return run(go())


@pytest.mark.parametrize("target", [STATIC, TASK])
def test_everybody_gets_a_turn_under_a_limit(target: dict[str, Any]) -> None:
    fan = {"fan_in": {"policy": "all"}}
    first = turns(definition({**target, "limit": 2}, **fan))
    assert first == [["a", "b"]] * 3, "in a fixed order, unless the definition says otherwise"
    turning = definition({**target, "limit": 2, "order": "least_recently_asked"}, **fan)
    assert turns(turning) == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_an_ordinary_step_takes_the_provider_whose_turn_it_is() -> None:
    assert turns(definition(TASK)) == [["a"], ["a"], ["a"]]
    assert turns(definition({**TASK, "order": "least_recently_asked"})) == [["a"], ["b"], ["c"]]


def test_a_further_round_asks_those_who_were_not_asked() -> None:
    asked: list[str] = []

    def no(name: str) -> Any:
        def answer(_request: Any) -> dict[str, str]:
            asked.append(name)
            return {"status": "declined"}

        return answer

    async def go() -> str:
        people = {name: {"function": no(name)} for name in ("a", "b", "c")}
        target = {**STATIC, "limit": 1, "order": "least_recently_asked"}
        text = definition(target, fan_in={}, timing={"retry": {"max_attempts": 2}})
        async with engine({"participants": people}) as opened:
            return (await opened.wait(await opened.start(text))).status

    assert run(go()) == "failed"
    assert asked == ["a", "b", "c"]


def test_whose_turn_it_was_is_in_the_log_and_replayed_from_there() -> None:
    async def go() -> None:
        turning = definition(
            {**TASK, "limit": 1, "order": "least_recently_asked"}, fan_in={"policy": "all"}
        )
        async with engine({"participants": PEOPLE}) as opened:
            for name in ("a", "b"):
                started = await opened.start(turning)
                await opened.wait(started)
                parts = opened._parts
                assert parts is not None
                log = history(parts.store.read(started))
                opened_at = [each.labels for _, each in log if isinstance(each, GatherOpened)]
                assert opened_at == [[name]]
                assert replay(log).results["s"] == {"responses": [{"price": 1}]}

    run(go())


def test_turns_go_on_after_a_restart(tmp_path: Path) -> None:
    turning = definition(
        {**TASK, "limit": 2, "order": "least_recently_asked"}, fan_in={"policy": "all"}
    )

    async def once() -> list[str]:
        async with Engine(tmp_path / "runs.db", participants={"participants": PEOPLE}) as opened:
            started = await opened.start(turning)
            await opened.wait(started)
            return [one.record.target for one in opened.read.dispatches(started)]

    assert [run(once()) for _ in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]
