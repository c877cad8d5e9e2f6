"""A Ray cluster of separate processes: a head and a second node, each with one processor."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.clusters.pooled import STEP
from bench.clusters.processes import command, marked, until

ROOT = Path(__file__).parent.parent.parent
MARK = "ANABRANCH_BENCH_RAY"
HEAD, SECOND = "127.0.0.2", "127.0.0.3"  # 127.0.0.1 makes Ray look for another address
STORE_BYTES = 100_000_000
#: Ray asks for a token where the user has one, which another cluster may have left behind.
AUTH_MODE = "RAY_AUTH_MODE"


class RayCluster:
    engine = "ray"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = _free_port()

    @property
    def url(self) -> str:
        return f"ray:{HEAD}:{self._port}?tools=bench.clusters.tools"

    @property
    def address(self) -> str:
        return f"{HEAD}:{self._port}"

    @property
    def pids(self) -> list[int]:
        return marked(f"{MARK}={self._folder}")

    @property
    def scheduler(self) -> int:
        return next(pid for pid in self.pids if "gcs/gcs_server" in command(pid))

    def start(self) -> None:
        self._start(HEAD, "--head", f"--port={self._port}", "--include-dashboard=false")
        self._start(SECOND, f"--address={self.address}")

    def _start(self, host: str, *more: str) -> None:
        words = ["start", "--num-cpus=1", f"--object-store-memory={STORE_BYTES}"]
        words += [f"--node-ip-address={host}", f"--temp-dir={self._folder / host}"]
        words += ["--include-log-monitor=false", "--disable-usage-stats", *more]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        own = {MARK: str(self._folder), "RAY_TMPDIR": str(self._folder), "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-m", "ray.scripts.scripts", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, **own},
            cwd=self._folder,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"Ray does not start: {done.stdout[-2000:]} {done.stderr[-2000:]}")

    def kill_worker(self) -> str:
        """kill -9 of one process that has a task."""
        busy = [pid for pid in self.pids if _has_task(command(pid))]
        if not busy:
            raise RuntimeError("no worker of Ray has a task")
        os.kill(busy[0], signal.SIGKILL)
        return str(busy[0])

    def replace_worker(self, name: str) -> None:
        """Ray does that by itself."""

    def stop(self) -> None:
        def gone() -> bool:
            left = self.pids
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not left

        until(gone, "the end of Ray")


@contextmanager
def ray_cluster(_folder: Path) -> Iterator[RayCluster]:
    place = Path(tempfile.mkdtemp(prefix="ray"))  # short, for the sockets in it
    cluster = RayCluster(place)
    before = os.environ.get(AUTH_MODE)
    os.environ[AUTH_MODE] = "disabled"  # also for those who connect to it
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(place, ignore_errors=True)
        os.environ.pop(AUTH_MODE)
        if before is not None:
            os.environ[AUTH_MODE] = before


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((HEAD, 0))
        return int(one.getsockname()[1])


def _has_task(words: str) -> bool:
    """A process of Ray is called after the task that it does, and a task of ours after its step."""
    return words.startswith(f"ray::{STEP}-")
