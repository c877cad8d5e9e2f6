"""Parked jobs: no worker waits for them, and the answer comes from outside or from a child run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import (
    AnabranchError,
    InputError,
    MissingRequirements,
    Refused,
    StoreError,
)
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.kernel.step import step as step_in_kernel
from anabranch.kernel.values import Answer, succeeded
from anabranch.net.net import Net
from anabranch.operations.definitions.prepare import prepare
from anabranch.runtime import core
from anabranch.runtime.engine import EngineLoop
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, HeadFilter, Store
from anabranch.store.sqlite.store import SqliteStore
from anabranch.work.port import Parked, Task

from .support import (
    KINDS,
    Doing,
    Fragile,
    asking,
    chain,
    engine,
    file_of,
    log_of,
    playbook,
    run,
    start,
    step,
    until,
)

PARENT = playbook(
    step("ask", "child", "use", args={"x": 1}),
    step("use", "noop", result="{{ steps.ask.result }}"),
    name="parent",
)


class Children:
    """Starts a child run for its task and parks; asked again, it finds the child it started."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.engine: EngineLoop | None = None
        self.started: list[str] = []
        self.before_parking: Any = None

    async def perform(self, task: Task) -> Answer | Parked:
        assert self.engine is not None
        prepared = prepare(self._text, KINDS)
        child = task.key.replace("/", "-") + "-child"
        parent = f"{task.run}/{task.job}#{task.attempt}"
        try:
            await self.engine.start(prepared.definition, prepared.net, run=child, parent=parent)
            self.started.append(child)
        except InputError as error:
            if error.code != "run_exists":
                raise
        if self.before_parking is not None:
            await self.before_parking(child)
        return Parked(child)


async def parents(made: EngineLoop, children: Children, count: int = 1) -> list[str]:
    children.engine = made
    return [await start(made, PARENT) for _ in range(count)]


def child_of(store: Store, parent: str) -> str:
    found = [
        head.run for head in store.heads(HeadFilter()) if (head.parent or "").startswith(parent)
    ]
    (child,) = found
    return child


# -- children --------------------------------------------------------------------------------


def test_a_parent_gets_the_answer_of_its_child() -> None:
    async def scenario() -> None:
        children = Children(playbook(step("only", "noop", result={"n": 7}), name="child"))
        async with engine(performers={"child": children}) as made:
            (parent,) = await parents(made, children)
            state = await made.wait(parent)
            assert state.status == "completed"
            assert state.results["use"] == {"n": 7}
            child = made.state(child_of(made.store, parent))
            assert child.parent == f"{parent}/1.0#1"

    run(scenario())


def test_a_child_that_fails_fails_the_job_of_its_parent() -> None:
    async def scenario() -> None:
        children = Children(playbook(step("only", "doing"), name="child"))

        async def fail(_task: Task) -> Answer:
            raise ValueError("broken")

        async with engine(performers={"child": children, "doing": Doing(fail)}) as made:
            (parent,) = await parents(made, children)
            state = await made.wait(parent)
            assert state.faults[0][0] == "ask"
            assert "ended failed" in state.faults[0][1].message

    run(scenario())


def test_while_the_child_runs_the_parent_holds_no_worker_and_may_leave_memory() -> None:
    async def scenario() -> None:
        children = Children(asking())
        async with engine(performers={"child": children}, jobs_max=1) as made:
            (parent,) = await parents(made, children)
            await until(lambda: made.state(parent).jobs["1.0"].phase == "parked")
            assert made._core.job_queues.at_work == 0
            made._core.evict(made.clock.now(), 0)
            assert made._core.live == {}
            waits = made.state(parent).jobs["1.0"]
            assert waits.ticket == child_of(made.store, parent)
            await made.send(waits.ticket, s.Decide("ask", "fulfil"))
            assert (await made.wait(parent)).status == "completed"

    run(scenario())


def test_the_end_of_a_child_and_its_parents_news_are_one_batch() -> None:
    async def scenario() -> None:
        store, children = Fragile(), Children(asking())
        async with engine(store, {"child": children}) as made:
            (parent,) = await parents(made, children)
            await until(lambda: made.state(parent).jobs["1.0"].phase == "parked")
            child = child_of(store, parent)
            await made.send(child, s.Decide("ask", "reject"))
            await made.wait(parent)
            (last,) = [
                {commit.head.run for commit in batch.commits}
                for batch in store.batches
                if any(c.head.run == child and c.head.finished for c in batch.commits)
            ]
            assert last == {child, parent}

    run(scenario())


