"""What no store can hold is the trouble of one run: the engine and all other runs go on."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import AnabranchError, InputError, StoreError
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import LATEST_MS, State
from anabranch.kernel.values import Answer, ContextPatch, Wait, WakeRequest, succeeded
from anabranch.runtime.child_runs import ChildRuns
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.messages.wakeups import wake_ups
from anabranch.runtime.values.sealing import checked_marks
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Head
from anabranch.store.sqlite.store import SqliteStore
from anabranch.work.port import Parked, Task
from anabranch.work.secrets.redaction import STARS
from anabranch.work.values.payloads import KIND, PLACE, REF

from .support import Doing, chain, engine, gated, run, start, until

MOST = 4_000  # bytes that a store of these tests holds in one value


class Narrow(MemoryStore):
    """Refuses large values as databases do, whoever shares the batch with them."""

    def commit(self, batch: Batch) -> None:
        for each in batch.commits:
            if max(len(each.events), len(each.snapshot or b"")) > MOST:
                raise StoreError("a value is too large", code="store_too_big")
        super().commit(batch)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Narrow:
    caplog.set_level(logging.CRITICAL, "anabranch.engine")  # a run that is set aside is logged
    monkeypatch.setattr(e, "VALUE_BYTES_MAX", MOST)
    return Narrow()


def patch(key: str, letters: int) -> s.PatchContext:
    return s.PatchContext((ContextPatch(key, "x" * letters),))


@pytest.mark.parametrize(
    "parked",
    [
        Parked("child", until=2**63),
        Parked("child", limit_ms=2**63),
        Parked("", until=2**64 - 1, wait=Wait()),
        Parked("child", until=2**63, memory={"at": 1}),
    ],
    ids=["until", "limit", "wait", "memory"],
)
def test_no_instant_that_work_names_stops_the_engine(tmp_path: Path, parked: Parked) -> None:
    async def park(_task: Task) -> Parked:
        return parked

    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.db")
        async with engine(store, {"doing": Doing(park)}) as made:
            name = await start(made, chain(1, "doing"))
            assert (await made.wait(await start(made, chain(2)))).status == "completed"
            assert made.failure is None
            head = store.head(name)
            assert head is not None
            assert (head.status, head.next_wake) == ("waiting", LATEST_MS)
        store.close()

    run(scenario())


@pytest.mark.parametrize(
    "more",
    [{"ttl_seconds": 1e300}, {"ttl_seconds": 10**30}, {"ref": PLACE + "\0"}, {"scope": 7}],
    ids=["long", "longer", "hash", "scope"],
)
def test_no_ref_that_somebody_writes_stops_the_engine(tmp_path: Path, more: Any) -> None:
    """In the input, in a patch, and in what a service answered that work has asked."""
    ref = {"kind": KIND, "ref": PLACE + "0" * 64, **more}

    async def answer(_task: Task) -> Answer:
        return succeeded({"found": {REF: ref}})

    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.db")
        async with engine(store, {"doing": Doing(answer)}) as made:
            await start(made, gated(), input={"x": {REF: ref}})
            name = await start(made, gated())
            await made.send(name, s.PatchContext((ContextPatch("n", {REF: ref}),)))
            await made.wait(await start(made, chain(1, "doing")))
            assert (await made.wait(await start(made, chain(2)))).status == "completed"
            assert made.failure is None
            held = store.held(name)
            assert all(hold.until <= LATEST_MS for hold in held)
        store.close()

    run(scenario())


def test_a_state_that_is_too_large_for_a_snapshot_is_brought_back_by_its_log(
    narrow: Narrow,
) -> None:
    async def scenario() -> None:
        async with engine(narrow, snapshot_every=10) as made:
            name = await start(made, gated())
            for number in range(20):
                await made.send(name, patch(f"n{number}", 1_000))
            assert (await made.wait(await start(made, chain(2)))).status == "completed"
        async with engine(narrow, snapshot_every=10) as made:
            assert len(made.state(name).ctx) == 20
            await made.send(name, patch("go", 1))
            assert (await made.wait(name)).status == "completed"

    run(scenario())


def test_what_one_turn_records_is_refused_where_no_store_holds_it(narrow: Narrow) -> None:
    async def scenario() -> None:
        async with engine(narrow) as made:
            name = await start(made, gated())
            with pytest.raises(AnabranchError, match="over the limit of 4,000"):
                await made.send(name, patch("n", 2 * MOST))
            assert (await made.wait(await start(made, chain(2)))).status == "completed"
        async with engine(narrow) as made:
            await made.send(name, patch("go", 1))
            assert (await made.wait(name)).status == "completed"

    run(scenario())


@pytest.mark.parametrize("mark", [f"{STARS}a\0{STARS}", f"{STARS}{'a' * 300}{STARS}"])
def test_no_mark_of_a_worker_has_a_text_that_not_every_store_knows(mark: str) -> None:
    with pytest.raises(InputError, match="is no mark of a secret"):
        checked_marks({mark: "secret"})


def test_a_rule_wakes_no_run_that_there_cannot_be() -> None:
    asked = (WakeRequest("a\0", "s"), WakeRequest("run-1", "s"), WakeRequest("", "s"))
    answer = Answer(status="ok", wakes=asked)
    fresh = [e.TokenFinished(1, "done", "ok")]
    woken = wake_ups(State(run="r"), fresh, e.JobReported("1.0", 1, answer))
    assert [name for name, _ in woken] == ["run-1"]


def test_what_work_parks_for_is_looked_for_where_a_run_may_be_called_that() -> None:
    class Strict(MemoryStore):
        def head(self, run: str) -> Head | None:
            if "\0" in run:
                raise StoreError("a value cannot be stored", code="store_value")
            return super().head(run)

    async def park(_task: Task) -> Parked:
        return Parked("order\0", memory={"at": 1})

    async def scenario() -> None:
        async with engine(Strict(), {"doing": Doing(park)}) as made:
            name = await start(made, chain(1, "doing"))
            await until(lambda: bool(made.set_aside) or status_of(made.state(name)) == "waiting")
            assert not made.set_aside

    run(scenario())


def test_a_session_of_a_number_that_there_cannot_be_is_not_looked_for(tmp_path: Path) -> None:
    def find(_run: str) -> LiveRun:
        raise AssertionError

    with closing(SqliteStore(tmp_path / "store.db")) as store:
        family = ChildRuns(store, {}, find, "engine")
        for number in ("9" * 18, "9" * 40):
            family.wake(number, s.Wake(step="x", runner="0xowner"))
        assert [len(one.run) for one in family.said] == [18, 40]
