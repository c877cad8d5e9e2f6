"""A Dask cluster of separate processes: a scheduler and two workers of one thread each."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.clusters.processes import until

WORKERS = ("w1", "w2")
ROOT = Path(__file__).parent.parent.parent


class DaskCluster:
    engine = "dask"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port, self._pages = _free_ports(2)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """For a pool."""
        return f"dask://127.0.0.1:{self.port}?tools=bench.clusters.tools"

    @property
    def address(self) -> str:
        """For Dask's own client."""
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    @property
    def scheduler(self) -> int:
        return self._processes["scheduler"].pid

    def start(self) -> None:
        place = ["--host", "127.0.0.1", "--port", str(self.port)]
        pages = ["--dashboard-address", f"127.0.0.1:{self._pages}"]
        self._run("scheduler", "dask_scheduler", *place, *pages)
        for name in WORKERS:
            self.start_worker(name)
        until(lambda: self._counts().get("workers") == len(WORKERS), "the workers of Dask")

    def start_worker(self, name: str) -> None:
        size = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0"]
        where = ["--host", "127.0.0.1", "--name", name, "--local-directory", str(self._folder)]
        self._run(name, "dask_worker", self.address, *size, *where)

    def kill_worker(self) -> str:
        """kill -9 of one of the workers."""
        name = WORKERS[0]
        self._kill(name)
        return name

    def replace_worker(self, name: str) -> None:
        """Another process in its place, as whoever runs a cluster has it."""
        self.start_worker(name)

    def _run(self, name: str, module: str, *words: str) -> None:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *words],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": path},
            )

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in list(self._processes):
            self._kill(name)

    def queued(self) -> int:
        """Tasks that the scheduler knows and that are not over."""
        counts = self._counts()
        return int(counts.get("tasks", 0)) - int(counts.get("memory", 0))

    def _counts(self) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._pages, timeout=60)
        try:
            connection.request("GET", "/json/counts.json")
            return dict(json.loads(connection.getresponse().read()))
        except (OSError, ValueError, http.client.HTTPException):
            return {}
        finally:
            connection.close()


@contextmanager
def dask_cluster(folder: Path) -> Iterator[DaskCluster]:
    place = folder / "dask"
    place.mkdir()
    cluster = DaskCluster(place)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    with suppress(OSError):
        for one in sockets:
            one.bind(("127.0.0.1", 0))
    found = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return found