@pytest.mark.parametrize("lost", range(1, 9))
def test_a_crash_between_parent_and_child_loses_nothing(lost: int) -> None:
    """Whichever commit is the last one, the parent ends with the child's one answer."""

    async def scenario() -> None:
        store, children = Fragile(), Children(chain(2))

        def before(_batch: Batch) -> None:
            if len(store.batches) >= lost:
                raise StoreError("the power is gone")

        store.before = before
        async with engine(store, {"child": children}) as made:
            try:
                (parent,) = await parents(made, children)
                await made.wait(parent)
            except AnabranchError:
                (parent,) = [h.run for h in store.heads(HeadFilter(name="parent"))]
        store.before = lambda _batch: None
        async with engine(store, {"child": children}) as made:
            children.engine = made
            state = await made.wait(parent)
            assert state.status == "completed"
            assert len(store.heads(HeadFilter())) == 2
        reported = [one for one in log_of(store, parent) if isinstance(one, e.JobReported)]
        assert len(reported) == 2  # the child's, and the one of the last step

    run(scenario())


async def started_and_lost(store: MemoryStore, children: Children) -> str:
    """An engine that ends when the child is there and its parent's job is not parked yet."""

    async def hang(_child: str) -> None:
        await asyncio.Event().wait()

    children.before_parking = hang
    async with engine(store, {"child": children}) as made:
        (parent,) = await parents(made, children)
        await until(lambda: children.started)
    return parent


def test_a_child_that_ended_before_its_parent_was_parked_again_is_still_heard() -> None:
    """The parent's job was lost with its engine; its second attempt finds the child ended."""

    async def scenario() -> None:
        store, children = MemoryStore(), Children(asking())
        parent = await started_and_lost(store, children)
        (child,) = children.started
        async with engine(store, only=[child]) as made:
            await made.send(child, s.Decide("ask", "fulfil"))
            assert (await made.wait(child)).status == "completed"
            assert made.state(parent).jobs["1.0"].attempt == 2
        children.before_parking = None
        async with engine(store, {"child": children}) as made:
            children.engine = made
            assert (await made.wait(parent)).status == "completed"
        assert len(children.started) == 1

    run(scenario())


def test_a_second_attempt_gets_the_answer_of_the_child_the_first_one_started() -> None:
    async def scenario() -> None:
        store, children = MemoryStore(), Children(asking())
        parent = await started_and_lost(store, children)
        children.before_parking = None
        async with engine(store, {"child": children}) as made:
            children.engine = made
            await until(lambda: made.state(parent).jobs["1.0"].phase == "parked")
            await made.send(children.started[0], s.Decide("ask", "fulfil"))
            assert (await made.wait(parent)).status == "completed"

    run(scenario())


def test_many_children_at_once_all_answer() -> None:
    async def scenario() -> None:
        children = Children(chain(3))
        async with engine(performers={"child": children}) as made:
            ends = [await made.wait(one) for one in await parents(made, children, 200)]
            assert {state.status for state in ends} == {"completed"}

    run(scenario())


def test_cancelling_a_parent_cancels_its_child() -> None:
    async def scenario() -> None:
        children = Children(asking())
        async with engine(performers={"child": children}) as made:
            (parent,) = await parents(made, children)
            await until(lambda: made.state(parent).jobs["1.0"].phase == "parked")
            child = child_of(made.store, parent)
            await made.send(parent, s.Cancel("ann", "enough"))
            assert (await made.wait(parent)).status == "cancelled"
            assert (await made.wait(child)).status == "cancelled"

    run(scenario())


def test_cancelling_a_parent_leaves_a_stranger_alone() -> None:
    """A ticket that happens to name a run which is no child of the job."""

    async def scenario() -> None:
        async with engine() as made:
            stranger = await start(made, asking())

        async def park(_task: Task) -> Parked:
            return Parked(stranger)

        async with engine(made.store, {"child": Doing(park)}) as made:
            parent = await start(made, PARENT)
            await until(lambda: made.state(parent).jobs["1.0"].phase == "parked")
            await made.send(parent, s.Cancel())
            assert (await made.wait(parent)).status == "cancelled"
            assert not made.state(stranger).finished

    run(scenario())


# -- parents that are set aside --------------------------------------------------------------


#: A parent between two others: its child asks, and it is itself the child of `PARENT`.
MIDDLE = playbook(
    step("ask", "second", "use"),
    step("use", "noop", result="{{ steps.ask.result }}"),
    name="middle",
)
PARENTS = ("parent", "middle")


