"""Real clusters for the tests of pools: every part a process of its own, on the loopback, to be
killed and started again at the same address.

A module of tests shares one cluster; `heal` starts what the test before has killed.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.pools.address import read_pool
from anabranch.pools.dask.process import DaskProcess
from free_ports import free_ports
from hangs import HANG_SECONDS

TESTS = Path(__file__).parent.parent
SOURCE = Path(anabranch.__file__).parent.parent
ENTRY = "pools.deeds"

_ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join([str(TESTS), str(SOURCE)]),
    "FAR_TOKEN": "correct-horse-battery-staple",  # a secret of the cluster, which no engine has
    # What Dask does beside its work is little here: many clusters share a small machine.
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__GIL__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "1h",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",  # fewer deaths until Dask gives up
}


class DaskCluster:
    """A scheduler and its workers."""

    def __init__(self, folder: Path, workers: int = 2, tls: tuple[str, ...] = ()) -> None:
        """`tls` are the options of Dask's commands that name certificates."""
        self.folder = folder
        self._tls = tls
        self.names = [f"w{number}" for number in range(1, workers + 1)]
        self.port, self.pages = free_ports(2)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return f"dask{'+tls' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """As Dask writes it."""
        return f"{'tls' if self._tls else 'tcp'}://127.0.0.1:{self.port}"

    @property
    def dashboard(self) -> str:
        """Where there is no bokeh, as here, Dask has only the plain pages."""
        return f"http://127.0.0.1:{self.pages}/info/main/workers.html"

    @property
    def size(self) -> tuple[int, int]:
        return len(self.names), len(self.names)

    def backend(self, options: str = "", *, entry: str = ENTRY) -> DaskProcess:
        """Not open yet. `options` stand behind a question mark."""
        return DaskProcess(read_pool("pool", f"{self.url}{options}"), entry=entry)

    # -- its processes -----------------------------------------------------------------------

    def heal(self) -> None:
        """A scheduler, exactly the workers that belong to it, and nothing to do."""
        for name in list(self._processes):
            if name not in ("scheduler", *self.names):
                self.kill(name)
        if not self._alive("scheduler"):
            for name in self.names:
                self.kill(name)  # those of the scheduler before are of no use
            self._run_scheduler()
        self.wait_for(self._is_whole)

    def heal_workers(self) -> None:
        """Start again those that have died, whatever there is to do, and do not wait."""
        for name in self.names:
            if not self._alive(name):
                self.run_worker(name)

    def _is_whole(self, counts: dict[str, Any]) -> bool:
        """Looked at again and again: a worker that was sent away may take its time to end."""
        self.heal_workers()
        return counts["workers"] == len(self.names) and not counts["tasks"]

    def _run_scheduler(self, environment: Mapping[str, str] | None = None) -> None:
        self._run(
            "scheduler",
            ["dask_scheduler", "--host", "127.0.0.1", "--port", str(self.port)],
            ["--dashboard-address", f"127.0.0.1:{self.pages}", *self._tls],
            environment,
        )

    def start_scheduler(self, environment: Mapping[str, str]) -> None:
        """At the address it had."""
        self._run_scheduler(environment)
        self.wait_for(lambda counts: "cores" in counts)

    def run_worker(
        self, name: str, *more: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """`more` are options of `dask worker`."""
        place = ["dask_worker", self.address, "--host", "127.0.0.1", *self._tls]
        size = ["--nthreads", "1", "--memory-limit", "0", "--no-dashboard", "--name", name]
        if "--nanny" not in more:
            size.append("--no-nanny")
        where = ["--local-directory", str(self.folder)]
        self._run(name, place, [*size, *where, *more], environment or {})

    def _run(
        self,
        name: str,
        command: list[str],
        options: list[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        module, *arguments = command
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *arguments, *options],
                env={**os.environ, **_ENVIRONMENT, **(environment or {})},
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def kill(self, name: str) -> None:
        """kill -9; returns when it is gone."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(HANG_SECONDS)

    def kill_scheduler(self) -> None:
        self.kill("scheduler")

    def end(self, name: str) -> None:
        """As an operator does, with SIGTERM; does not wait."""
        self._processes[name].terminate()

    def _alive(self, name: str) -> bool:
        process = self._processes.get(name)
        return process is not None and process.poll() is None

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)

    # -- what it says of itself --------------------------------------------------------------

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """For what the scheduler counts: workers, tasks, …"""
        deadline = time.monotonic() + HANG_SECONDS
        counts: dict[str, Any] = {}
        while time.monotonic() < deadline:
            counts = self.counts() or {"workers": 0, "tasks": 0}
            if wanted(counts):
                return
            time.sleep(0.05)
        raise AssertionError(f"{counts}\n{self.log()}")

    def counts(self) -> dict[str, Any] | None:
        with suppress(OSError, ValueError, http.client.HTTPException):
            return dict(json.loads(self.page("/json/counts.json")))
        return None

    def page(self, path: str) -> str:
        """One of the scheduler's own pages."""
        connection = http.client.HTTPConnection("127.0.0.1", self.pages, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def log(self) -> str:
        """What all of its processes have printed."""
        return "\n".join(one.read_text() for one in sorted(self.folder.glob("*.log")))


def without_us(folder: Path) -> dict[str, str]:
    """The environment of a process in which Anabranch is not installed."""
    (folder / "sitecustomize.py").write_text(_WITHOUT_US)
    return {"PYTHONPATH": str(folder)}


_WITHOUT_US = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "anabranch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""


@contextmanager
def dask_cluster(
    folder: Path, workers: int = 2, tls: tuple[str, ...] = ()
) -> Iterator[DaskCluster]:
    pytest.importorskip("distributed")
    cluster = DaskCluster(folder, workers, tls)
    try:
        cluster.heal()
        yield cluster
    finally:
        cluster.close()
