"""An external decision is its source's alone: asked again, or overridden by name and on record."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from anabranch import Engine
from anabranch.errors import Refused
from anabranch.testing import after, never, ok

from .arca_stage import stage, step, workflow

MATCH = {"path": "/ok", "fulfilled_values": [True], "not_fulfilled_values": [False]}
SOURCE: dict[str, Any] = {"kind": "capability", "capability_id": "verify"}


def judged(source: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    rule = {
        "policy": "external_decision",
        "decision_source": {**SOURCE, **(source or {})},
        "result_match": MATCH,
        **fields,
    }
    one = {"step_id": "publish", "service_type": "site/publish", "fulfillment": rule}
    return workflow(one, {"step_id": "after", "service_type": "x", "depends_on": ["publish"]})


class Source:
    """A source that says no until it is told otherwise."""

    def __init__(self) -> None:
        self.says: Any = {"ok": False}
        self.asked: list[str] = []

    def __call__(self, request: Any) -> Any:
        self.asked.append(request["dispatch_id"])
        return self.says

    def engine(self) -> Engine:
        offers = {"function": lambda _request: 1, "service_types": ["site/publish", "x"]}
        return Engine(
            ":memory:",
            participants={"participants": {"p": offers}, "capabilities": {"verify": self}},
        )


async def standing(engine: Engine, **fields: Any) -> str:
    run = await engine.start(json.dumps(judged(**fields)))
    result = await engine.wait(run, standing=True)
    assert result.status in ("paused", "waiting"), result
    return run


@pytest.mark.parametrize("verdict", ["fulfil", "reject"])
def test_nobody_answers_for_the_source(verdict: Any) -> None:
    async def main() -> None:
        source = Source()
        async with source.engine() as engine:
            run = await standing(engine)
            with pytest.raises(Refused, match="--override") as refused:
                await engine.decide(run, "publish", verdict, actor="ann")
            assert refused.value.code == "decided_by_source"
            assert "capability verify" in refused.value.message
            assert (await engine.wait(run, standing=True)).status != "completed"

    asyncio.run(main())


@pytest.mark.parametrize("way", ["resume", "decide"])
def test_the_source_is_asked_again_with_another_dispatch_and_decides(way: str) -> None:
    async def main() -> None:
        source = Source()
        async with source.engine() as engine:
            run = await standing(engine)
            for _ in range(2):
                source.says = {"ok": len(source.asked) == 2}
                if way == "resume":
                    await engine.resume(run, actor="ann")
                else:
                    await engine.decide(run, "publish", "ask_again", actor="ann")
                result = await engine.wait(run, standing=True)
            assert result.status == "completed"
            assert len(set(source.asked)) == len(source.asked) == 3
            again = [e async for e in engine.events(run) if e.kind == "gate.asked_again"]
            assert [e.fields["actor"] for e in again] == ["ann", "ann"]
            assert not [e async for e in engine.events(run) if e.kind == "gate.decided"]

    asyncio.run(main())


def test_an_override_is_an_act_of_its_own_and_recorded_as_one() -> None:
    async def main() -> None:
        source = Source()
        async with source.engine() as engine:
            run = await standing(engine)
            await engine.decide(
                run, "publish", "fulfil", actor="ann", reason="seen it", override=True
            )
            assert (await engine.wait(run)).status == "completed"
            events = [e async for e in engine.events(run)]
            (said,) = [e.fields for e in events if e.kind == "gate.decided"]
            assert (said["actor"], said["override"]) == ("ann", True)
            last = [e.fields for e in events if e.kind == "task.judged"][1]
            assert (last["fulfilled"], last["override"]) == (True, True)
            assert len(source.asked) == 1

    asyncio.run(main())


def test_an_override_may_also_give_the_step_up() -> None:
    async def main() -> None:
        async with Source().engine() as engine:
            run = await standing(engine)
            await engine.decide(run, "publish", "reject", actor="ann", override=True)
            result = await engine.wait(run)
            assert result.status == "failed"
            assert "ann" in str(result.problem)

    asyncio.run(main())


def test_where_people_decide_there_is_nothing_to_override_and_no_source_to_ask() -> None:
    async def main() -> None:
        async with Source().engine() as engine:
            people = {"policy": "requester_confirmation", "decision_source": None}
            run = await standing(engine, **people, result_match=None)
            with pytest.raises(Refused) as refused:
                await engine.decide(run, "publish", "fulfil", override=True)
            assert refused.value.code == "nothing_to_override"
            with pytest.raises(Refused) as refused:
                await engine.decide(run, "publish", "ask_again")
            assert refused.value.code == "no_source"
            await engine.decide(run, "publish", "fulfil")
            assert (await engine.wait(run)).status == "completed"

    asyncio.run(main())


# -- the timing of a source ----------------------------------------------------------------------


def played(source: dict[str, Any], reply: Any, **fields: Any) -> Any:
    document = judged(source, **fields)
    return stage(document, {"publish": 1, "verify": reply, "after": 2})


def test_a_source_has_a_time_limit_and_tries_of_its_own() -> None:
    timing = {"timeout": "PT5S", "retry": {"max_attempts": 1, "backoff": "PT2S"}}
    there = played({"timing": timing}, [never(), {"ok": True}])
    assert there.status == "completed"
    assert there.played.seconds == 7


def test_a_reply_that_cannot_be_read_is_a_try_too() -> None:
    timing = {"retry": {"max_attempts": 2, "backoff": "PT1S"}}
    there = played({"timing": timing}, ["what?", {"ok": None}, {"ok": True}])
    assert (there.status, there.played.seconds) == ("completed", 2)


@pytest.mark.parametrize(
    ("word", "status"), [("fail", "step_timeout"), ("skip", "completed"), (None, "failed")]
)
def test_a_source_that_takes_too_long_comes_to_what_its_on_timeout_says(
    word: str | None, status: str
) -> None:
    timing = {"timeout": "PT5S"} | ({"on_timeout": word} if word else {})
    there = played({"timing": timing}, never())
    assert (there.status, there.played.seconds) == (status, 5)


@pytest.mark.parametrize(("word", "status"), [("fail", "step_timeout"), ("skip", "completed")])
def test_people_who_decide_have_a_time_limit_too(word: str, status: str) -> None:
    source = {"kind": "operator", "timing": {"timeout": "PT1H", "on_timeout": word}}
    rule = {"policy": "external_decision", "decision_source": source}
    one = step(fulfillment=rule)
    there = stage(workflow(one, step("after", depends_on=["s"])), {"s": 1, "after": 2})
    assert (there.status, there.played.seconds) == (status, 3600)
    decisions = {"s": after(3599, ok(True))}
    there = stage(workflow(one), {"s": 1}, decisions=decisions)
    assert (there.status, there.played.seconds) == ("completed", 3599)
