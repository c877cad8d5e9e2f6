"""A server and its workers as real processes, which can be killed and begun again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from bench.crowd import POOL, TOOLS

READY_SECONDS = 60.0
TOOLS_NAME = "crowd_tools"


class Station:
    """Use it with `with`: whatever happens, no process is left. All of it lives in one folder."""

    def __init__(
        self, folder: Path, *, lease_seconds: float = 2.0, work_seconds: float = 0.0
    ) -> None:
        self.folder, self.store = folder, folder / "site.db"
        self._lease, self._work_seconds = lease_seconds, work_seconds
        (folder / f"{TOOLS_NAME}.py").write_text(TOOLS)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server: subprocess.Popen[bytes] | None = None
        self.workers: dict[str, subprocess.Popen[bytes]] = {}  # by name, the oldest first
        self._worked = 0
        self._all: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Station:
        return self

    def __exit__(self, *_exc: object) -> None:
        for process in self._all:
            if process.poll() is None:
                process.kill()
            process.wait()

    def serve(self) -> None:
        """Begin the server; `ready` says when it listens."""
        words = ("serve", "--port", str(self.port), "--store", str(self.store))
        self.server = self._begin("server.log", *words)

    def work(self) -> None:
        """One more worker, under a name of its own."""
        self._worked += 1
        name = f"w{self._worked}"
        words = ("worker", "--server", self.url, "--pool", POOL, "--name", name)
        more = ("--concurrency", "8", "--lease", f"{self._lease:g}")
        self.workers[name] = self._begin(f"{name}.log", *words, *more)

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def kill_worker(self, name: str) -> None:
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait()

    def ready(self) -> bool:
        """Whether the server listens; a server that has ended by itself is an error."""
        assert self.server is not None
        if self.server.poll() is not None:
            raise AssertionError((self.folder / "server.log").read_text()[-4000:])
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
            return True
        return False

    def wait_ready(self) -> None:
        end = time.monotonic() + READY_SECONDS
        while not self.ready():
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.02)

    def _begin(self, log: str, *words: str) -> subprocess.Popen[bytes]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
        paths = [str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        more = {
            "PYTHONPATH": os.pathsep.join(paths),
            "CROWD_WORK_SECONDS": f"{self._work_seconds:g}",
        }
        with (self.folder / log).open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "anabranch", *words, "--tools", TOOLS_NAME],
                cwd=self.folder,
                env={**kept, **more},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self._all.append(process)
        return process
