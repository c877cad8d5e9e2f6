"""What every backend keeps, on a real cluster with two slots.

A subclass has a fixture `cluster`. Its `backend(options, entry=…)` makes a backend that is not
open, `heal()` puts the cluster in order, `kill_scheduler()` and `heal()` restart it at its address.
The deeds of the tests are in `deeds.py`.

The tests of `BackendSuite` have one pool in turn (the fixture `kept`), since to open one takes
longer than most of them; so no two of them have tickets of the same name.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Protocol

import pytest

from anabranch.cancel import cancel_and_wait
from anabranch.pools.backend import (
    BackendAway,
    BackendUnfit,
    CameBack,
    Capacity,
    Event,
    Finished,
    Lost,
    PoolBackend,
    Progressed,
    Started,
    Unusable,
    WentAway,
)
from hangs import HANG_SECONDS
from in_loop import in_loop
from pools.deeds import blob
from seeds import SHARE

LARGE = 50_000_000 if SHARE >= 1 else 5_000_000
OPEN_TRIES = 4
MANY = 10_000 if SHARE >= 1 else 120
WINDOW = 16


class Cluster(Protocol):
    @property
    def url(self) -> str: ...

    @property
    def dashboard(self) -> str:
        """The address of its own pages; "" where it has none."""

    @property
    def size(self) -> tuple[int, int]:
        """How many slots and how many workers it has."""

    def backend(self, options: str = "", *, entry: str = ...) -> PoolBackend: ...

    def heal(self) -> None: ...

    def kill_scheduler(self) -> None: ...


class OpenPool:
    """A backend that is open, and everything that it has told."""

    def __init__(self, backend: PoolBackend, capacity: Capacity) -> None:
        self.backend = backend
        self.capacity = capacity
        self.seen: list[Event] = []
        self.ends = 0  # how many tickets have ended
        self._told = asyncio.Condition()
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for batch in self.backend.events():
            async with self._told:
                self.seen.extend(batch)
                self.ends += sum(isinstance(one, Finished | Lost | Unusable) for one in batch)
                self._told.notify_all()

    async def submit(self, do: str, ticket: str, payload: bytes = b"", **words: Any) -> str:
        await self.backend.submit(ticket, blob(do, ticket, payload, **words))
        return ticket

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_SECONDS), self._told:
            await self._told.wait_for(wanted)

    def of(self, ticket: str) -> list[Event]:
        return [one for one in self.seen if getattr(one, "ticket", None) == ticket]

    def ends_of(self, ticket: str) -> list[Event]:
        return [one for one in self.of(ticket) if isinstance(one, Finished | Lost | Unusable)]

    async def end(self, ticket: str) -> Event:
        await self.until(lambda: bool(self.ends_of(ticket)))
        return self.ends_of(ticket)[0]

    async def ended(self, count: int) -> None:
        """So many tickets at least."""
        await self.until(lambda: self.ends >= count)

    async def start(self, ticket: str) -> Started:
        def starts() -> list[Started]:
            return [one for one in self.of(ticket) if isinstance(one, Started)]

        await self.until(lambda: bool(starts()))
        return starts()[0]

    async def words(self, ticket: str) -> bytes:
        """The first progress."""

        def told() -> list[bytes]:
            return [one.said for one in self.of(ticket) if isinstance(one, Progressed)]

        await self.until(lambda: bool(told()))
        return told()[0]

    async def said(self, kind: type[Any]) -> Any:
        await self.until(lambda: any(isinstance(one, kind) for one in self.seen))
        return next(one for one in self.seen if isinstance(one, kind))

    async def settled(self) -> None:
        """What was under way when this is called has been told: a ticket that came later is
        through."""
        ticket = f"settle-{len(self.seen)}"
        await self.submit("echo", ticket)
        await self.end(ticket)

    async def begin_anew(self, size: tuple[int, int]) -> None:
        """As if it had just been opened on a cluster of this size."""
        self.capacity = await self.backend.capacity()
        async with asyncio.timeout(HANG_SECONDS):
            while (self.capacity.slots, self.capacity.workers) != size:
                await asyncio.sleep(0.05)  # a worker that was started again is on its way
                self.capacity = await self.backend.capacity()
        self.seen.clear()
        self.ends = 0

    async def close(self) -> None:
        await self.backend.close()
        async with asyncio.timeout(HANG_SECONDS):
            await asyncio.wait([self._listener])
        await cancel_and_wait(self._listener)


async def open_pool(backend: PoolBackend) -> OpenPool:
    """As an engine does: a cluster that is too busy to answer is asked again."""
    for left in range(OPEN_TRIES - 1, -1, -1):
        try:
            return OpenPool(backend, await backend.open())
        except BackendAway:
            if not left:
                raise
    raise AssertionError("either a pool or an error")


@asynccontextmanager
async def opened(
    cluster: Cluster, options: str = "", *, heal: bool = True
) -> AsyncIterator[OpenPool]:
    if heal:
        await asyncio.to_thread(cluster.heal)
    pool = await open_pool(cluster.backend(options))
    try:
        yield pool
    finally:
        await pool.close()


class KeptPool:
    """A pool that many tests have in turn, in a loop that goes on between them. After a test that
    failed there is another one."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._runner = asyncio.Runner()
        self._pool: OpenPool | None = None
        self.run(self._open())

    async def _open(self) -> OpenPool:
        await asyncio.to_thread(self.cluster.heal)
        self._pool = self._pool or await open_pool(self.cluster.backend())
        return self._pool

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        self._runner.run(work)

    @asynccontextmanager
    async def pool(self) -> AsyncIterator[OpenPool]:
        """For one test."""
        pool = await self._open()
        try:
            await pool.begin_anew(self.cluster.size)
            yield pool
        except BaseException:
            await self._end()
            raise

    async def _end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def close(self) -> None:
        with self._runner:
            self.run(self._end())