class Generations:
    """Those performers with a new engine each time, on one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._kinds = {"child": Children(MIDDLE), "second": Children(asking())}

    @asynccontextmanager
    async def engine(self, **more: Any) -> AsyncIterator[EngineLoop]:
        async with engine(self.store, self._kinds, **more) as made:
            for each in self._kinds.values():
                each.engine = made
            yield made

    async def begin(self) -> tuple[str, str]:
        """The oldest, and the youngest when both others wait."""
        async with self.engine() as made:
            oldest = await start(made, PARENT)
            await until(lambda: self.statuses().get("asking") == "waiting")
            await until(lambda: set(self.statuses().values()) == {"waiting"})
            (youngest,) = self._kinds["second"].started
        return oldest, youngest

    def statuses(self) -> dict[str, str]:
        return {head.name: head.status for head in self.store.heads(HeadFilter())}


def missing_for(names: Sequence[str]) -> Callable[[Net, State], None]:
    def require(net: Net, _state: State) -> None:
        if net.name in names:
            raise MissingRequirements(f"{net.name} needs what is not here", ["tool"])

    return require


@pytest.mark.parametrize("aside", [PARENTS, PARENTS[:1], PARENTS[1:]], ids="-".join)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_parent_that_was_set_aside_while_its_child_ended_hears_of_it_from_the_next_engine(
    kind: str, aside: Sequence[str], tmp_path: Path
) -> None:
    async def scenario() -> None:
        store = MemoryStore() if kind == "memory" else SqliteStore(file_of(tmp_path))
        generations = Generations(store)
        oldest, youngest = await generations.begin()
        async with generations.engine(require=missing_for(aside)) as made:
            await made.send(youngest, s.Decide("ask", "fulfil"))
            assert (await made.wait(youngest)).status == "completed"
            assert generations.statuses()["parent"] != "completed"
        async with generations.engine(require=missing_for(aside)):
            assert generations.statuses()["parent"] != "completed"
        async with generations.engine() as made:
            assert (await made.wait(oldest)).status == "completed"

    run(scenario())


def test_a_parent_that_cannot_take_the_answer_of_its_child_hears_it_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect of ours in the turn in which the child ends; the next version has it mended."""

    def defect(net: Net, state: State, stimulus: s.Stimulus, *more: Any) -> list[e.Event]:
        if net.name == "middle" and isinstance(stimulus, s.JobReport):
            raise ZeroDivisionError("ours")
        return step_in_kernel(net, state, stimulus, *more)

    async def scenario() -> None:
        caplog.set_level(logging.CRITICAL, "anabranch.engine")
        generations = Generations(MemoryStore())
        oldest, youngest = await generations.begin()
        with monkeypatch.context() as patch:
            patch.setattr(core, "step", defect)
            async with generations.engine() as made:
                await made.send(youngest, s.Decide("ask", "fulfil"))
                assert (await made.wait(youngest)).status == "completed"
                assert [type(why) for why in made.set_aside.values()] == [ZeroDivisionError]
        async with generations.engine() as made:
            assert (await made.wait(oldest)).status == "completed"

    run(scenario())


# -- answers from outside --------------------------------------------------------------------


def parked_engine() -> dict[str, Doing]:
    async def park(_task: Task) -> Parked:
        return Parked("order-7")

    return {"child": Doing(park)}


def test_a_parked_job_takes_its_answer_from_outside_once() -> None:
    async def scenario() -> None:
        async with engine(performers=parked_engine()) as made:
            parent = await start(made, PARENT)
            await until(lambda: made.state(parent).jobs["1.0"].phase == "parked")
            answer = s.JobReport("1.0", 1, succeeded({"result": 5}))
            await made.send(parent, answer)
            state = await made.wait(parent)
            assert state.results["use"] == 5
            with pytest.raises(Refused, match="has ended"):
                await made.send(parent, answer)

    run(scenario())


@pytest.mark.parametrize(
    ("job", "attempt", "code"),
    [("9.0", 1, "unknown_job"), ("1.0", 2, "stale_attempt"), ("", 0, "unknown_job")],
)
def test_a_report_for_an_unknown_job_or_attempt_is_refused_and_changes_nothing(
    job: str, attempt: int, code: str
) -> None:
    async def scenario() -> None:
        async with engine(performers=parked_engine()) as made:
            parent = await start(made, PARENT)
            await until(lambda: made.state(parent).jobs["1.0"].phase == "parked")
            before = log_of(made.store, parent)
            with pytest.raises(Refused) as refused:
                await made.send(parent, s.JobReport(job, attempt, succeeded("x")))
            assert refused.value.code == code
            assert log_of(made.store, parent) == before

    run(scenario())


def test_a_parked_job_that_is_never_answered_ends_in_time() -> None:
    async def scenario() -> None:
        clock_ms: list[int] = []

        async def park(_task: Task) -> Parked:
            return Parked("order-7", clock_ms[0] + 200)

        async with engine(performers={"child": Doing(park)}) as made:
            clock_ms.append(made.clock.now())
            state = await made.wait(await start(made, PARENT))
            assert state.faults[0][1].kind == "timeout"

    run(scenario())
