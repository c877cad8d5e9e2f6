"""The formulas of `docs/scale.md` say what is really written: counted in a store, without a clock.

The loads are those of `python -m bench.scale`, at 2 · 10³; `make soak` has 10⁴ of each.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bench.scale import formulas, loads, plan
from bench.scale.formulas import Cost
from bench.scale.loads import Counted
from bench.scale.simulated import simulate

from anabranch import Settings
from anabranch.kernel.tracker import SHARD_MAX
from anabranch.pools.remote import servers
from anabranch.surfaces.worker import cancel_watch, job_runner
from in_loop import in_loop
from seeds import seeds
from surfaces.worker.support import playbook, serving, working

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
ANSWER_BYTES = len(json.dumps(loads.ANSWER, separators=(",", ":")))
CLOSE = 0.08  # how far bytes may be from the formula: numbers have more digits or fewer
ABOUT = 0.15  # the same for a file, whose pages are never full,
WITH_GAPS = 0.35  # and whose rows of several shards may not fit together on one
MILLISECONDS = rb'"milliseconds":\d+,'

SIZE = len(seeds(10_000, least=2_000))  # of a load

Put = Callable[[Path], Coroutine[Any, Any, Counted]]

LOADS: dict[str, tuple[Put, Cost]] = {
    "steps": (lambda path: loads.steps(path, SIZE), formulas.runs(SIZE // 10, 10)),
    "items of one a shard": (
        lambda path: loads.items(path, SIZE, 1),
        formulas.loop(SIZE, 1, rows_per_shard=0.13),
    ),
    "items": (lambda path: loads.items(path, SIZE, 100), formulas.loop(SIZE, 100)),
    "ten times as many items": (
        lambda path: loads.items(path, 10 * SIZE, 100),
        formulas.loop(10 * SIZE, 100),
    ),
    "items with results": (
        lambda path: loads.kept_items(path, SIZE, 100),
        formulas.loop(SIZE, 100, 4.9),
    ),
    "items with large results": (
        lambda path: loads.kept_items(path, 60_000, 20_000),
        formulas.loop(60_000, 20_000, 5.8),
    ),
    "participants": (
        lambda path: loads.participants(path, SIZE),
        formulas.fan(SIZE, ANSWER_BYTES, 7),
    ),
    "runs that wait": (
        lambda path: loads.waiting(path, SIZE, 0.0),
        formulas.open_runs(SIZE, timer=False),
    ),
    "runs that wait with a timer": (
        lambda path: loads.timed(path, SIZE, 0.0),
        formulas.open_runs(SIZE, timer=True),
    ),
}


@pytest.mark.parametrize("name", LOADS)
def test_a_load_writes_what_its_formula_says(name: str, tmp_path: Path) -> None:
    put, cost = LOADS[name]
    found = asyncio.run(put(tmp_path / "load.db"))
    assert found.events == cost.events
    of_the_clock = _bytes_of_the_clock(tmp_path / "load.db")
    assert found.log_bytes - of_the_clock == pytest.approx(cost.log_bytes, rel=CLOSE)
    assert found.payload_bytes == pytest.approx(cost.payload_bytes, rel=CLOSE)
    gaps = ABOUT if cost.heads > 1 else WITH_GAPS
    assert found.file_bytes == pytest.approx(cost.file_bytes, rel=gaps)
    assert found.heads == cost.heads
    if cost.heads > 1:  # shards and answers that come back together share a row
        assert found.rows == cost.rows


def _bytes_of_the_clock(path: Path) -> int:
    """A shard that takes a millisecond or more tells how long, which a quick machine leaves out."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT events FROM log").fetchall()
    return sum(len(text) for (events,) in rows for text in re.findall(MILLISECONDS, events))


def test_the_page_has_the_figures_of_the_formulas() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert plan.table() == _between(page, "plan")
    assert plan.worker_table() == _between(page, "workers")


def _between(page: str, name: str) -> str:
    (found,) = re.findall(rf"<!-- {name}: begin -->\n(.*?)<!-- {name}: end -->", page, re.DOTALL)
    return str(found)


def test_the_formulas_know_the_limits_of_the_settings() -> None:
    settings = Settings()
    assert settings.inline_bytes_max == formulas.INLINE_BYTES_MAX
    assert settings.run_log_bytes_max == formulas.RUN_LOG_BYTES_MAX
    assert formulas.SHARD_ITEMS_MAX == SHARD_MAX


# -- workers over HTTP -----------------------------------------------------------------------

SHARDS = playbook("""
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 1, keep_results: false}}
    loop: {in: {range: 40}, iterator: n}
    tool: {kind: noop}
""")


