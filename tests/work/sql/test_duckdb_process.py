"""DuckDB runs beside the engine: what it opens, and how it ends, is no matter of the engine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from anabranch.work.kind_options import SqlOptions
from anabranch.work.kinds.commands.isolation import KeptNames
from anabranch.work.sql.duckdb import DuckDb

from ..support import alive, fault_of, run, task
from .databases import ENDLESS

pytest.importorskip("duckdb")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def process() -> int:
    """The one process in which this one runs DuckDB."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            program = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
        if parent == os.getpid() and b"duckdb_process" in program:
            found.append(int(entry.name))
    (pid,) = found
    return pid


def test_the_engine_does_not_load_duckdb_and_its_process_ends_with_the_performer() -> None:
    async def scenario() -> int:
        performer = DuckDb()
        try:
            answer = await performer.perform(task("duckdb", query="select 7 as n"))
            assert answer.result["rows"] == [{"n": 7}]
            return process()
        finally:
            await performer.close()

    loaded = "duckdb" in sys.modules
    pid = run(scenario())
    assert ("duckdb" in sys.modules) == loaded
    assert not alive(pid)


def test_on_a_server_it_has_no_login_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extension `postgres` a statement would use it."""
    for name in ("PGPASSWORD", "PGUSER", "PGSERVICEFILE", "CHAIN_KEY", "ANABRANCH_TOKEN"):
        monkeypatch.setenv(name, "word-of-the-house")
    options = SqlOptions(login_of_machine=False, own=KeptNames(frozenset({"CHAIN_KEY"})))

    async def scenario() -> bytes:
        performer = DuckDb(options)
        try:
            await performer.perform(task("duckdb", query="select 7 as n"))
            return Path(f"/proc/{process()}/environ").read_bytes()
        finally:
            await performer.close()

    found = run(scenario())
    assert b"word-of-the-house" not in found
    assert b"PGPASSFILE=/dev/null/none" in found


def test_work_whose_process_is_lost_can_be_tried_again_and_gets_another_one(tmp_path: Path) -> None:
    place = str(tmp_path / "kept.db")

    async def scenario() -> None:
        performer = DuckDb()
        try:
            made = task("duckdb", database=place, command="create table t as select 1 as n")
            assert (await performer.perform(made)).status == "ok"
            begun = tmp_path / "begun.csv"
            commands = [f"copy (select 1) to '{begun}'", ENDLESS["duckdb"]]
            work = asyncio.ensure_future(performer.perform(task("duckdb", commands=commands)))
            while not begun.exists():
                await asyncio.sleep(0.01)
            pid = process()
            os.kill(pid, signal.SIGKILL)
            fault = fault_of(await work)
            assert (fault.kind, fault.retryable) == ("db_connection", True)
            assert fault.code == "DUCKDB_PROCESS"
            assert "SIGKILL" in fault.message
            again = await performer.perform(task("duckdb", database=place, query="from t"))
            assert again.result["rows"] == [{"n": 1}]
            assert process() != pid
        finally:
            await performer.close()

    run(scenario())


def test_a_cancel_that_comes_at_once_still_ends() -> None:
    async def scenario() -> None:
        performer = DuckDb()
        try:
            await performer.perform(task("duckdb", query="select 1"))  # the process is there
            for turns in range(20):
                job = task("duckdb", query=ENDLESS["duckdb"])
                work = asyncio.ensure_future(performer.perform(job))
                for _ in range(turns):
                    await asyncio.sleep(0)
                work.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await work
            answer = await performer.perform(task("duckdb", query="select 1 as n"))
            assert answer.result["rows"] == [{"n": 1}]
        finally:
            await performer.close()

    run(scenario())


def test_numbers_and_texts_reach_duckdb_as_they_are() -> None:
    async def scenario() -> None:
        performer = DuckDb()
        try:
            given = [2**100, float("inf"), "ä\n'\"", None, [1, 2]]
            job = task("duckdb", query="select ?, ?, ?, ?, ?", params=given)
            answer = await performer.perform(job)
            row = list(answer.result["rows"][0].values())
            assert row == [str(2**100), "inf", "ä\n'\"", None, [1, 2]]
        finally:
            await performer.close()

    run(scenario())
