"""In a server a turn of the engine is taken in slices: others have the event loop in between, and
whatever they do with it, runs come to the same."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, cast

import pytest
from msgspec.structs import replace

from anabranch.clock import SystemClock
from anabranch.errors import AnabranchError, Refused, StoreError
from anabranch.expressions.budget import BREATHE_WORK, pause
from anabranch.kernel import stimuli as s
from anabranch.kernel.events import ContextPatched, JobReported
from anabranch.kernel.values import ContextPatch, Fault
from anabranch.runtime import recovery, slices
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.jobs import executor
from anabranch.runtime.live_run import SHORT_LOG, load_state
from anabranch.runtime.slices import Slices
from anabranch.store.memory.cluster import MemoryServer, SharedMemory
from anabranch.store.memory.store import MemoryStore
from anabranch.store.outages import AWAY
from anabranch.store.ports import Store
from hangs import HANG_SECONDS
from seeds import seeds

from .support import Doing, engine, forever, log_of, playbook, run, start, step, until

#: A seventh of what a turn may take, in many small parts.
HEAVY = "range(100000) | map('abs') | sum > 0"
LONG = "range(25000) | map('abs') | sum > 0"  # long enough for two looks


@pytest.fixture(autouse=True)
def as_often_as_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever work may pause, it does."""
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)


@asynccontextmanager
async def counted() -> AsyncIterator[Callable[[], int]]:
    """How often the event loop went round."""
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    yield lambda: rounds
    counting.cancel()


def test_the_event_loop_turns_while_a_guard_is_evaluated() -> None:
    async def rounds(sharing: bool) -> int:
        arcs = [{"step": name, "when": f"{{{{ {HEAVY} }}}}"} for name in ("a", "b", "c")]
        then = {"spec": {"mode": "inclusive"}, "arcs": arcs}
        text = playbook(step("first", next=then), *(step(name) for name in ("a", "b", "c")))
        async with engine(sharing=sharing) as made, counted() as count:
            state = await made.wait(await start(made, text))
            assert state.status == "completed"
            return count()

    async def work() -> None:
        alone, shared = await rounds(False), await rounds(True)
        assert shared > alone + 20, "3 guards of 9 Mi units, and a look after each half"

    run(work())


def test_inputs_that_take_long_are_worked_out_beside_the_event_loop() -> None:
    doing = Doing()
    heavy = f"{{{{ {HEAVY} }}}}"
    arcs = [{"step": f"s{n}"} for n in range(6)]
    many = [step(f"s{n}", "doing", heavy=heavy, n=n) for n in range(6)]
    text = playbook(step("first", next={"arcs": arcs, "spec": {"mode": "inclusive"}}), *many)

    async def work() -> None:
        async with engine(performers={"doing": doing}, sharing=True) as made, counted() as count:
            state = await made.wait(await start(made, text))
            assert (state.status, count() > 100) == ("completed", True)

    run(work())
    assert sorted(task.inputs["n"] for task in doing.tasks) == list(range(6))
    assert all(task.inputs["heavy"] is True for task in doing.tasks)


def test_inputs_that_take_too_much_fail_their_job_like_others_that_are_wrong() -> None:
    async def fault(**inputs: str) -> Fault:
        store = MemoryStore()
        async with engine(store, {"doing": Doing()}) as made:
            name = await start(made, playbook(step("first", "doing", **inputs)))
            assert (await made.wait(name)).status == "failed"
        [report] = [one for one in log_of(store, name) if isinstance(one, JobReported)]
        assert report.answer.fault is not None
        return report.answer.fault

    async def work() -> None:
        wrong = await fault(x="{{ 'text' + 1 }}")
        too_much = await fault(**{f"x{n}": f"{{{{ {HEAVY} }}}}" for n in range(8)})
        assert "turn_work_max is 67,108,864" in too_much.message
        assert replace(too_much, message="") == replace(wrong, message="")

    run(work())


def test_jobs_begin_a_few_at_a_time_where_all_their_inputs_take_long() -> None:
    """No job takes long, and forty of them do."""
    doing = Doing()
    some = "{{ range(4000) | map('abs') | sum }}"
    arcs = [{"step": f"s{n}"} for n in range(40)]
    text = playbook(
        step("first", next={"arcs": arcs, "spec": {"mode": "inclusive"}}),
        *(step(f"s{n}", "doing", n=some) for n in range(40)),
    )

    async def rounds(sharing: bool) -> int:
        performers = {"doing": doing}
        async with engine(performers=performers, sharing=sharing) as made, counted() as count:
            state = await made.wait(await start(made, text))
            assert state.status == "completed"
            return count()

    async def work() -> None:
        assert await rounds(False) > 10, "in a program, too"
        assert await rounds(True) > 10

    run(work())
    assert len(doing.tasks) == 80


