"""What else Ray keeps of what every backend keeps, and what only Ray can break."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from anabranch.pools.backend import (
    BackendUnfit,
    CameBack,
    Finished,
    Lost,
    Started,
    WentAway,
)
from anabranch.pools.ray.backend import RayBackend
from in_loop import in_loop
from pools.backend_suite import (
    DeathsSuite,
    OpenPool,
    OwnPoolsSuite,
    RestartSuite,
    open_pool,
    opened,
)
from pools.ray.cluster import HEAD, SECOND, TESTS, RayCluster, command_of, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.soak]

SECRET = "hunter2-the-secret-of-the-work"
GROWTH_MAX = 18_000_000  # bytes; two thirds of what would be left below


class TestRayPoolsOfTheirOwn(OwnPoolsSuite):
    pass


class TestRayThatRestarts(RestartSuite):
    pass


class TestRayThatDies(DeathsSuite):
    pass


async def healed_pool(cluster: RayCluster, backend: RayBackend) -> OpenPool:
    await asyncio.to_thread(cluster.heal)
    return await open_pool(backend)


def gone(pid: int) -> bool:
    """Or dead and not yet waited for by who has taken it over."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- parts of the cluster that die -----------------------------------------------------------


@in_loop
async def test_a_node_that_dies_loses_what_it_had_begun_and_no_other(
    cluster: RayCluster, tmp_path: Path
) -> None:
    async with opened(cluster) as pool:
        tickets = ["shard-1", "shard-2"]
        for ticket in tickets:
            await pool.submit("wait", ticket, gate=str(tmp_path / "gate"))
        where = {(await pool.start(ticket)).worker.split("/")[0]: ticket for ticket in tickets}
        assert sorted(where) == ["127.0.0.2", "127.0.0.3"]
        await asyncio.to_thread(cluster.kill, SECOND)
        end = await pool.end(where["127.0.0.3"])
        assert isinstance(end, Lost), end
        assert end.worker
        assert "127.0.0.3" in end.reason
        (tmp_path / "gate").touch()
        assert isinstance(await pool.end(where["127.0.0.2"]), Finished)
        while (await pool.backend.capacity()).slots != 1:
            await asyncio.sleep(0.1)
        assert not [one for one in pool.seen if isinstance(one, WentAway)]


@in_loop
async def test_a_driver_that_is_killed_loses_everything_uncounted_and_is_started_again(
    cluster: RayCluster, tmp_path: Path
) -> None:
    async with opened(cluster) as pool:
        backend = pool.backend
        assert isinstance(backend, RayBackend)
        await pool.submit("wait", "shard-1", gate=str(tmp_path / "never"))
        worker = int(await pool.words("shard-1"))
        first = backend.driver_pid
        os.kill(first, signal.SIGKILL)
        end = await pool.end("shard-1")
        assert isinstance(end, Lost), end
        assert not end.worker
        await pool.said(CameBack)
        assert backend.driver_pid not in (0, first)
        await pool.submit("echo", "shard-1", b"again")  # the ticket is free again
        await pool.until(lambda: len(pool.ends_of("shard-1")) == 2)
        await asyncio.to_thread(wait_for, lambda: gone(worker))


@in_loop
async def test_a_driver_that_hangs_is_ended_and_started_again(cluster: RayCluster) -> None:
    pool = await healed_pool(cluster, cluster.backend(silence_seconds=30))
    backend = pool.backend
    assert isinstance(backend, RayBackend)
    stopped = backend.driver_pid
    os.kill(stopped, signal.SIGSTOP)
    assert "said nothing" in (await pool.said(WentAway)).reason
    await pool.said(CameBack)
    assert gone(stopped)
    await pool.close()


