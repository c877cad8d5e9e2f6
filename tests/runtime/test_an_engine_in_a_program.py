"""`anabranch.Engine` inside an asyncio program: everything a program can say and hear."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import Engine, InputError, NotFound, Refused, Toolbox
from anabranch.store.ports import HeadFilter

from .support import asking, chain, file_of, gated, playbook, run, step

Scenario = Callable[[Engine], Coroutine[Any, Any, None]]


def with_engine(
    scenario: Scenario, store: str = ":memory:", toolbox: Toolbox | None = None
) -> None:
    async def whole() -> None:
        async with Engine(store, toolbox=toolbox or Toolbox()) as engine:
            await scenario(engine)

    run(whole())


# -- start and wait --------------------------------------------------------------------------


def test_a_run_is_started_waited_for_and_summed_up() -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(
            playbook(step("only", "noop", result="{{ workload.x + 1 }}"), workload={"x": 1}),
            {"x": 41},
            labels={"by": "test"},
        )
        result = await engine.wait(name)
        assert (result.run, result.name, result.dialect) == (name, "test", "noetl")
        assert (result.status, result.result, result.problem) == ("completed", 42, None)
        only = {"runs": 1, "status": "done", "statuses": ["done"], "result": 42, "state": "done"}
        assert result.steps == {"only": only}
        assert result.joins == []
        assert engine.read.show(name)["labels"] == {"by": "test"}

    with_engine(scenario)


def test_a_finished_run_can_be_waited_for_again_and_by_many() -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(chain(3))
        results = await asyncio.gather(*(engine.wait(name) for _ in range(5)))
        assert [one.status for one in [*results, await engine.wait(name)]] == ["completed"] * 6

    with_engine(scenario)


def test_a_run_may_start_at_another_step_and_under_a_chosen_id() -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(chain(3), run="mine", step="s2")
        assert name == "mine"
        assert list((await engine.wait("mine")).steps) == ["s2"]

    with_engine(scenario)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"step": "nowhere"}, "there is no step 'nowhere' to start at"),
        ({"run": "taken"}, "there is a run taken already"),
        ({"run": "a/b"}, "'a/b' cannot be a run id"),
        ({"run": "last"}, "'last' cannot be a run id"),
        ({"run": ""}, "'' cannot be a run id"),
        ({"input": {"x": object()}}, "the input is not JSON"),
        ({"input": [1]}, "the input must be a mapping, not list"),
        ({"input": {1: "x"}}, "the input is not JSON"),
        ({"input": {"x": float("nan")}}, "the input is not JSON"),
        ({"labels": {"a": 1}}, "the label 'a' is not text"),
        ({"labels": {"a": "\ud800"}}, "a label is not JSON"),
    ],
)
def test_a_start_that_cannot_be_is_refused_and_leaves_nothing(
    given: dict[str, Any], words: str
) -> None:
    async def scenario(engine: Engine) -> None:
        await engine.wait(await engine.start(chain(1), run="taken"))
        with pytest.raises(InputError, match=words.replace("(", r"\(")):
            await engine.start(chain(1), **given)
        assert [one["run"] for one in engine.read.runs(HeadFilter())] == ["taken"]

    with_engine(scenario)


def test_an_unknown_run_is_not_found() -> None:
    async def scenario(engine: Engine) -> None:
        calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: engine.wait("nobody"),
            lambda: engine.pause("nobody"),
            lambda: engine.cancel("nobody"),
            lambda: engine.redrive("nobody"),
            lambda: anext(engine.events("nobody")),  # type: ignore[arg-type]
        ]
        for call in calls:
            with pytest.raises(NotFound, match="there is no run"):
                await call()

    with_engine(scenario)


# -- gates -----------------------------------------------------------------------------------


def test_a_decision_moves_the_run_and_keeps_its_evidence() -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(asking("ann"))
        standing = await engine.wait(name, standing=True)
        assert standing.status == "waiting"
        with pytest.raises(Refused, match="may be decided by ann, not by bob"):
            await engine.decide(name, "ask", "fulfil", actor="bob")
        await engine.decide(name, "ask", "fulfil", actor="ann", evidence={"seen": [1, 2]})
        result = await engine.wait(name)
        assert (result.status, result.result) == ("completed", "went on")
        (decided,) = [e.fields async for e in engine.events(name) if e.kind == "gate.decided"]
        assert decided["evidence"] == {"seen": [1, 2]}

    with_engine(scenario)


def test_a_decision_on_a_gate_that_is_not_open_is_refused() -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(asking())
        with pytest.raises(Refused, match="no gate 'after' is open"):
            await engine.decide(name, "after", "fulfil")
        await engine.decide(name, "ask", "reject", reason="not today")
        result = await engine.wait(name)
        assert result.status == "failed"
        assert result.problem is not None
        assert "not today" in result.problem["message"]
        with pytest.raises(Refused, match="has ended: failed"):
            await engine.decide(name, "ask", "fulfil")

    with_engine(scenario)


@pytest.mark.parametrize("racers", [2, 20])
def test_of_decisions_that_race_exactly_one_succeeds(racers: int) -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(asking())
        answers = await asyncio.gather(
            *(engine.decide(name, "ask", "fulfil", actor=str(n)) for n in range(racers)),
            return_exceptions=True,
        )
        assert [isinstance(one, Refused) for one in answers].count(False) == 1
        assert (await engine.wait(name)).status == "completed"
        kinds = [e.kind async for e in engine.events(name)]
        assert kinds.count("gate.decided") == 1

    with_engine(scenario)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda e, r: e.decide(r, "ask", "maybe"), "fulfil, reject or ask_again, not 'maybe'"),
        (lambda e, r: e.decide(r, "ask", "fulfil", evidence={1}), "the evidence is not JSON"),
        (lambda e, r: e.patch(r, {"x": object()}), "the patch is not JSON"),
        (lambda e, r: e.patch(r, {"x": 1}, reducer="mean"), "there is no reducer 'mean'"),
        (lambda e, r: e.patch(r, {"x": "one"}, reducer="sum"), "sum"),
    ],
)
def test_what_cannot_be_recorded_is_refused_and_the_run_is_unharmed(
    call: Callable[[Engine, str], Coroutine[Any, Any, None]], words: str
) -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(asking())
        before = [e.seq for e in engine.read.events(name)]
        with pytest.raises(InputError, match=words):
            await call(engine, name)
        assert [e.seq for e in engine.read.events(name)] == before
        await engine.decide(name, "ask", "fulfil")
        assert (await engine.wait(name)).status == "completed"

    with_engine(scenario)


def test_a_patch_opens_admission_and_reducers_combine() -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(gated())
        assert (await engine.wait(name, standing=True)).status == "waiting"
        await engine.patch(name, {"total": 2}, reducer="sum")
        await engine.patch(name, {"total": 3}, reducer="sum")
        assert engine.read.show(name)["context"] == {"total": 5}
        await engine.patch(name, {"go": True}, actor="ann")
        assert (await engine.wait(name)).result == "went on"

    with_engine(scenario)


# -- pause, resume, cancel -------------------------------------------------------------------


def test_a_paused_run_starts_nothing_until_it_is_resumed() -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(asking())
        await engine.pause(name, actor="ann", reason="lunch")
        with pytest.raises(Refused, match="paused already"):
            await engine.pause(name)
        await engine.decide(name, "ask", "fulfil")
        await asyncio.sleep(0.1)
        standing = await engine.wait(name, standing=True)
        assert standing.status == "paused"
        assert standing.steps["after"]["status"] == "ready"
        assert any("lunch" in one["waits_for"] for one in engine.read.explain(name)["waiting"])
        await engine.resume(name)
        assert (await engine.wait(name)).status == "completed"

    with_engine(scenario)


def test_cancel_ends_what_waits_at_once() -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(gated())
        await engine.cancel(name, actor="ann", reason="enough")
        result = await engine.wait(name)
        assert result.status == "cancelled"
        assert result.problem == {"code": "cancelled", "message": "enough"}
        with pytest.raises(Refused, match="has ended"):
            await engine.cancel(name)

    with_engine(scenario)


# -- redrive ---------------------------------------------------------------------------------


def test_redrive_works_again_only_on_what_failed() -> None:
    box, calls = Toolbox(), list[str]()

    @box.tool("note", blocking=False)
    def note(name: str) -> str:
        calls.append(name)
        if name == "bad" and calls.count("bad") == 1:
            raise ValueError("for once")
        return name.upper()

    async def scenario(engine: Engine) -> None:
        done = {"step": "end", "when": "{{ event.name == 'step.done' }}"}
        text = playbook(
            step("good", "note", "bad", args={"name": "good"}),
            step("bad", "note", args={"name": "bad"}, next={"arcs": [done]}),
            step("end", "note", args={"name": "end"}),
        )
        first = await engine.start(text)
        assert (await engine.wait(first)).status == "failed"
        second = await engine.redrive(first)
        result = await engine.wait(second)
        assert (result.status, result.result) == ("completed", "END")
        assert calls == ["good", "bad", "bad", "end"]
        shown = engine.read.show(second)
        assert shown["origin"] == first
        with pytest.raises(Refused, match="has not ended"):
            await engine.redrive(await engine.start(gated()))

    with_engine(scenario, toolbox=box)


# -- events ----------------------------------------------------------------------------------


def test_events_come_from_the_log_and_then_live_without_a_gap() -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(asking())
        seen: list[int] = []
        opened = asyncio.Event()

        async def follow() -> None:
            async for event in engine.events(name):
                seen.append(event.seq)
                if event.kind == "gate.opened":
                    opened.set()

        following = asyncio.ensure_future(follow())
        await opened.wait()
        await engine.decide(name, "ask", "fulfil")
        await following
        assert seen == list(range(1, len(seen) + 1))
        assert [e.kind async for e in engine.events(name)][-1] == "run.finished"
        assert [e.seq async for e in engine.events(name, after=4)] == seen[4:]

    with_engine(scenario)


def test_a_reader_who_leaves_early_harms_nobody() -> None:
    async def scenario(engine: Engine) -> None:
        name = await engine.start(asking())
        for _ in range(3):
            async for _event in engine.events(name):
                break
        await engine.decide(name, "ask", "fulfil")
        assert (await engine.wait(name)).status == "completed"

    with_engine(scenario)


# -- life ------------------------------------------------------------------------------------


def test_whoever_still_waits_when_the_engine_closes_is_told() -> None:
    async def whole() -> None:
        async with Engine(":memory:", toolbox=Toolbox()) as engine:
            name = await engine.start(asking())
            waiting = asyncio.ensure_future(engine.wait(name))
            reading = asyncio.ensure_future(_last(engine, name))
            await asyncio.sleep(0.05)
        for hearing in (waiting, reading):
            with pytest.raises(anabranch.AnabranchError, match="the engine is closed"):
                await hearing
        with pytest.raises(RuntimeError, match="not open"):
            await engine.wait(name)

    run(whole())


async def _last(engine: Engine, name: str) -> str:
    return [event.kind async for event in engine.events(name)][-1]


def _at_work() -> Counter[str]:
    """The parts of engines that run on their own in this loop."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return Counter(name for name in names if name != "Event.wait")


def test_an_engine_can_be_opened_again_and_two_at_once_cannot(tmp_path: Path) -> None:
    async def whole() -> None:
        engine = Engine(file_of(tmp_path), toolbox=Toolbox())
        async with engine:
            name = await engine.start(asking())
            before = _at_work()
            with pytest.raises(anabranch.StoreInUse, match="is in use by"):
                async with Engine(file_of(tmp_path), toolbox=Toolbox()):
                    pass
            assert _at_work() == before, "nothing of the refused one is left"
        async with engine:
            await engine.decide(name, "ask", "fulfil")
            assert (await engine.wait(name)).status == "completed"

    run(whole())