def in_loop_of_pool(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(self: object, *, kept: KeptPool, **given: Any) -> None:
        kept.run(test(self, kept=kept, **given))

    return run


def lines(file: Path) -> list[str]:
    return file.read_text().split("\n")[:-1] if file.exists() else []


async def lose_scheduler(cluster: Cluster, pool: OpenPool, gate: Path) -> list[str]:
    """Kill it with jobs out: all of them are lost and none counts. Returns their tickets."""
    tickets = [f"out-{number}" for number in range(6)]
    for ticket in tickets:
        await pool.submit("wait", ticket, gate=str(gate))
    await pool.until(lambda: any(isinstance(one, Started) for one in pool.seen))
    await asyncio.to_thread(cluster.kill_scheduler)
    for ticket in tickets:
        end = await pool.end(ticket)
        assert isinstance(end, Lost), end
        assert not end.worker
    gone = await pool.said(WentAway)
    assert gone.reason
    with pytest.raises(BackendAway, match=_quoted(cluster)):
        await pool.submit("echo", "too-early")
    with pytest.raises(BackendAway):
        await pool.backend.capacity()
    await pool.backend.cancel(tickets)
    return tickets


class BackendSuite:
    """Everything below holds for every backend."""

    @in_loop_of_pool
    async def test_a_ticket_starts_once_and_finishes_once(self, kept: KeptPool) -> None:
        async with kept.pool() as pool:
            await pool.submit("echo", "once", b"as it was")
            end = await pool.end("once")
            started = await pool.start("once")
            assert end == Finished("once", started.worker, b"as it was")
            assert started.worker
            assert started.process
            await pool.settled()
            assert pool.of("once") == [started, end]

    @in_loop_of_pool
    async def test_progress_comes_whole_and_in_order_before_the_end(self, kept: KeptPool) -> None:
        async with kept.pool() as pool:
            await pool.submit("count", "counted", to=20)
            await pool.end("counted")
            started, *told, end = pool.of("counted")
            assert isinstance(started, Started)
            assert told == [Progressed("counted", b"%d" % number) for number in range(20)]
            assert isinstance(end, Finished)

    @in_loop_of_pool
    async def test_large_blobs_and_results_travel_whole(self, kept: KeptPool) -> None:
        async with kept.pool() as pool:
            await pool.submit("echo", "there-and-back", bytes(LARGE))
            await pool.submit("large", "only-back", size=LARGE)
            for ticket in ("there-and-back", "only-back"):
                end = await pool.end(ticket)
                assert isinstance(end, Finished), end
                assert end.said == bytes(LARGE)

    @in_loop_of_pool
    async def test_many_tickets_through_a_window_end_once_each(self, kept: KeptPool) -> None:
        async with kept.pool() as pool:
            for number in range(MANY):
                await pool.submit("echo", f"shard-{number}", b"%d" % number)
                await pool.ended(number + 2 - WINDOW)
            await pool.ended(MANY)
            finished = [one for one in pool.seen if isinstance(one, Finished)]
            assert {one.ticket: one.said for one in finished} == {
                f"shard-{number}": b"%d" % number for number in range(MANY)
            }
            assert len(finished) == MANY
            assert (await pool.backend.capacity()).queued == 0

    @in_loop_of_pool
    async def test_a_ticket_that_is_out_is_refused(self, kept: KeptPool, tmp_path: Path) -> None:
        async with kept.pool() as pool:
            gate = tmp_path / "gate"
            await pool.submit("wait", "out", gate=str(gate))
            with pytest.raises(ValueError, match="out"):
                await pool.submit("wait", "out", gate=str(gate))
            gate.touch()
            assert isinstance(await pool.end("out"), Finished)

    @in_loop_of_pool
    async def test_a_result_that_cannot_be_sent_is_unusable_and_says_why(
        self, kept: KeptPool
    ) -> None:
        async with kept.pool() as pool:
            await pool.submit("unsendable", "unsendable")
            end = await pool.end("unsendable")
            assert isinstance(end, Unusable), end
            assert "function" in end.reason
            await pool.submit("break", "broken")
            end = await pool.end("broken")
            assert isinstance(end, Unusable), end
            assert "LookupError" in end.reason

    @in_loop_of_pool
    async def test_what_has_not_begun_is_over_when_cancel_returns(
        self, kept: KeptPool, tmp_path: Path
    ) -> None:
        async with kept.pool() as pool:
            gate, file = tmp_path / "gate", tmp_path / "done"
            running = [f"running-{number}" for number in range(pool.capacity.slots)]
            for ticket in running:
                await pool.submit("wait", ticket, gate=str(gate))
            for ticket in running:
                await pool.start(ticket)
            queued = [f"queued-{number}" for number in range(10)]
            for ticket in queued:
                await pool.submit("echo", ticket, file=str(file))
            assert (await pool.backend.capacity()).queued == len(queued)
            await pool.backend.cancel(queued)
            assert (await pool.backend.capacity()).queued == 0
            gate.touch()
            for ticket in running:
                assert isinstance(await pool.end(ticket), Finished)
            await pool.settled()
            assert not [one for ticket in queued for one in pool.of(ticket)]
            assert lines(file) == []

    @in_loop_of_pool
    async def test_what_is_withdrawn_in_the_moment_it_was_given_never_ends_twice(
        self, kept: KeptPool
    ) -> None:
        async with kept.pool() as pool:
            tickets = [f"withdrawn-{number}" for number in range(20)]
            for number, ticket in enumerate(tickets):
                await pool.submit("echo", ticket)
                if number % 2:
                    await asyncio.sleep(0)  # it may be on its way
                if ticket != tickets[-1]:
                    await pool.backend.cancel([ticket])
            assert isinstance(await pool.end(tickets[-1]), Finished)
            await pool.settled()
            for ticket in tickets:
                assert len(pool.ends_of(ticket)) <= 1
            assert (await pool.backend.capacity()).queued == 0

    @in_loop_of_pool
    async def test_what_runs_is_told_to_stop_and_says_how_it_ended(
        self, kept: KeptPool, tmp_path: Path
    ) -> None:
        async with kept.pool() as pool:
            await pool.submit("wait", "stopped", gate=str(tmp_path / "never"))
            started = await pool.start("stopped")
            await pool.backend.cancel(["stopped"])
            assert await pool.end("stopped") == Finished("stopped", started.worker, b"stopped")

    @in_loop_of_pool
    async def test_what_does_not_stop_is_lost_by_force(
        self, kept: KeptPool, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        async with kept.pool() as pool:
            await pool.submit("deaf", "deaf", gate=str(gate))
            await pool.words("deaf")
            await pool.backend.cancel(["deaf"])
            assert pool.ends_of("deaf") == []
            await pool.backend.cancel(["deaf"], force=True)
            end = await pool.end("deaf")
            assert isinstance(end, Lost), end
            gate.touch()
            await pool.settled()
            assert pool.ends_of("deaf") == [end]

    @in_loop_of_pool
    async def test_a_ticket_that_is_not_out_can_be_cancelled(self, kept: KeptPool) -> None:
        async with kept.pool() as pool:
            await pool.submit("echo", "over")
            await pool.end("over")
            await pool.backend.cancel(["over", "never heard of"], force=True)
            await pool.settled()
            assert len(pool.ends_of("over")) == 1
            assert pool.of("never heard of") == []

    @in_loop_of_pool
    async def test_a_worker_that_is_killed_loses_its_ticket_once_and_no_other(
        self, kept: KeptPool, tmp_path: Path
    ) -> None:
        async with kept.pool() as pool:
            gate, file = tmp_path / "gate", tmp_path / "done"
            for ticket in ("victim", "other"):
                await pool.submit("wait", ticket, gate=str(gate), file=str(file))
            pid = int(await pool.words("victim"))
            await pool.words("other")
            waiting = [await pool.submit("echo", f"waiting-{number}") for number in range(4)]
            os.kill(pid, signal.SIGKILL)
            end = await pool.end("victim")
            assert isinstance(end, Lost), end
            assert end.worker
            assert end.reason
            gate.touch()
            for ticket in ("other", *waiting):
                assert isinstance(await pool.end(ticket), Finished)
            await pool.settled()
            assert pool.ends_of("victim") == [end]
            assert lines(file).count("victim") == 1

    @in_loop_of_pool
    async def test_capacity_says_what_the_cluster_has(self, kept: KeptPool) -> None:
        async with kept.pool() as pool:
            assert (pool.capacity.slots, pool.capacity.workers) == kept.cluster.size
            assert pool.capacity.queued == 0
            assert pool.capacity.version[0].isdigit()
            assert pool.capacity.dashboard == kept.cluster.dashboard
            assert await pool.backend.capacity() == pool.capacity
            assert pool.backend.address == kept.cluster.url


class OwnPoolsSuite:
    """What needs pools of its own, and leaves the cluster whole."""

    @in_loop
    async def test_close_withdraws_what_waits_and_stops_what_runs(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        file = tmp_path / "done"
        async with opened(cluster) as pool:
            slots = pool.capacity.slots
            for number in range(slots):
                await pool.submit("wait", f"running-{number}", gate="/nowhere", file=str(file))
            for number in range(slots):
                await pool.start(f"running-{number}")
            for number in range(5):
                await pool.submit("echo", f"queued-{number}", file=str(file))
        async with opened(cluster) as pool:  # which needs the slots
            for number in range(slots + 1):
                await pool.submit("echo", f"next-{number}")
            for number in range(slots + 1):
                assert isinstance(await pool.end(f"next-{number}"), Finished)
        async with asyncio.timeout(HANG_SECONDS):
            while sum(line.endswith("stopped") for line in lines(file)) < slots:
                await asyncio.sleep(0.05)  # one worker may have done all that came next
        assert Counter(lines(file)) == Counter(
            line
            for number in range(slots)
            for line in (f"running-{number}", f"running-{number} stopped")
        )

    @pytest.mark.parametrize(
        ("entry", "words"),
        [
            ("pools.deeds_old_python", ["Python 3.9.7", "the engine has Python 3."]),
            ("pools.deeds_other_version", ["Anabranch 0.0.7", "the engine has Anabranch"]),
            ("pools.deeds_that_do_not_exist", ["pools.deeds_that_do_not_exist"]),
        ],
    )
    @in_loop
    async def test_a_worker_of_another_version_is_named(
        self, cluster: Cluster, entry: str, words: list[str]
    ) -> None:
        await asyncio.to_thread(cluster.heal)
        backend = cluster.backend(entry=entry)
        with pytest.raises(BackendUnfit) as refused:
            await backend.open()
        await backend.close()
        for word in ["worker", *words]:
            assert word in refused.value.message


class RestartSuite:
    """The scheduler dies and comes back."""

    @in_loop
    async def test_a_cluster_that_restarts_has_lost_everything_and_goes_on(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        async with opened(cluster) as pool:
            tickets = await lose_scheduler(cluster, pool, tmp_path / "gate")
            await asyncio.to_thread(cluster.heal)
            await pool.said(CameBack)
            await pool.submit("echo", "after", b"words")
            end = await pool.end("after")
            assert isinstance(end, Finished), end
            assert all(len(pool.ends_of(ticket)) == 1 for ticket in tickets)
            assert pool.of("too-early") == []


class DeathsSuite:
    """More ways for the parts of a cluster to die."""

    @in_loop
    async def test_a_deed_that_kills_its_worker_is_done_once(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        async with opened(cluster) as pool:
            file = tmp_path / "done"
            await pool.submit("die", "shard-1", file=str(file))
            end = await pool.end("shard-1")
            assert isinstance(end, Lost), end
            assert end.worker
            await pool.settled()
            assert lines(file) == ["shard-1"]
            assert len(pool.ends_of("shard-1")) == 1

    @in_loop
    async def test_death_before_the_start_was_told_is_a_loss_that_counts(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        async with opened(cluster) as pool:
            await pool.submit("die unseen", "shard-1", file=str(tmp_path / "done"))
            end = await pool.end("shard-1")
            assert isinstance(end, Lost), end
            assert end.worker
            assert lines(tmp_path / "done")

    @in_loop
    async def test_close_returns_although_the_cluster_is_gone(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        async with opened(cluster) as pool:
            await pool.submit("wait", "shard-1", gate=str(tmp_path / "gate"))
            await pool.start("shard-1")
            await asyncio.to_thread(cluster.kill_scheduler)

    @in_loop
    async def test_a_cluster_that_is_not_there_is_named_and_can_be_opened_later(
        self,
        cluster: Cluster,
        caplog: pytest.LogCaptureFixture,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        await asyncio.to_thread(cluster.heal)
        await asyncio.to_thread(cluster.kill_scheduler)
        backend = cluster.backend()
        with caplog.at_level("INFO"), pytest.raises(BackendAway, match=_quoted(cluster)):
            await backend.open()
        assert caplog.messages == []
        assert capfd.readouterr() == ("", "")
        await asyncio.to_thread(cluster.heal)
        pool = await open_pool(backend)
        await pool.submit("echo", "shard-1")
        assert isinstance(await pool.end("shard-1"), Finished)
        await pool.close()


def _quoted(cluster: Cluster) -> str:
    return cluster.url.replace(".", r"\.")
