"""A run that cannot go on stops alone: the others do not notice, and whoever waits is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from anabranch.errors import AnabranchError, NotFound
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer, ContextPatch, succeeded
from anabranch.net.net import Arc, Branch, Decision, Net, Step, Work
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.messages.codec import read_answer, write_message
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Definition, HeadFilter
from anabranch.work.port import Task

from .support import Doing, asking, chain, engine, forever, run, start, until

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What is set aside is logged; here that is expected."""
    caplog.set_level(logging.CRITICAL, "anabranch.engine")


class Broken:
    """An expression with a defect of ours, or one whose error comes where none is expected."""

    text = "broken"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def evaluate(self, names: Mapping[str, Any]) -> Any:  # noqa: ARG002 - the port's signature
        raise self._error


def net_with(error: Exception) -> Net:
    """The guard of the first step's arc fails in a way the kernel does not foresee."""
    arc = Arc("second", Broken(error))
    return Net(
        name="broken",
        dialect="test",
        fingerprint=f"broken-{type(error).__name__}",
        steps={
            "first": Step("first", work=Work("doing"), branches=(Branch(arcs=(arc,)),)),
            "second": Step("second", work=Work("doing")),
        },
        entry="first",
    )


def half_way() -> Net:
    """A question that fails when it is looked at, after the answer has been recorded."""
    decision = Decision("?", when=Broken(NotFound("too late to refuse")))
    step = Step("first", work=Work("doing"), decision=decision)
    return Net(
        name="half-way", dialect="test", fingerprint="half", steps={"first": step}, entry="first"
    )


async def start_net(made: EngineLoop, net: Net) -> str:
    definition = Definition(
        fingerprint=net.fingerprint, dialect=net.dialect, name=net.name, source=""
    )
    return await made.start(definition, net)


@pytest.mark.parametrize(
    "net", [net_with(ZeroDivisionError("ours")), half_way()], ids=["defect", "half-way"]
)
def test_who_waits_for_a_run_that_is_set_aside_is_told_and_the_others_go_on(net: Net) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store, {"doing": Doing()}) as made:
            others = [await start(made, chain(3, "doing")) for _ in range(5)]
            name = await start_net(made, net)
            heard = await asyncio.gather(made.wait(name), _read(made, name), return_exceptions=True)
            assert all(f"run {name} is set aside" in str(one) for one in heard)
            with pytest.raises(AnabranchError, match="is set aside"):
                await _read(made, name)
            with pytest.raises(AnabranchError, match="is set aside"):
                await made.send(name, s.Cancel())
            ends = [(await made.wait(one)).status for one in others]
            assert ends == ["completed"] * 5
            assert made._core.job_queues.at_work == 0
        head = store.head(name)
        assert head is not None
        assert head.status == "running"  # what was durable stays as it was

    run(scenario())


async def _read(made: EngineLoop, name: str) -> list[Any]:
    return [event async for event in made.events(name)]


def test_nothing_that_shared_the_turn_with_the_defect_is_reported_as_done() -> None:
    """Two decisions and a defect arrive together: none of them is durable, all are told so."""

    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store, {"doing": Doing(forever)}) as made:
            name = await start_net(made, net_with(ZeroDivisionError("ours")))
            await until(lambda: made._core.job_queues.at_work == 1)
            patch = s.PatchContext((ContextPatch("x", 1),))
            report = s.JobReport("1.0", 1, succeeded("x"))
            answers = await asyncio.gather(
                made.send(name, patch), made.send(name, report), return_exceptions=True
            )
            assert [type(one) for one in answers] == [AnabranchError, AnabranchError]
            head = store.head(name)
            assert head is not None
            assert head.seq == 4  # started, created, scheduled, started

    run(scenario())


def test_a_job_that_cannot_even_be_started_sets_only_its_run_aside() -> None:
    """Its start was in the same turn, so there is no such run at all."""

    async def scenario() -> None:
        work = Work("doing", timeout_ms="soon")  # type: ignore[arg-type]
        steps = {"only": Step("only", work=work)}
        net = Net(name="odd", dialect="test", fingerprint="odd", steps=steps, entry="only")
        store = MemoryStore()
        async with engine(store, {"doing": Doing()}) as made:
            good = await start(made, chain(3, "doing"))
            with pytest.raises(AnabranchError, match="is set aside"):
                await start_net(made, net)
            assert (await made.wait(good)).status == "completed"
        assert [head.run for head in store.heads(HeadFilter())] == [good]

    run(scenario())


