"""Small batches are committed in place, unless the disk is slow; the order stays either way."""

from __future__ import annotations

import threading
from functools import partial

from anabranch.runtime.writer import SLOW_SECONDS, Writer
from anabranch.store.ports import Batch, Record

from .support import run


class Journal:
    """Notes where each batch is committed; a commit takes as long as it is told to."""

    def __init__(self) -> None:
        self.places: list[bool] = []  # in place?
        self.order: list[int] = []
        self.now = 0.0
        self.takes = 0.0

    def commit(self, batch: Batch) -> None:
        self.places.append(threading.current_thread() is threading.main_thread())
        self.order.append(next(iter(batch.answers)))
        self.now += self.takes

    def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Record]:
        raise NotImplementedError

    def weight(self, run: str, after: int, limit: int) -> tuple[int, int]:
        raise NotImplementedError

    def read_many(self, runs: object) -> dict[str, tuple[None, list[Record]]]:
        raise NotImplementedError


def test_a_slow_disk_is_written_to_on_the_thread_until_it_is_quick_again() -> None:
    journal = Journal()

    async def scenario() -> None:
        hand = Writer(journal, seconds=lambda: journal.now)
        released: list[int] = []
        for number in range(60):
            journal.takes = 4 * SLOW_SECONDS if 10 <= number < 30 else SLOW_SECONDS / 10
            await hand.write(Batch(answers={number: b""}), partial(released.append, number))
            assert number in released or hand.busy  # effects leave after the commit, never before
        await hand.drain()
        hand.close()
        assert released == journal.order == list(range(60))

    run(scenario())
    assert all(journal.places[:10])
    assert not any(journal.places[15:30])
    assert all(journal.places[50:])