def test_jobs_begin_a_few_at_a_time_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where their inputs take nothing."""
    monkeypatch.setattr(executor, "JOB_WORK", BREATHE_WORK // 10 + 1)
    begun = Counter[int]()  # by round of the event loop
    arcs = [{"step": f"s{n}"} for n in range(100)]
    text = playbook(
        step("first", next={"arcs": arcs, "spec": {"mode": "inclusive"}}),
        *(step(f"s{n}", "doing") for n in range(100)),
    )

    async def work() -> None:
        async with engine(performers={"doing": Doing()}) as made, counted() as count:
            begin = made._executor._begin

            def noted(*given: Any) -> None:
                begun[count()] += 1
                begin(*given)

            monkeypatch.setattr(made._executor, "_begin", noted)
            assert (await made.wait(await start(made, text))).status == "completed"

    run(work())
    assert begun.total() >= 100
    assert max(begun.values()) <= 10


def test_jobs_that_were_put_off_are_handed_back_at_the_end() -> None:
    doing, store = Doing(), MemoryStore()
    some = "{{ range(10000) | map('abs') | sum }}"
    arcs = [{"step": f"s{n}"} for n in range(40)]
    text = playbook(
        step("first", next={"arcs": arcs, "spec": {"mode": "inclusive"}}),
        *(step(f"s{n}", "doing", n=some) for n in range(40)),
    )

    async def work() -> None:
        async with engine(store, {"doing": doing}) as made:
            name = await start(made, text)
            while not doing.tasks:
                await asyncio.sleep(0)
            assert len(doing.tasks) < 40
        async with engine(store, {"doing": doing}) as made:
            state = await made.wait(name)
            assert state.status == "completed"

    run(work())
    assert {task.step for task in doing.tasks} == {f"s{n}" for n in range(40)}


class SlowToRead(MemoryStore):
    """Reads logs only once the event loop has had a turn."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.turned = threading.Event(), threading.Event()
        self.waited: list[bool] = []

    def read_many(self, runs: Sequence[str]) -> Any:
        self.asked.set()
        self.waited.append(self.turned.wait(HANG_SECONDS / 10))
        return super().read_many(runs)


def test_the_event_loop_turns_while_a_run_is_brought_into_memory() -> None:
    store = SlowToRead()

    async def work() -> None:
        async with engine(store, {"doing": Doing()}, sharing=True) as made:
            name = await start(made, held())
            for n in range(SHORT_LOG):
                await made.send(name, s.PatchContext((ContextPatch("n", n),), "a test"))
            assert made._core.evict(made.clock.now(), 0) == 1
            sending = asyncio.create_task(
                made.send(name, s.PatchContext((ContextPatch("go", True),), "a test"))
            )
            while not store.asked.is_set():
                await asyncio.sleep(0)
            store.turned.set()
            await sending
            assert (await made.wait(name)).status == "completed"

    run(work())
    assert store.waited == [True]


# -- whatever others do meanwhile --------------------------------------------------------------


def held(*before: dict[str, Any]) -> str:
    """Asks again, whenever something is written, whether it may go on."""
    rules = [
        {"when": f"{{{{ ctx.go and {LONG} or ({LONG} and false) }}}}", "then": {"allow": True}}
    ]
    return playbook(
        *before,
        step("held", "noop", "after", spec={"policy": {"admit": {"rules": rules}}}),
        step("after", "doing"),
    )


class Crowd:
    """Several at once, who do whatever they may with a few runs."""

    def __init__(self, made: EngineLoop, runs: list[str], seed: int) -> None:
        self.made, self.runs = made, runs
        self.dice = random.Random(seed)
        self.written: dict[str, set[str]] = {name: set() for name in runs}  # and acknowledged

    async def act(self, number: int) -> None:
        for turn in range(6):
            name = self.dice.choice(self.runs)
            match self.dice.randrange(5):
                case 0 | 1:
                    key = f"k{number}_{turn}"
                    patch = s.PatchContext((ContextPatch(key, turn),), "a test")
                    await self._send(name, patch)
                    self.written[name].add(key)
                case 2:
                    with suppress(StoreError):  # it is away for a moment
                        state = self.made.state(name)
                        assert state.run == name
                        await self.made.view_run(name)
                case 3:
                    with suppress(Refused):  # somebody else has paused it, or let it go on
                        await self._send(name, s.Pause("a test", ""))
                        await self._send(name, s.Resume("a test"))
                case _:
                    await self._start()
            for _ in range(self.dice.randrange(4)):
                await asyncio.sleep(0)

    async def start_some(self, store: AwayOnce) -> None:
        """While runs are brought back."""
        before = store.readings
        while store.readings == before:
            await asyncio.sleep(0)
        begun = [asyncio.create_task(self._start()) for _ in range(self.dice.randrange(4))]
        await asyncio.gather(*begun)

    async def _start(self) -> None:
        with suppress(StoreError):
            name = await start(self.made, held())
            self.runs.append(name)
            self.written[name] = set()

    async def _send(self, name: str, stimulus: s.Stimulus) -> None:
        """As clients do that are told 503."""
        while True:
            try:
                return await self.made.send(name, stimulus)
            except StoreError:
                await asyncio.sleep(0.01)

    async def end(self, store: MemoryStore) -> None:
        """Every run goes on to its end, with all that was acknowledged, once."""
        for name in self.runs:
            await self._send(name, s.PatchContext((ContextPatch("go", True),), "a test"))
        for name in self.runs:
            state = await self.made.wait(name)
            assert state.status == "completed"
            assert set(state.ctx) == {*self.written[name], "go"}
            patched = [one for one in log_of(store, name) if isinstance(one, ContextPatched)]
            assert len(patched) == len(self.written[name]) + 1
            stored = load_state(*store.read_many([name])[name], name)
            assert stored == state