def test_the_work_of_a_run_that_is_set_aside_is_stopped() -> None:
    async def scenario() -> None:
        stopped = asyncio.Event()

        async def until_stopped(task: Task) -> Answer:
            if task.step == "first" and task.attempt == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()
            return succeeded("x")

        async with engine(performers={"doing": Doing(until_stopped)}) as made:
            name = await start_net(made, net_with(ZeroDivisionError("ours")))
            await until(lambda: made._core.job_queues.at_work == 1)
            with pytest.raises(AnabranchError):
                await made.send(name, s.JobReport("1.0", 1, succeeded("from elsewhere")))
            await stopped.wait()

    run(scenario())


def test_a_message_to_a_run_that_is_set_aside_is_answered() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store, {"doing": Doing()}) as made:
            name = await start_net(made, net_with(ZeroDivisionError("ours")))
            with pytest.raises(AnabranchError):
                await made.wait(name)
            number = store.post(name, write_message(s.Cancel("ann")), 1)
            await until(lambda: store.unanswered() == [])
            message = store.message(number)
            assert message is not None
            assert message.answer is not None
            assert "is set aside" in read_answer(message.answer).message

    run(scenario())


def test_an_answer_that_cannot_be_written_down_sets_only_its_run_aside() -> None:
    async def scenario() -> None:
        async def odd(_task: Task) -> Answer:
            return succeeded("fine", patches=(ContextPatch("x", object()),))

        performers = {"first": Doing(odd), "second": Doing()}
        async with engine(performers=performers) as made:
            good = await start(made, chain(5, "second"))
            bad = await start(made, chain(1, "first"))
            with pytest.raises(AnabranchError, match="is set aside"):
                await made.wait(bad)
            assert (await made.wait(good)).status == "completed"

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (succeeded({"x": object()}), "result", "the result is not JSON"),
        (succeeded({(1, 2): "x"}), "result", "the result is not JSON"),
        ("no answer at all", "defect", "gave a str for an answer"),
        (None, "defect", "gave a NoneType for an answer"),
    ],
)
def test_an_answer_that_is_none_fails_its_step_with_the_reason(
    answer: Any, kind: str, words: str
) -> None:
    async def scenario() -> None:
        async def give(_task: Task) -> Answer:
            return answer  # type: ignore[no-any-return]

        async with engine(performers={"doing": Doing(give)}) as made:
            state = await made.wait(await start(made, chain(1, "doing")))
            assert state.status == "failed"
            assert state.problem is not None
            assert state.problem.kind == kind
            assert words in state.problem.message

    run(scenario())


# -- found at the start ----------------------------------------------------------------------


class Forgetful(MemoryStore):
    """A store in which something has been tampered with."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten: set[str] = set()
        self.garbled: dict[str, bytes] = {}

    def definition(self, fingerprint: str) -> Definition | None:
        found = super().definition(fingerprint)
        if found is not None and found.name in self.forgotten:
            return msgspec.structs.replace(found, source="workflow: [{step: gone, next: 7}]\n")
        return found

    def read_many(self, runs: Any) -> Any:
        found = dict(super().read_many(runs))
        for name, events in self.garbled.items():
            if name in found:
                snapshot, rows = found[name]
                found[name] = (snapshot, [msgspec.structs.replace(rows[0], events=events)])
        return found


@pytest.mark.parametrize("how", ["definition", "log"])
def test_a_run_that_cannot_be_brought_back_does_not_keep_the_others_from_going_on(
    how: str,
) -> None:
    async def scenario() -> None:
        store = Forgetful()
        async with engine(store, {"doing": Doing(forever)}) as made:
            bad = await start(made, chain(1, "doing"))
            good = [await start(made, chain(2, "doing")) for _ in range(3)]
        if how == "definition":
            store.forgotten = {"chain-1-doing"}
        else:
            store.garbled = {bad: b'[["run.dreamt", 1]]'}
        async with engine(store, {"doing": Doing()}) as made:
            ends = [(await made.wait(one)).status for one in good]
            assert ends == ["completed"] * 3
            with pytest.raises(AnabranchError, match=f"run {bad} is set aside"):
                await made.wait(bad)
        assert [head.run for head in store.heads(HeadFilter(statuses=("running",)))] == [bad]

    run(scenario())


def test_a_definition_that_no_longer_compiles_is_named_and_can_be_mended() -> None:
    async def scenario() -> None:
        store = Forgetful()
        async with engine(store) as made:
            name = await start(made, asking())
        store.forgotten = {"asking"}
        async with engine(store) as made:
            with pytest.raises(AnabranchError, match="next"):
                await made.send(name, s.Decide("ask", "fulfil"))
        store.forgotten = set()
        async with engine(store) as made:
            await made.send(name, s.Decide("ask", "fulfil"))
            assert (await made.wait(name)).status == "completed"

    run(scenario())
