"""What Dask does and shows besides what every backend keeps."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from dask import config

from anabranch.pools.address import read_pool
from anabranch.pools.backend import BackendAway, BackendUnfit, CameBack, Finished, Lost, WentAway
from anabranch.pools.dask import connection
from anabranch.pools.dask.backend import DaskBackend
from anabranch.pools.dask.process import DaskProcess
from anabranch.pools.dask.scheduler import MESSAGES_KEPT
from anabranch.pools.dask.worker import SMALL_BYTES, Answer, Opaque
from hangs import HANG_SECONDS, PATIENCE
from in_loop import in_loop
from pools.backend_suite import MANY, WINDOW, OpenPool, lines, open_pool, opened
from pools.clusters import ENTRY, SOURCE, TESTS, DaskCluster, dask_cluster, without_us

pytestmark = pytest.mark.slow

SECRET = "correct-horse-battery-staple"


@asynccontextmanager
async def client_of(cluster: DaskCluster) -> AsyncIterator[Any]:
    """Another program at the same scheduler."""
    from distributed import Client

    make: Any = Client
    async with make(cluster.address, asynchronous=True, set_as_default=False) as client:
        yield client


@asynccontextmanager
async def opened_here(cluster: DaskCluster) -> AsyncIterator[OpenPool]:
    """With Dask's client in this process, to look into it."""
    await asyncio.to_thread(cluster.heal)
    pool = await open_pool(DaskBackend(read_pool("pool", cluster.url), entry=ENTRY))
    try:
        yield pool
    finally:
        await pool.close()


async def eventually(pool: OpenPool, slots: int, workers: int) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            capacity = await pool.backend.capacity()
            if (capacity.slots, capacity.workers) == (slots, workers):
                return
            await asyncio.sleep(0.05)


# -- what is kept ----------------------------------------------------------------------------


@pytest.mark.soak
@in_loop
async def test_nothing_that_dask_keeps_or_shows_holds_what_a_job_is_about(
    dask: DaskCluster, tmp_path: Path
) -> None:
    payload = SECRET.encode()
    async with opened(dask) as pool, client_of(dask) as other:
        await pool.submit("echo", "over", payload)
        await pool.submit("break", "broken", payload)
        await pool.submit("count", "telling", payload, to=3, words=SECRET)
        for ticket in ("over", "broken", "telling"):
            await pool.end(ticket)
        gate = tmp_path / "gate"
        for ticket in ("running-1", "running-2", "queued"):
            await pool.submit("wait", ticket, payload, gate=str(gate), words=SECRET)
        for ticket in ("running-1", "running-2"):
            await pool.words(ticket)
        tickets = ["over", "broken", "telling", "running-1", "running-2", "queued"]
        seen = {
            "story": await other.story(*tickets),
            "events": await other.get_events(),
            "info": await other.scheduler.identity(),
            "stack": await other.call_stack(keys=tickets[3:]),
            "scheduler log": await other.get_scheduler_logs(),
            "worker logs": await other.get_worker_logs(),
            "processing": await other.processing(),
            "state": await other.scheduler.get_cluster_state(exclude=[]),
            "page": [dask.page(f"/info/task/{ticket}.html") for ticket in tickets[3:]],
            "printed": dask.log(),
        }
        gate.touch()
        for ticket in tickets:
            await pool.end(ticket)
    for name, said in seen.items():
        assert SECRET not in str(said), name
    assert "running-1" in str(seen["story"])  # it looked at the right place
    assert "running-1" in str(seen["state"])


def _messages_kept(dask_scheduler: Any) -> list[tuple[int, int]]:
    """To each worker: how many there are, and how many there can be."""
    logs = [comm.recent_message_log for comm in dask_scheduler.stream_comms.values()]
    return [(len(log), log.maxlen) for log in logs]


@pytest.mark.soak
@in_loop
async def test_the_scheduler_does_not_keep_the_jobs_that_it_has_sent(dask: DaskCluster) -> None:
    async with opened(dask) as pool, client_of(dask) as other:
        for number in range(4 * MESSAGES_KEPT):
            await pool.submit("echo", f"job-{number}")
            await pool.end(f"job-{number}")
        kept = await other.run_on_scheduler(_messages_kept)
    assert [most for _, most in kept] == [MESSAGES_KEPT] * 2
    assert sum(count for count, _ in kept) > 0  # Dask still writes there


