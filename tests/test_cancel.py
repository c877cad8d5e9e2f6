"""Cancelling a task and waiting for its end."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from anabranch.cancel import cancel_and_wait
from anabranch.surfaces.http.io.work_shapes import Watched
from anabranch.surfaces.worker.cancel_watch import CancelPoller
from hangs import HANG_SECONDS


async def stubborn(ends: asyncio.Event) -> None:
    """Ends when it may, not when it is cancelled."""
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await ends.wait()


def test_whoever_waits_for_a_cancelled_task_can_be_cancelled_too() -> None:
    async def scene() -> None:
        ends = asyncio.Event()
        inner = asyncio.ensure_future(stubborn(ends))
        await asyncio.sleep(0)
        went_on = False

        async def outer() -> None:
            nonlocal went_on
            await cancel_and_wait(inner)
            went_on = True

        waiting = asyncio.ensure_future(outer())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not went_on
        ends.set()
        await inner

    asyncio.run(scene())


def test_it_waits_for_the_end_and_tells_of_a_failure_unless_that_is_ignored() -> None:
    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("lost")

    async def scene() -> None:
        first, second = asyncio.ensure_future(fails()), asyncio.ensure_future(fails())
        good = asyncio.ensure_future(asyncio.sleep(3600))
        await asyncio.sleep(0)
        await cancel_and_wait(good, first, ignore=KeyError)
        assert good.cancelled()
        assert first.done()
        with pytest.raises(KeyError, match="lost"):
            await cancel_and_wait(second)
        await cancel_and_wait()

    asyncio.run(scene())


class Answering:
    """A server that answers a question about jobs after as many turns of the event loop."""

    worker = "w"

    def __init__(self, turns: int) -> None:
        self._turns = turns

    async def json(self, *_call: object, **_how: object) -> Watched:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        return Watched(stop=[])


@pytest.mark.parametrize("turns", range(12))
def test_a_worker_stops_listening_at_whatever_moment_it_is_told(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment that once was missed: the question is answered, its end is awaited."""
    monkeypatch.setattr("anabranch.surfaces.worker.cancel_watch.MOMENT_SECONDS", 0)

    async def listens(moment: int) -> None:
        async with CancelPoller(Answering(turns)) as watch:  # type: ignore[arg-type]
            watch.over(("run", "job", 1))
            for _ in range(moment):
                await asyncio.sleep(0)
            watch.forget(("run", "job", 1))

    async def scene() -> None:
        for moment in range(12):
            listening = asyncio.ensure_future(listens(moment))
            _, pending = await asyncio.wait([listening], timeout=HANG_SECONDS)
            assert not pending, f"still listening, told to stop at turn {moment}"

    asyncio.run(scene())
