"""Health is red when the engine gets nowhere, and says why; metrics can be read by Prometheus."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import StoreError
from anabranch.store.ports import Batch
from anabranch.store.sqlite.store import SqliteStore

from ..support import HELLO, gated, run, serving


def reasons(reply: Any) -> str:
    return " | ".join(reply.json["reasons"])


async def red(client: Any, words: str, query: str = "") -> Any:
    """The report, once it is red for this reason."""
    while True:
        reply = await client.get(f"/health{query}")
        if reply.status == 503 and words in reasons(reply):
            return reply
        await asyncio.sleep(0.02)


def test_a_server_that_works_is_live_and_ready() -> None:
    async def work() -> None:
        async with serving() as client:
            await client.ended(await client.start(HELLO))
            for query in ("", "?check=live", "?check=ready"):
                reply = await client.get(f"/health{query}")
                assert reply.status == 200, reply.text
                assert (reply.json["status"], reply.json["reasons"]) == ("ok", [])
                assert reply.headers["Cache-Control"] == "no-store"
            names = [check["name"] for check in reply.json["checks"]]
            wanted = [
                "engine",
                "turns",
                "commits",
                "loop",
                "timers",
                "runs",
                "store",
                "webhooks",
                "disk",
            ]
            assert names == wanted

    run(work())


def test_an_engine_wedged_in_a_commit_is_neither_live_nor_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk hangs on a writer thread: the process answers, and nothing moves."""
    hold = threading.Event()
    plain = SqliteStore.commit

    def hangs(store: SqliteStore, batch: Batch) -> None:
        if not hold.is_set() and threading.current_thread() is not threading.main_thread():
            hold.wait()
        plain(store, batch)

    async def work() -> None:
        monkeypatch.setattr(SqliteStore, "commit", hangs)
        monkeypatch.setattr("anabranch.runtime.writer.SMALL_BATCH", -1)
        async with serving(tmp_path / "store.db", health_stall_seconds=0.3) as client:
            while (await client.get("/health")).status != 200:
                await asyncio.sleep(0.02)
            starts = [asyncio.create_task(client.start(HELLO))]
            try:
                reply = await red(client, "a commit has been running", "?check=live")
                assert (reply.json["live"], reply.json["ready"]) == (False, False)
                starts.append(asyncio.create_task(client.start(HELLO)))  # waits for the first
                waiting = await red(client, "the engine has taken no turn")
                assert waiting.json["status"] == "bad"
            finally:
                hold.set()
            await asyncio.gather(*starts)
            while (await client.get("/health")).status != 200:
                await asyncio.sleep(0.02)

    run(work())


def test_an_engine_that_has_stopped_says_why(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "store.db") as client:

            def full(_batch: Batch) -> None:
                raise StoreError("the disk is full", code="store_full")

            client.parts.store.commit = full  # type: ignore[method-assign, assignment]
            refused = await client.post("/runs", {"definition": HELLO})
            assert refused.status == 503
            reply = await client.get("/health?check=live")
            assert (reply.status, reply.json["live"]) == (503, False)
            assert "the engine has stopped: the disk is full" in reasons(reply)

    run(work())


def test_a_store_that_takes_no_writes_is_live_and_not_ready(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "store.db") as client:

            def read_only() -> None:
                raise StoreError("the file is read-only", code="store_read_only")

            client.parts.store.probe_write = read_only  # type: ignore[method-assign]
            reply = await client.get("/health")
            assert (reply.status, reply.json["live"]) == (503, True)
            assert "the store takes no writes: the file is read-only" in reasons(reply)
            assert (await client.get("/health?check=live")).status == 200

    run(work())


def test_too_little_room_beside_the_store_is_a_reason(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "store.db", health_disk_bytes=2**62) as client:
            reply = await client.get("/health")
            assert (reply.status, reply.json["ready"]) == (503, False)
            assert "setting health_disk_bytes" in reasons(reply)

    run(work())


def test_a_timer_that_nobody_notices_is_a_reason() -> None:
    async def work() -> None:
        async with serving(health_stall_seconds=5.0) as client:
            engine = client.parts.engine
            engine._core._ring = lambda *_now: None  # type: ignore[method-assign]
            engine._core.set_wake("nobody", engine.clock.now() - 60_000)
            reply = await client.get("/health")
            assert reply.status == 503
            assert "the next timer is 60 s late" in reasons(reply)

    run(work())


def test_a_job_that_no_worker_fetches_is_a_warning_and_no_reason_to_restart() -> None:
    async def work() -> None:
        async with serving(health_queue_seconds=5.0) as client:
            engine = client.parts.engine
            engine.pools.add("r1", "1.0", 1, "gpu", engine.clock.now() - 60_000)
            reply = await client.get("/health")
            assert (reply.status, reply.json["status"]) == (200, "warn")
            assert "for a worker of pool 'gpu': start one" in reasons(reply)

    run(work())


def test_metrics_count_runs_requests_and_the_work_done() -> None:
    async def work() -> None:
        async with serving() as client:
            await client.ended(await client.start(HELLO))
            await client.stands(await client.start(gated()))
            await client.get("/runs/nobody")
            await client.get("/no/such/path")
            reply = await client.get(f"{client.url}/metrics")
            assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            for line in (
                'anabranch_runs{status="completed",dialect="noetl"} 1',
                'anabranch_runs{status="waiting",dialect="noetl"} 1',
                'anabranch_runs_ended_total{status="completed"} 1',
                'anabranch_jobs_ended_total{kind="noop",how="ok"} 1',
                'anabranch_http_requests_total{route="/api/v1/runs",method="POST",status="201"} 2',
                'anabranch_http_request_seconds_count{route="/api/v1/runs/{run}"} 1',
                'anabranch_http_requests_total{route="",method="",status="404"} 1',
                'anabranch_http_request_seconds_count{route="/api/v1/runs"} 2',
            ):
                assert f"\n{line}\n" in reply.text, line
            assert (await client.get("/metrics")).text.startswith("# HELP anabranch_turns_total")

    run(work())