@pytest.mark.soak
@in_loop
async def test_a_small_answer_comes_with_the_news_and_a_large_one_is_fetched(
    dask: DaskCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []
    async with opened_here(dask) as pool:
        link = pool.backend._link  # type: ignore[attr-defined]
        fetch = link._client._gather_remote

        async def seen(*given: Any, **more: Any) -> Any:
            fetched.append(given)
            return await fetch(*given, **more)

        monkeypatch.setattr(link._client, "_gather_remote", seen)
        for size in (SMALL_BYTES, SMALL_BYTES + 1):
            await pool.submit("echo", f"shard-{size}", bytes(size))
            assert (await pool.end(f"shard-{size}")).said == bytes(size)  # type: ignore[union-attr]
            await pool.settled()
            assert bool(fetched) == (size > SMALL_BYTES)
        assert link._client.futures == {}


@pytest.mark.soak
@in_loop
async def test_answers_are_fetched_where_the_scheduler_passes_none_on(
    dask: DaskCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes_none: Any = lambda dask_scheduler: {"page": "/status", "passes": False}  # noqa: ARG005,E731
    monkeypatch.setattr(connection, "introduce_scheduler", passes_none)
    async with opened_here(dask) as pool:
        await pool.submit("echo", "shard-1", b"as it was")
        end = await pool.end("shard-1")
        assert isinstance(end, Finished)
        assert end.said == b"as it was"


def test_what_travels_is_not_printed() -> None:
    assert SECRET not in repr(Opaque(SECRET.encode()))
    assert SECRET not in f"{Opaque(SECRET.encode())}"
    assert SECRET not in repr(Answer("w1", [], SECRET.encode()))
    assert not Answer("w1", [SECRET.encode()], b"").small, "what it told would be printed"


@pytest.mark.soak
@in_loop
async def test_the_scheduler_never_has_more_than_the_window(dask: DaskCluster) -> None:
    most = 0
    async with opened_here(dask) as pool:
        for number in range(MANY):
            await pool.submit("echo", f"shard-{number}")
            await pool.ended(number + 2 - WINDOW)
            if number % (MANY // 20) == 0:
                counts = await asyncio.to_thread(dask.counts)
                assert counts is not None
                most = max(most, counts["tasks"])
        await pool.ended(MANY)
        assert 0 < most <= 2 * WINDOW  # an end is told before the scheduler has forgotten it
        await asyncio.to_thread(dask.wait_for, lambda counts: counts["tasks"] == 0)
        link = pool.backend._link  # type: ignore[attr-defined]
        assert link._client.futures == {}
        assert not link._client.refcount


@pytest.mark.soak
@in_loop
async def test_the_scheduler_forgets_what_was_withdrawn_before_it_had_it(
    dask: DaskCluster, tmp_path: Path
) -> None:
    async with opened(dask) as pool:
        for number in range(30):
            await pool.submit("wait", f"shard-{number}", gate=str(tmp_path / "never"))
            await asyncio.sleep(0)
            await pool.backend.cancel([f"shard-{number}"])
        await asyncio.to_thread(dask.wait_for, lambda counts: counts["tasks"] == 0)
        await pool.settled()


# -- workers ---------------------------------------------------------------------------------


@pytest.mark.soak
@in_loop
async def test_a_worker_that_joins_or_leaves_changes_the_capacity(dask: DaskCluster) -> None:
    async with opened(dask) as pool:
        dask.run_worker("extra", "--nthreads", "3")
        await eventually(pool, 5, 3)
        dask.kill("extra")
        await eventually(pool, 2, 2)


@pytest.mark.soak
@in_loop
async def test_resources_bound_the_slots_and_choose_the_worker(
    dask: DaskCluster, tmp_path: Path
) -> None:
    async with opened(dask, "?resources=GPU:2") as pool:
        assert pool.capacity.slots == 0
        await pool.submit("echo", "waits")
        dask.run_worker("gpu", "--nthreads", "4", "--resources", "GPU=5")
        end = await pool.end("waits")
        assert isinstance(end, Finished)
        assert end.worker == "gpu"
        assert (await pool.backend.capacity()).slots == 2


@pytest.mark.soak
@in_loop
async def test_a_higher_priority_goes_first(dask: DaskCluster, tmp_path: Path) -> None:
    await asyncio.to_thread(dask.heal)
    dask.kill("w2")  # two workers would each have an order of their own
    await asyncio.to_thread(dask.wait_for, lambda counts: counts["workers"] == 1)
    gate, file = tmp_path / "gate", tmp_path / "order"
    async with opened(dask, heal=False) as low, opened(dask, "?priority=9", heal=False) as high:
        await low.submit("wait", "running", gate=str(gate))
        await low.start("running")
        for number in range(4):
            await low.submit("echo", f"low-{number}", file=str(file))
        await asyncio.to_thread(dask.wait_for, lambda counts: counts["tasks"] == 5)
        for number in range(4):
            await high.submit("echo", f"high-{number}", file=str(file))
        await asyncio.to_thread(dask.wait_for, lambda counts: counts["tasks"] == 9)
        gate.touch()
        for number in range(4):
            await low.end(f"low-{number}")
            await high.end(f"high-{number}")
    order = [line.partition("-")[0] for line in lines(file)]
    assert order.index("high") <= 1  # Dask had given the worker one more than it has slots
    assert "low" not in order[order.index("high") : order.index("high") + 4]


@pytest.mark.soak
@in_loop
async def test_a_worker_of_another_version_that_joins_later_gets_nothing_and_is_named(
    dask: DaskCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(dask) as pool:
        dask.run_worker("old", "--nthreads", "8", environment={"DEEDS_PYTHON": "3.9.7"})
        await asyncio.to_thread(dask.wait_for, lambda counts: counts["workers"] == 3)
        for number in range(30):
            await pool.submit("echo", f"shard-{number}")
        for number in range(30):
            end = await pool.end(f"shard-{number}")
            if isinstance(end, Lost):  # it came before the worker had said what it is
                assert not end.worker
                assert "old" in end.reason
                assert "3.9.7" in end.reason
            else:
                assert isinstance(end, Finished)
                assert end.worker in ("w1", "w2")
        await eventually(pool, 2, 2)
        for number in range(30, 40):
            await pool.submit("echo", f"shard-{number}")
            assert isinstance(await pool.end(f"shard-{number}"), Finished)
        said = [one for one in caplog.messages if "gets no jobs" in one]
        assert len(said) == 1
        assert "old" in said[0]
        assert "Python 3.9.7" in said[0]


@pytest.mark.soak
@in_loop
async def test_a_worker_without_us_is_named_and_gets_nothing(
    dask: DaskCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(dask) as pool:
        dask.run_worker("bare", "--nthreads", "8", environment=without_us(tmp_path))
        await asyncio.to_thread(dask.wait_for, lambda counts: counts["workers"] == 3)
        await eventually(pool, 2, 2)
        for number in range(10):
            await pool.submit("echo", f"shard-{number}")
            assert isinstance(await pool.end(f"shard-{number}"), Finished)
        assert sum("has no Anabranch" in one for one in caplog.messages) == 1
    for name in dask.names:
        dask.kill(name)
    await asyncio.to_thread(dask.wait_for, lambda counts: counts["workers"] == 1)
    backend = dask.backend()
    with pytest.raises(BackendUnfit, match=r"the worker tcp://127.0.0.1:\d+ has no Anabranch"):
        await backend.open()
    await backend.close()


@pytest.mark.soak
@in_loop
async def test_a_scheduler_without_us_is_named(dask: DaskCluster, tmp_path: Path) -> None:
    dask.kill_scheduler()
    await asyncio.to_thread(dask.start_scheduler, without_us(tmp_path))
    backend = dask.backend()
    with pytest.raises(BackendUnfit, match=f"the scheduler at {dask.url} has no Anabranch"):
        await backend.open()
    await backend.close()
    dask.kill_scheduler()


@pytest.mark.soak
@in_loop
async def test_a_cluster_of_which_only_unfit_workers_are_left_is_away_until_one_is_fit(
    dask: DaskCluster,
) -> None:
    async with opened(dask) as pool:
        dask.run_worker("old", environment={"DEEDS_ANABRANCH": "0.0.7"})
        await asyncio.to_thread(dask.wait_for, lambda counts: counts["workers"] == 3)
        for name in dask.names:
            dask.kill(name)
        dask.run_worker("older", environment={"DEEDS_ANABRANCH": "0.0.6"})
        gone = await pool.said(WentAway)
        assert "0.0.7" in gone.reason
        with pytest.raises(BackendAway, match=r"0\.0\.7"):
            await pool.submit("echo", "nowhere")
        await asyncio.to_thread(dask.heal)
        await pool.said(CameBack)
        await pool.submit("echo", "shard-1")
        assert isinstance(await pool.end("shard-1"), Finished)


@pytest.mark.soak
@in_loop
async def test_a_worker_that_is_taken_away_loses_its_ticket_without_counting(
    dask: DaskCluster, tmp_path: Path
) -> None:
    async with opened(dask) as pool, client_of(dask) as other:
        await pool.submit("wait", "shard-1", gate=str(tmp_path / "gate"))
        started = await pool.start("shard-1")
        known = (await other.scheduler.identity())["workers"]
        address = next(one for one, worker in known.items() if worker["name"] == started.worker)
        await other.retire_workers([address])
        end = await pool.end("shard-1")
        assert isinstance(end, Lost)
        assert not end.worker
        assert started.worker in end.reason


@pytest.mark.soak
@in_loop
async def test_a_worker_that_is_restarted_for_one_job_counts_for_none(
    dask: DaskCluster, tmp_path: Path
) -> None:
    await asyncio.to_thread(dask.heal)
    for name in dask.names:
        dask.kill(name)
    await asyncio.to_thread(dask.wait_for, lambda counts: counts["workers"] == 0)
    dask.run_worker("watched", "--nanny", "--nthreads", "2")
    await asyncio.to_thread(dask.wait_for, lambda counts: counts["workers"] == 1)
    async with opened(dask, "?restart=yes", heal=False) as pool:
        for ticket in ("deaf", "beside"):
            await pool.submit("deaf", ticket, gate=str(tmp_path / "gate"))
        pid = int(await pool.words("deaf"))
        await pool.words("beside")
        await pool.backend.cancel(["deaf"])
        await pool.backend.cancel(["deaf"], force=True)
        for ticket in ("deaf", "beside"):
            end = await pool.end(ticket)
            assert isinstance(end, Lost)
            assert not end.worker, end
        await pool.submit("echo", "next")
        assert isinstance(await pool.end("next"), Finished)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.soak
@in_loop
async def test_a_scheduler_that_takes_no_plugin_repeats_and_the_repetition_is_stopped(
    dask: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_: Any) -> None:
        pass

    monkeypatch.setattr(connection.DaskConnection, "prepare_scheduler", refused)
    await asyncio.to_thread(dask.kill_scheduler)  # the one before has the plugin
    file = tmp_path / "done"
    async with opened(dask) as pool:
        await pool.submit("wait", "shard-1", gate=str(tmp_path / "gate"), file=str(file))
        os.kill(int(await pool.words("shard-1")), signal.SIGKILL)
        end = await pool.end("shard-1")
        assert isinstance(end, Lost)
        assert end.worker
        await asyncio.to_thread(dask.wait_for, lambda counts: counts["tasks"] == 0)
        await pool.settled()  # on the worker that is left
        assert pool.ends_of("shard-1") == [end]
    done = lines(file)
    assert done.count("shard-1") - done.count("shard-1 stopped") == 1


@pytest.mark.soak
@in_loop
async def test_dask_says_how_many_workers_died_before_a_job_began(dask: DaskCluster) -> None:
    await asyncio.to_thread(dask.heal)
    pool = await open_pool(dask.backend(entry="pools.deeds_deadly"))
    await pool.submit("echo", "shard-1")
    end = await pool.end("shard-1")
    assert isinstance(end, Lost)
    assert end.worker
    assert "2 worker(s) died with it" in end.reason
    await pool.close()


# -- contact ---------------------------------------------------------------------------------


_ENGINE = """
import asyncio, sys
from pools.clusters import ENTRY
from pools.deeds import blob
from anabranch.pools.address import read_pool
from anabranch.pools.dask.process import DaskProcess

async def main():
    backend = DaskProcess(read_pool("pool", sys.argv[1]), entry=ENTRY)
    await backend.open()
    for number in range(6):
        ticket = f"shard-{number}"
        await backend.submit(ticket, blob("wait", ticket, gate=sys.argv[2], file=sys.argv[3]))
    async for batch in backend.events():
        print(batch, flush=True)

asyncio.run(main())
"""


@pytest.mark.soak
@in_loop
async def test_jobs_of_an_engine_that_was_killed_stop_by_themselves(
    dask: DaskCluster, tmp_path: Path
) -> None:
    await asyncio.to_thread(dask.heal)
    file = tmp_path / "done"
    engine = subprocess.Popen(
        [sys.executable, "-c", _ENGINE, dask.url, str(tmp_path / "gate"), str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(SOURCE)])},
    )
    try:
        async with asyncio.timeout(HANG_SECONDS):
            while len(lines(file)) < 2:
                await asyncio.sleep(0.05)
    finally:
        engine.kill()
        engine.wait(HANG_SECONDS)
    await asyncio.to_thread(dask.wait_for, lambda counts: counts["tasks"] == 0)
    async with opened(dask, heal=False) as pool:
        await pool.submit("echo", "next")  # which needs a slot
        assert isinstance(await pool.end("next"), Finished)
    async with asyncio.timeout(HANG_SECONDS):
        while sum(line.endswith("stopped") for line in lines(file)) < 2:
            await asyncio.sleep(0.05)
    assert len(lines(file)) == 4


@in_loop
async def test_a_port_that_accepts_and_says_nothing_is_away_and_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    turns = 0

    async def turning() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    ticker = asyncio.create_task(turning())
    backend = DaskBackend(read_pool("pool", f"dask://127.0.0.1:{port}"))
    for seconds in PATIENCE:
        monkeypatch.setattr(connection, "CONNECT_SECONDS", seconds)
        turns = 0
        with pytest.raises(BackendAway, match=f"dask://127.0.0.1:{port}"):
            await backend.open()
        if turns > 5:
            break
    assert turns > 5
    ticker.cancel()
    await backend.close()
    server.close()
    await server.wait_closed()
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


@pytest.mark.soak
@in_loop
async def test_a_cluster_with_tls_is_reached_with_the_certificates_of_dasks_configuration(
    tmp_path: Path,
) -> None:
    from distributed.security import Security

    temporary: Any = Security.temporary
    made = temporary()
    files = {"ca-file": made.tls_ca_file, "cert": made.tls_client_cert, "key": made.tls_client_key}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    options = [word for name in files for word in (f"--tls-{name}", str(tmp_path / name))]
    known = {
        "distributed.comm.tls.ca-file": str(tmp_path / "ca-file"),
        "distributed.comm.tls.client.cert": str(tmp_path / "cert"),
        "distributed.comm.tls.client.key": str(tmp_path / "key"),
    }
    with dask_cluster(tmp_path, 1, tuple(options)) as cluster, config.set(known):
        assert cluster.url.startswith("dask+tls://")
        async with opened(cluster) as pool:
            await pool.submit("echo", "shard-1", b"over TLS")
            end = await pool.end("shard-1")
            assert isinstance(end, Finished)
            assert end.said == b"over TLS"


@pytest.mark.soak
@in_loop
async def test_certificates_that_are_missing_are_named(dask: DaskCluster) -> None:
    await asyncio.to_thread(dask.heal)
    backend = DaskProcess(read_pool("pool", f"dask+tls://127.0.0.1:{dask.port}"))
    with pytest.raises(BackendUnfit, match="TLS"):
        await backend.open()
    await backend.close()


@pytest.mark.soak
@in_loop
async def test_what_dask_warns_of_versions_is_left_to_us(
    dask: DaskCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import versions

    ours = versions.get_versions()
    ours["packages"]["msgpack"] = "0.0.1"
    monkeypatch.setattr(versions, "get_versions", lambda: ours)
    async with opened_here(dask) as pool:
        await pool.submit("echo", "shard-1")
        assert isinstance(await pool.end("shard-1"), Finished)


@pytest.mark.soak
@in_loop
async def test_the_link_to_the_dashboard_leads_to_a_page(dask: DaskCluster) -> None:
    async with opened(dask) as pool:
        path = pool.capacity.dashboard.removeprefix(f"http://127.0.0.1:{dask.pages}")
        page = await asyncio.to_thread(dask.page, path)
        assert "<html" in page
        assert "w1" in page
