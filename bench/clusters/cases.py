"""D1 to D4: jobs of a pool on Dask and on Ray, beside what the same cluster does without us."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anabranch.kernel.tracker import SHARD_MAX
from bench.clusters.dask_cluster import DaskCluster, dask_cluster
from bench.clusters.pooled import Pooled, Scenario
from bench.clusters.processes import cpu_seconds, forget_peak, memory_kib
from bench.clusters.ray_cluster import RayCluster, ray_cluster
from bench.clusters.tools import ITEM_SECONDS
from bench.rows import Row

Cluster = DaskCluster | RayCluster
Make = Callable[[Path], AbstractContextManager[Cluster]]

CLUSTERS: dict[str, Make] = {"dask": dask_cluster, "ray": ray_cluster}
EACH = 2_000  # items that the cluster does one by one: 10⁵ would take minutes
NOTHINGS = 100_000
#: Items of D1 in a shard: what automatic sizing comes to where items take next to nothing, which is
#: its limit, and two fixed sizes.
NOTHING_SHARDS = {"automatic": SHARD_MAX, "5,000": 5_000, "25,000": 25_000}
TIMES = 3  # both sides run that often, and the quickest counts
SPINS, SPIN_SHARD = 1_000, 25  # shards of a quarter of a second, as automatic ones aim at
WINDOW = 8


# -- the two sides, each in a process of its own ---------------------------------------------


def alone(cluster: Cluster, work: str, items: int, size: int = 0) -> dict[str, float]:
    command = ["bench.clusters.alone", cluster.engine, cluster.address, work, str(items), str(size)]
    done = subprocess.run(
        [sys.executable, "-m", *command], check=True, stdout=subprocess.PIPE, text=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def pooled(
    cluster: Cluster, folder: Path, *, at_half: Callable[[], None] | None = None, **given: Any
) -> Pooled:
    """`at_half` is called when half of the items of a run are over."""
    store = folder / f"{cluster.engine}-{given['work']}-{given['items']}-{given['size']}.db"
    scenario = Scenario(cluster.url, str(store), watch=at_half is not None, **given)
    command = [sys.executable, "-m", "bench.clusters.pooled", json.dumps(asdict(scenario))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        said = list(_heard(engine.stdout, at_half))
    if engine.returncode:
        raise RuntimeError(f"the engine of {cluster.engine} ended with {engine.returncode}")
    return Pooled(**json.loads(said[-1]))


def _heard(lines: Iterator[str] | Any, at_half: Callable[[], None] | None) -> Iterator[str]:
    """The first `half` is that of the run that wakes the workers."""
    halves = 0
    for line in lines:
        halves += line.strip() == "half"
        if halves == 2 and at_half is not None:
            at_half()
            at_half = None
        yield line


async def _on_each(folder: Path, rows: Callable[[Cluster, Path], list[Row]]) -> list[Row]:
    """On a cluster of each engine, one after the other."""
    found: list[Row] = []
    for make in CLUSTERS.values():
        with make(folder) as cluster:
            found += await asyncio.to_thread(rows, cluster, folder)
    return found


# -- D1: items that do nothing ---------------------------------------------------------------


async def d1(folder: Path) -> list[Row]:
    """10⁵ items that do nothing; the cluster alone item by item, and with the same batches."""
    return await _on_each(folder, _d1)


def _d1(cluster: Cluster, folder: Path) -> list[Row]:
    name, work = cluster.engine, "nothing"
    one_by_one = EACH / alone(cluster, work, EACH)["seconds"]
    rows = []
    for words, size in NOTHING_SHARDS.items():
        batched = NOTHINGS / alone(cluster, work, NOTHINGS, size)["seconds"]
        given = 0 if words == "automatic" else size
        with cpu_of(cluster, folder) as there:
            ours = pooled(cluster, folder, work=work, items=NOTHINGS, size=given, window=WINDOW)
        rate = NOTHINGS / ours.seconds
        beside = f"{name}, batches of {size:,}: {batched:,.0f} items/s"
        spent = f"of the engine; {there[0] / NOTHINGS * 1e6:.2f} µs of the cluster"
        ratio, cpu = rate / batched, ours.cpu / NOTHINGS * 1e6
        called = f"D1 {name} pool, shards {words}"
        rows.append(Row(called, rate, "items/s", beside, ratio, "≥ 0.8×", ratio >= 0.8))
        rows.append(Row(f"{called}, an item", cpu, "µs cpu", spent, None, "", None))
        if words == "automatic":
            beside, ratio = f"{name}, item by item: {one_by_one:,.0f} items/s", rate / one_by_one
            called = f"D1 {name} pool ×{NOTHINGS:,}"
            rows.insert(0, Row(called, rate, "items/s", beside, ratio, "≥ 10×", ratio >= 10))
    return rows


@contextmanager
def cpu_of(cluster: Cluster, folder: Path) -> Iterator[list[float]]:
    """The seconds of processor time that the cluster takes for one of `TIMES` runs, when its
    processes have done such work before."""
    place = folder / f"wake-{cluster.engine}"
    if not place.exists():
        place.mkdir()
        pooled(cluster, place, work="nothing", items=16, size=1, window=WINDOW, times=1)
    found: list[float] = []
    used = cpu_seconds(cluster.pids)
    yield found
    found.append((cpu_seconds(cluster.pids) - used) / TIMES)


# -- D2: items that keep a processor busy ----------------------------------------------------


async def d2(folder: Path) -> list[Row]:
    """1,000 items of 10 ms of the processor, on two workers."""
    return await _on_each(folder, _d2)


def _d2(cluster: Cluster, folder: Path) -> list[Row]:
    name, work = cluster.engine, "spin"
    bare = alone(cluster, work, SPINS, SPIN_SHARD)
    ours = pooled(cluster, folder, work=work, items=SPINS, size=SPIN_SHARD, window=WINDOW)
    ratio = bare["seconds"] / ours.seconds
    words = f"{name} alone: {SPINS / bare['seconds']:,.1f} items/s"
    cpu = ours.cpu / ours.shards * 1000
    spent = f"alone: {bare['cpu'] / ours.shards * 1000:.2f} ms"
    rate = SPINS / ours.seconds
    return [
        Row(
            f"D2 {name} pool, items of 10 ms", rate, "items/s", words, ratio, "≥ 0.9×", ratio >= 0.9
        ),
        Row(f"D2 {name} engine's cpu a shard", cpu, "ms", spent, None, "", None),
    ]


# -- D3: what durability costs a shard -------------------------------------------------------


async def d3(folder: Path) -> list[Row]:
    """1,000 shards of one item that does nothing, over the same tasks of the cluster alone."""
    return await _on_each(folder, _d3)


def _d3(cluster: Cluster, folder: Path, shards: int = 1_000) -> list[Row]:
    name, work = cluster.engine, "nothing"
    with cpu_of(cluster, folder) as there_alone:
        bare = alone(cluster, work, shards, 1)
    with cpu_of(cluster, folder) as there:
        ours = pooled(cluster, folder, work=work, items=shards, size=1, window=32)
    beside = f"{name} alone: {there_alone[0] / shards * 1000:.2f} ms"
    over = (ours.seconds - bare["seconds"]) / shards * 1000
    words = f"{name} alone: {bare['seconds'] / shards * 1000:.2f} ms a task"
    spent = f"client of {name} alone: {bare['cpu'] / shards * 1000:.2f} ms"
    cpu, cluster_cpu = ours.cpu / shards * 1000, there[0] / shards * 1000
    ratio = ours.seconds / bare["seconds"]
    return [
        Row(f"D3 {name} durability a shard", over, "ms", words, ratio, "", None),
        Row(f"D3 {name} engine's cpu a shard", cpu, "ms", spent, None, "", None),
        Row(f"D3 {name} cluster's cpu a shard", cluster_cpu, "ms", beside, None, "", None),
    ]


# -- D4: a worker is killed ------------------------------------------------------------------


async def d4(folder: Path) -> list[Row]:
    """kill -9 of one of two workers in the middle, and another one in its place."""
    return await _on_each(folder, _d4)


def _d4(cluster: Cluster, folder: Path) -> list[Row]:
    how: dict[str, Any] = {"work": "spin", "items": SPINS, "window": WINDOW, "times": 1}
    calm = pooled(cluster, folder, size=SPIN_SHARD, **how)

    def kill() -> None:
        cluster.replace_worker(cluster.kill_worker())

    place = folder / f"struck-{cluster.engine}"
    place.mkdir()
    struck = pooled(cluster, place, size=SPIN_SHARD, at_half=kill, **how)
    extra = struck.seconds - calm.seconds
    lost = struck.lost * SPIN_SHARD * ITEM_SECONDS
    words = f"{struck.lost} shards lost: {lost:.2f} s of work; without: {calm.seconds:.1f} s"
    aim, met = f"≤ {lost + 5:.1f} s", extra <= lost + 5 and struck.lost > 0
    return [Row(f"D4 {cluster.engine} extra time", extra, "s", words, None, aim, met)]


# -- memory ----------------------------------------------------------------------------------


async def pool_memory(folder: Path) -> list[Row]:
    """10⁵ and 10⁶ items through a pool: what engine and scheduler hold, and how much is out."""
    return await _on_each(folder, _pool_memory)


def _pool_memory(
    cluster: Cluster, folder: Path, sizes: Sequence[int] = (10**5, 10**6)
) -> list[Row]:
    name, found, scheduler = cluster.engine, [], []
    for items in sizes:
        forget_peak(cluster.scheduler)
        found.append(
            pooled(cluster, folder, work="nothing", items=items, size=1000, window=WINDOW, times=1)
        )
        scheduler.append(memory_kib(cluster.scheduler, peak=True))
    few, many = found
    engine = many.peak_kib / few.peak_kib
    held = scheduler[1] / scheduler[0]
    words = f"{few.peak_kib / 1024:,.0f} and {many.peak_kib / 1024:,.0f} MiB"
    there = f"{scheduler[0] / 1024:,.0f} and {scheduler[1] / 1024:,.0f} MiB"
    out = f"{many.shards:,} shards, window {WINDOW}"
    return [
        Row(
            f"D {name} engine's memory 10⁶ / 10⁵", engine, "×", words, None, "≤ 1.2", engine <= 1.2
        ),
        Row(f"D {name} scheduler's memory", held, "×", there, None, "≤ 1.2", held <= 1.2),
        Row(
            f"D {name} shards out at most",
            many.out_most,
            "",
            out,
            None,
            f"≤ {WINDOW}",
            many.out_most <= WINDOW,
        ),
    ]