@pytest.mark.parametrize("seed", seeds(60, least=3))
def test_whatever_others_do_in_between_nothing_is_lost_and_nothing_happens_twice(seed: int) -> None:
    doing, store = Doing(), MemoryStore()

    async def work() -> None:
        async with engine(store, {"doing": doing}, sharing=True) as made:
            crowd = Crowd(made, [await start(made, held()) for _ in range(3)], seed)
            await asyncio.gather(*(crowd.act(number) for number in range(4)))
            await crowd.end(store)
            assert len(doing.tasks) == len(crowd.runs)

    run(work())


class AwayOnce(MemoryServer):
    """Away for one reading of runs, in the midst of bringing many back."""

    readings = 0  # until then

    def read_many(self, runs: Sequence[str]) -> Any:
        self.readings -= 1
        if self.readings == 0:
            self.cluster.failed_reads += 1
            raise StoreError("the connection is lost", code=AWAY)
        return self._store.read_many(runs)


@pytest.mark.parametrize("seed", seeds(60, least=4))
def test_runs_of_another_server_come_back_while_others_go_on(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "READ_AT_ONCE", 1)
    shared, doing = SharedMemory(4, SystemClock().now), Doing()
    store = AwayOnce(shared, "stays")

    def server(store: MemoryServer, performer: Doing) -> AbstractAsyncContextManager[EngineLoop]:
        return engine(cast(Store, store), {"doing": performer}, sharing=True)

    async def work() -> None:
        async with server(store, doing) as stays:
            async with server(MemoryServer(shared, "leaves"), Doing(forever)) as leaves:
                await until(lambda: owned(leaves) == owned(stays) == 2)
                begun = [await start(leaves, held(step("work", "doing", "held"))) for _ in range(9)]
                crowd = Crowd(stays, list(begun), seed)
                store.readings = seed % 12
                acting = asyncio.gather(*(crowd.act(number) for number in range(4)))
                starting = asyncio.create_task(crowd.start_some(store))
            await until(lambda: owned(stays) == 4)
            await asyncio.gather(acting, starting)
            await crowd.end(shared.store)
            assert len(doing.tasks) == len(crowd.runs) + len(begun)

    run(work())


def owned(made: EngineLoop) -> int:
    assert made.member is not None
    return made.member.owned


# -- the slices themselves ---------------------------------------------------------------------


def test_work_is_done_to_its_end_where_nobody_waits_for_it_any_more() -> None:
    seen: list[int] = []

    def count() -> int:
        for number in range(100):
            seen.append(number)
            pause()
        return len(seen)

    async def work() -> None:
        made = Slices()
        waiting = asyncio.create_task(made.do(count))
        while len(seen) < 5:
            await asyncio.sleep(0)
        assert len(seen) < 100
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(seen) == 100
        assert await made.do(lambda: "and the next") == "and the next"
        made.close()

    run(work())


def test_what_goes_wrong_in_a_slice_is_raised_to_who_waits() -> None:
    def fail() -> None:
        pause()
        raise AnabranchError("it went wrong", code="wrong")

    async def work() -> None:
        made = Slices()
        with pytest.raises(AnabranchError, match="it went wrong"):
            await made.do(fail)
        assert await made.do(lambda: 1) == 1
        made.close()
        made.close()

    run(work())


def test_a_loop_that_is_watched_for_mistakes_does_the_work_itself() -> None:
    """In such a loop another thread may call nothing."""

    async def work() -> None:
        asyncio.get_running_loop().set_debug(True)
        async with engine(sharing=True) as made:
            assert (await made.wait(await start(made, playbook(step("a"))))).status == "completed"

    run(work())
