"""A start that is refused takes nothing from another one under the same id."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable
from pathlib import Path

import pytest

from anabranch.errors import AnabranchError
from anabranch.net.net import Net, Step
from anabranch.runtime import writer
from anabranch.runtime.effects import Execute
from anabranch.runtime.live_run import LiveRun
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Definition
from anabranch.store.sqlite.store import SqliteStore
from hangs import HANG_SECONDS

from .support import Doing, Fragile, engine, file_of, playbook, run, start, step, until

TEXT = playbook(step("first", "doing"))
ROUNDS = 40


async def after(rounds: int, act: Awaitable[str]) -> str:
    for _ in range(rounds):
        await asyncio.sleep(0)
    return await act


@pytest.mark.parametrize("kept", ["sqlite", "memory"])
def test_who_starts_again_what_was_refused_has_a_run_that_goes_on(
    kept: str, tmp_path: Path
) -> None:
    dice, doing = random.Random(kept), Doing()
    store = MemoryStore() if kept == "memory" else SqliteStore(file_of(tmp_path))

    async def work() -> None:
        async with engine(store, {"doing": doing}) as made:
            for number in range(ROUNDS):
                name = f"x{number}"
                others = [start(made, TEXT) for _ in range(dice.choice([0, 3, 40]))]
                refused, begun, *_ = await asyncio.gather(
                    start(made, TEXT, run=name, step="nosuch"),
                    after(dice.randrange(30), start(made, TEXT, run=name)),
                    *others,
                    return_exceptions=True,
                )
                assert isinstance(refused, AnabranchError)
                assert refused.code in ("unknown_step", "run_exists")
                assert begun == name
                assert (await made.wait(name)).status == "completed"

    run(work())


def test_the_first_of_many_starts_under_one_id_is_the_run_and_the_others_are_refused() -> None:
    async def work() -> None:
        doing = Doing()
        async with engine(performers={"doing": doing}) as made:
            many = [start(made, TEXT, run="x") for _ in range(5)]
            ends = await asyncio.gather(*many, return_exceptions=True)
            assert [getattr(one, "code", one) for one in ends] == ["x", *["run_exists"] * 4]
            await made.wait("x")
        assert len(doing.tasks) == 1

    run(work())


def test_a_job_whose_run_is_not_in_memory_when_it_is_to_begin_is_done_all_the_same() -> None:
    async def work() -> None:
        doing = Doing()
        async with engine(performers={"doing": doing}) as made:
            execute, lost = made._executor.execute, []

            def lose_first(live: LiveRun | None, effect: Execute) -> None:
                lost.append(effect)
                execute(None if len(lost) == 1 else live, effect)

            made._executor.execute = lose_first  # type: ignore[method-assign]
            assert (await made.wait(await start(made, TEXT))).status == "completed"
        assert [task.attempt for task in doing.tasks] == [2]

    run(work())


def test_a_run_that_ended_and_is_not_written_yet_does_not_begin_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever gave up waiting for a slow disk asks again; two beginnings would stop the engine."""
    monkeypatch.setattr(writer, "SMALL_BATCH", -1)  # each in a thread
    net = Net(name="n", dialect="test", fingerprint="n", steps={"s": Step("s")}, entry="s")
    definition = Definition(fingerprint="n", dialect="test", name="n", source="")
    store, writing, written = Fragile(), threading.Event(), threading.Event()

    def hold(_batch: Batch) -> None:
        writing.set()
        assert written.wait(HANG_SECONDS)

    async def work() -> None:
        async with engine(store) as made:
            store.before = hold
            first = asyncio.ensure_future(made.start(definition, net, run="x"))
            await asyncio.to_thread(writing.wait)
            first.cancel()
            await asyncio.wait([first])
            again = asyncio.ensure_future(made.start(definition, net, run="x"))
            await asyncio.sleep(0.01)
            written.set()
            with pytest.raises(AnabranchError, match="there is a run x already"):
                await again
            await until(lambda: store.head("x") is not None)
            assert (await made.wait("x")).status == "completed"
            assert made.failure is None

    run(work())
