"""Servers and their workers as real processes, which can be killed, stopped and begun again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from anabranch.surfaces.stories.free_ports import free_ports
from bench.crowd import POOL, TOOLS

READY_SECONDS = 600.0  # a busy machine takes its time
TOOLS_NAME = "crowd_tools"


class Station:
    """Use it with `with`: whatever happens, no process is left. All of it lives in one folder.

    Servers are numbered from 0; more than one need a `store` that they can share. `settings` are
    those of the servers, by the names of their variables.
    """

    def __init__(
        self,
        folder: Path,
        *,
        lease_seconds: float = 2.0,
        work_seconds: float = 0.0,
        servers: int = 1,
        store: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.store = folder, folder / "site.db"
        self._place = store or str(self.store)
        self._settings = dict(settings or {})
        self._lease, self._work_seconds = lease_seconds, work_seconds
        (folder / f"{TOOLS_NAME}.py").write_text(TOOLS)
        self._ports = free_ports(servers)  # who asks there too early is not connected to itself
        self.urls = [f"http://127.0.0.1:{port}" for port in self._ports]
        self.port, self.url = self._ports[0], self.urls[0]
        self.servers: dict[int, subprocess.Popen[bytes]] = {}
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

    @property
    def server(self) -> subprocess.Popen[bytes] | None:
        """The first one, where there is one."""
        return self.servers.get(0)

    def serve(self, number: int = 0) -> None:
        """Begin a server; `ready` says when it listens."""
        words = ("serve", "--port", str(self._ports[number]), "--store", self._place)
        self.servers[number] = self._begin(self._log(number), *words, settings=self._settings)

    def work(self, number: int = 0) -> None:
        """One more worker, under a name of its own, given the address of one server."""
        self._worked += 1
        name = f"w{self._worked}"
        words = ("worker", "--server", self.urls[number], "--pool", POOL, "--name", name)
        more = ("--concurrency", "8", "--lease", f"{self._lease:g}")
        self.workers[name] = self._begin(f"{name}.log", *words, *more)

    def server_cpu_seconds(self, number: int = 0) -> float:
        """What the server has used of the processor so far, where one can see."""
        try:
            status = Path(f"/proc/{self.servers[number].pid}/stat").read_text()
        except OSError:
            return 0.0
        fields = status.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill_server(self, number: int = 0) -> None:
        self.servers[number].kill()
        self.servers[number].wait()

    def signal_server(self, number: int, signal: int) -> None:
        self.servers[number].send_signal(signal)

    def kill_worker(self, name: str) -> None:
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait()

    def ready(self, number: int = 0) -> bool:
        """Whether the server has opened its runs, before which it listens and answers that it does
        so; a server that has ended by itself is an error."""
        if self.servers[number].poll() is not None:
            raise AssertionError((self.folder / self._log(number)).read_text()[-4000:])
        asking = HTTPConnection("127.0.0.1", self._ports[number], timeout=5)
        with suppress(OSError, HTTPException), closing(asking):
            asking.request("GET", "/api/v1/runs?limit=1")
            return asking.getresponse().status != HTTPStatus.SERVICE_UNAVAILABLE
        return False

    def wait_ready(self, number: int = 0) -> None:
        end = time.monotonic() + READY_SECONDS
        while not self.ready(number):
            assert time.monotonic() < end, "the server does not listen"
            time.sleep(0.02)

    def _log(self, number: int) -> str:
        return f"server{number or ''}.log"

    def _begin(
        self, log: str, *words: str, settings: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
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
                env={**kept, **more, **(settings or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self._all.append(process)
        return process