def test_the_formulas_know_how_often_workers_ask() -> None:
    assert job_runner.BEATS_PER_LEASE == formulas.LEASE_BEATS
    assert cancel_watch.WAIT_SECONDS == formulas.STOP_QUESTION_SECONDS
    assert cancel_watch.MOMENT_SECONDS == formulas.NAMED_AFTER_SECONDS
    assert servers.LOOK_SECONDS == formulas.SERVERS_QUESTION_SECONDS


@in_loop
async def test_a_worker_makes_two_requests_a_job_that_is_soon_over() -> None:
    async with serving() as server:
        async with working(server.url, concurrency=1):
            name = await server.start(SHARDS)
            await server.parts.engine.wait(name)
        async with server.session.get(f"{server.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        log = [record.events for record in server.parts.store.read(name)]
    asked = [line for line in lines if line.startswith("anabranch_http_requests_total")]
    counts = {line.partition('route="')[2].partition('"')[0]: line.split()[-1] for line in asked}
    assert float(counts["/api/v1/jobs/{run}/{job}/{attempt}/report"]) == 40
    assert float(counts["/api/v1/pools/{pool}/claim"]) in (40, 41)  # the last one may find nothing
    cost = formulas.loop(40, 1, pool=True)
    assert sum(map(len, log)) == pytest.approx(cost.log_bytes, rel=2 * CLOSE)


@in_loop
async def test_a_heartbeat_and_a_word_on_progress_write_what_the_formulas_say() -> None:
    async with serving() as server:
        name = await server.start(SHARDS)
        (task, *_) = (await server.claim())["tasks"]

        def written() -> int:
            return sum(len(record.events) for record in server.parts.store.read(name))

        before = written()
        await server.good(task, "heartbeat", {"lease_seconds": 60})
        beaten = written()
        await server.good(task, "progress", {"progress": {"done": 17, "of": 40}})
        assert beaten - before == pytest.approx(formulas.HEARTBEAT_BYTES, rel=2 * ABOUT)
        assert written() - beaten == pytest.approx(formulas.PROGRESS_BYTES, rel=2 * ABOUT)


# -- through a pool, on a simulated cluster in virtual time ----------------------------------


def total(items: int) -> int:
    return items * (items - 1) // 2


@pytest.mark.parametrize("deaths", [0.0, 0.1])
@pytest.mark.parametrize("size", [2_000, None])
def test_a_loop_on_a_cluster_writes_and_sends_what_the_formulas_say(
    size: int | None, deaths: float, tmp_path: Path
) -> None:
    items, window = 600_000, 40
    found = simulate(tmp_path, items, size, workers=20, deaths=deaths)
    cost = formulas.loop(
        items, size, shared_bytes=22, window=window, pool=True, losses=found.losses
    )
    traffic = formulas.cluster(
        items, size, window=window, part_bytes=found.part_bytes, losses=found.losses
    )
    assert found.total == total(items), "every item counts once"
    assert (found.losses > 0) == (deaths > 0)
    of_shard = formulas.SHARD_EVENTS
    assert found.events == cost.events + of_shard * (
        found.shards - formulas.shards(items, size, window)
    )
    assert found.shards == pytest.approx(formulas.shards(items, size, window), rel=CLOSE)
    assert found.log_bytes == pytest.approx(cost.log_bytes, rel=CLOSE)
    assert found.file_bytes == pytest.approx(cost.file_bytes, rel=WITH_GAPS)
    assert found.submissions == found.shards + found.losses
    assert found.words == 2 * found.submissions
    assert found.sent_bytes == pytest.approx(traffic.sent_bytes, rel=CLOSE)


@pytest.mark.parametrize(
    ("window", "queue", "most"), [(1000, None, 20), (1000, 0, 10), (1000, 50, 60), (7, 50, 7)]
)
def test_no_more_is_in_the_cluster_than_the_window_and_its_queue_allow(
    window: int, queue: int | None, most: int, tmp_path: Path
) -> None:
    found = simulate(tmp_path, 200_000, 1_000, workers=10, window=window, queue=queue)
    assert found.out_most == most
    assert found.total == total(200_000)


@pytest.mark.soak
@pytest.mark.slow
def test_a_thousand_million_items_go_through_a_simulated_cluster(tmp_path: Path) -> None:
    """In shards of a million; `python -m bench.scale.simulated` does the same in shards of 4,096,
    which takes minutes."""
    items, size = 10**9, 10**6
    found = simulate(tmp_path, items, size, workers=100, deaths=0.01)
    cost = formulas.loop(items, size, shared_bytes=24, window=200, pool=True, losses=found.losses)
    assert found.total == total(items)
    assert found.losses > 0
    assert found.events == cost.events
    assert found.log_bytes == pytest.approx(cost.log_bytes, rel=CLOSE)
    assert found.out_most == 200