@in_loop
async def test_no_process_is_left_when_the_engine_is_killed(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """Neither the driver nor, on the cluster, what it had out."""
    await asyncio.to_thread(cluster.heal)
    engine = subprocess.Popen(
        [sys.executable, "-m", "pools.ray.engine", cluster.url, "/nowhere"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        start_new_session=True,
    )
    with engine:
        assert engine.stdout is not None
        said = await asyncio.to_thread(engine.stdout.readline)
        driver, worker = map(int, said.split())
        assert not gone(driver)
        engine.kill()
    await asyncio.to_thread(wait_for, lambda: gone(driver))
    await asyncio.to_thread(wait_for, lambda: gone(worker))


# -- ways to connect -------------------------------------------------------------------------


@in_loop
async def test_a_client_from_outside_of_the_cluster_has_the_same(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """`ray://`: Ray's client cannot hear a job while it runs, so this is another way for us."""
    pool = await healed_pool(cluster, cluster.backend(url=cluster.client_url))
    gate = tmp_path / "gate"
    assert (pool.capacity.slots, pool.capacity.workers) == (2, 2)
    await pool.submit("count", "counted", to=5)
    assert isinstance(await pool.end("counted"), Finished)
    assert len(pool.of("counted")) == 7
    for ticket in ("stopped", "forced"):
        await pool.submit("wait" if ticket == "stopped" else "deaf", ticket, gate=str(gate))
        await pool.words(ticket)
    await pool.submit("echo", "queued")
    await pool.backend.cancel(["queued", "stopped"])
    end = await pool.end("stopped")
    assert isinstance(end, Finished), end
    assert end.said == b"stopped"
    await pool.backend.cancel(["forced"], force=True)
    assert isinstance(await pool.end("forced"), Lost)
    await pool.submit("die", "killer")
    end = await pool.end("killer")
    assert isinstance(end, Lost), end
    assert end.worker
    await pool.submit("echo", "large", bytes(20_000_000))
    end = await pool.end("large")
    assert isinstance(end, Finished), end
    assert len(end.said) == 20_000_000
    assert pool.of("queued") == []
    await pool.submit("wait", "out", gate=str(gate))
    await pool.start("out")
    await asyncio.to_thread(cluster.kill_scheduler)
    end = await pool.end("out")
    assert isinstance(end, Lost), end
    assert not end.worker
    await pool.said(WentAway)
    await pool.close()


@in_loop
async def test_auto_finds_the_cluster_of_the_environment(
    cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    pool = await healed_pool(cluster, cluster.backend(url="ray:auto"))
    assert pool.backend.address == "ray:auto"
    await pool.submit("echo", "shard-1", b"words")
    assert isinstance(await pool.end("shard-1"), Finished)
    await pool.close()


# -- what a job is given ---------------------------------------------------------------------


@in_loop
async def test_the_environment_of_the_work_and_its_resources_are_passed_on(
    cluster: RayCluster, tmp_path: Path
) -> None:
    environment = quote(json.dumps({"env_vars": {"SHOP": "in the high street"}}))
    backend = cluster.backend(
        f"?resources=CPU:0.5&runtime_env={environment}", entry="pools.ray.more_deeds"
    )
    pool = await healed_pool(cluster, backend)
    assert pool.capacity.slots == 4, "half a processor each"
    await pool.submit("environment", "shard-1", name="SHOP")
    end = await pool.end("shard-1")
    assert isinstance(end, Finished), end
    assert end.said == b"in the high street"
    for number in range(4):
        await pool.submit("wait", f"wait-{number}", gate=str(tmp_path / "gate"))
    for number in range(4):
        await pool.start(f"wait-{number}")
    await pool.close()


@in_loop
async def test_an_environment_that_ray_cannot_make_is_named(cluster: RayCluster) -> None:
    await asyncio.to_thread(cluster.heal)
    backend = cluster.backend(f"?runtime_env={quote(json.dumps({'env_vars': {'A': 1}}))}")
    with pytest.raises(BackendUnfit, match="env_vars"):
        await backend.open()
    await backend.close()


# -- versions --------------------------------------------------------------------------------


@in_loop
async def test_a_node_of_another_version_that_comes_later_gets_no_job_done(
    cluster: RayCluster, tmp_path: Path
) -> None:
    await asyncio.to_thread(cluster.heal)
    await asyncio.to_thread(cluster.kill, SECOND)
    pool = await open_pool(cluster.backend())
    old = {"DEEDS_ANABRANCH": "0.0.7"}
    await asyncio.to_thread(lambda: cluster.start(SECOND, environment=old))
    for number in range(2):
        await pool.submit("wait", f"shard-{number}", gate=str(tmp_path / "gate"))
    for number in range(2):
        end = await pool.end(f"shard-{number}")
        assert isinstance(end, Lost), end
        assert not end.worker
    reason = (await pool.said(WentAway)).reason
    assert "the worker 127.0.0.3/" in reason
    assert "Anabranch 0.0.7" in reason
    await asyncio.to_thread(cluster.kill, SECOND)
    await pool.said(CameBack)
    await pool.close()


@in_loop
async def test_another_version_of_ray_is_named(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray compares them; the driver is made to say that it has another one."""
    await asyncio.to_thread(cluster.heal)  # nodes that begin here must not say so
    (tmp_path / "sitecustomize.py").write_text("import ray; ray.__version__ = '2.0.7'")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    backend = cluster.backend()
    with pytest.raises(BackendUnfit) as refused:
        await backend.open()
    await backend.close()
    assert "2.0.7" in refused.value.message
    assert "mismatch" in refused.value.message


# -- what stays ------------------------------------------------------------------------------


@in_loop
async def test_what_a_job_is_given_stands_in_no_name_and_in_no_log_of_the_cluster(
    cluster: RayCluster, tmp_path: Path
) -> None:
    async with opened(cluster) as pool:
        words = SECRET.encode()
        await pool.submit("wait", "step-0123", words, gate=str(tmp_path / "gate"))
        worker = int(await pool.words("step-0123"))
        assert command_of(worker).strip() == "ray::step-0123"
        (tmp_path / "gate").touch()
        await pool.end("step-0123")
        for do in ("echo", "break", "unsendable", "die"):
            await pool.submit(do, f"step-{do}", words)
            await pool.end(f"step-{do}")
        await pool.settled()
    await asyncio.to_thread(cluster.kill)
    files = [file for file in cluster.folder.rglob("*") if file.is_file()]
    told = [file.name for file in files if words in file.read_bytes()]
    assert len(files) > 20
    assert told == []


@in_loop
async def test_nothing_of_a_ticket_is_kept_after_its_end(cluster: RayCluster) -> None:
    size, count = 90_000, 300  # small enough for Ray to keep them in the memory of a process
    async with opened(cluster) as pool:
        backend = pool.backend
        assert isinstance(backend, RayBackend)

        def relays() -> list[int]:
            return cluster.pids(HEAD, "ray::Relay")

        async def some(name: str, more: int) -> list[int]:
            ended = pool.ends
            for number in range(more):
                await pool.submit("large", f"{name}-{number}", size=size)
                await pool.ended(ended + number - 15)  # as many are out in every round
            await pool.until(lambda: bool(pool.ends_of(f"{name}-{more - 1}")))
            await pool.settled()
            pool.seen.clear()
            await asyncio.to_thread(wait_for, lambda: len(relays()) == 1)  # others may be ending
            (relay,) = relays()
            return [resident(relay), resident(backend.driver_pid)]

        before = await some("first", 60)
        after = await some("second", count)
        grown = [now - then for now, then in zip(after, before, strict=True)]
        assert max(grown) < GROWTH_MAX, grown


@in_loop
async def test_a_ticket_that_is_cancelled_while_it_begins_ends_at_most_once(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """Cancelled at many moments between its submission and its start."""
    async with opened(cluster) as pool:
        await pool.settled()
        for number in range(30):
            ticket = f"shard-{number}"
            await pool.submit("wait", ticket, gate=str(tmp_path / "never"))
            await asyncio.sleep(number / 1000)
            await pool.backend.cancel([ticket])
            if any(isinstance(one, Started) for one in pool.of(ticket)):
                await pool.end(ticket)
        await pool.settled()
        await pool.settled()
        assert all(len(pool.ends_of(f"shard-{number}")) <= 1 for number in range(30))
        assert (await pool.backend.capacity()).queued == 0
