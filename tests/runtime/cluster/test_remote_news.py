"""News of runs of other servers: none is lost when the store could not be read for a moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.errors import StoreError
from anabranch.runtime.cluster import remote_news, remote_runs
from anabranch.runtime.cluster.remote_news import RemoteNews
from anabranch.runtime.cluster.remote_runs import RemoteRuns
from anabranch.store.cluster_ports import RunMoved
from anabranch.store.outages import AWAY
from hangs import HANG_SECONDS

MOVED = RunMoved(run="r", seq=1, status="running", at=1, finished=False, begun=True)


class Shared:
    """A store of whose log one row is new; the first look for it fails."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {0: 0}
        self.looks = 0
        self.asked: list[dict[int, int]] = []

    def positions(self) -> dict[int, int]:
        self.looks += 1
        return dict(self.numbers)

    def moved_since(self, numbers: dict[int, int]) -> list[RunMoved]:
        self.asked.append(numbers)
        if len(self.asked) == 1:
            raise StoreError("no server answers there", code=AWAY)
        return [MOVED]


def test_a_look_that_fails_is_made_again_for_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_news, "REST_ALL_SECONDS", 0.0)
    monkeypatch.setattr(remote_runs, "POLL_SECONDS", 0.01)

    async def work() -> None:
        shared: Any = Shared()
        news = RemoteNews(shared, shared, RemoteRuns(shared, shared, lambda: 1), tuple)
        told: list[RunMoved] = []
        stop = news.listen(told.append)
        async with asyncio.timeout(HANG_SECONDS):
            while not shared.looks:
                await asyncio.sleep(0.01)
            shared.numbers = {0: 1}
            while not told:
                await asyncio.sleep(0.01)
        stop()
        news.close()
        assert told == [MOVED]
        assert shared.asked == [{0: 0}, {0: 0}]

    asyncio.run(work())


def test_whoever_is_ready_misses_nothing_that_comes_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else has listened for long: the next look is that for the news themselves."""
    monkeypatch.setattr(remote_news, "REST_ALL_SECONDS", 0.0)

    async def work() -> None:
        shared: Any = Shared()
        shared.moved_runs = lambda _seen: []
        shared.asked = [{}]  # no look fails
        runs = RemoteRuns(shared, shared, lambda: 1)
        news = RemoteNews(shared, shared, runs, tuple)
        news.listen(lambda _moved: None, "another")
        await asyncio.sleep(0)  # it waits for news
        told: list[RunMoved] = []
        news.listen(told.append)
        await news.ready()
        shared.numbers = {0: 1}
        async with asyncio.timeout(HANG_SECONDS):
            while not told:
                runs.news.set()
                await asyncio.sleep(0.01)
        news.close()
        assert told == [MOVED]

    asyncio.run(work())
