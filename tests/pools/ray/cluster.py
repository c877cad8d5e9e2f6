"""A real Ray cluster for tests: a head and maybe a second node, processes of their own on loopback.

The processes of a node are found by their session, which each node has for itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from anabranch.pools.address import read_pool
from anabranch.pools.ray.backend import RayBackend
from free_ports import free_ports
from hangs import HANG_SECONDS

TESTS = Path(__file__).parent.parent.parent
HEAD, SECOND = "head", "second"
#: Not 127.0.0.1, which Ray takes for a reason to look for another address of the machine.
ADDRESSES = {HEAD: "127.0.0.2", SECOND: "127.0.0.3"}
#: Node → its processors. What a node takes to start is most of what tests on Ray take.
ONE_NODE = {HEAD: 2}
TWO_NODES = {HEAD: 1, SECOND: 1}
SECRET = "correct-horse-battery-staple"  # of the cluster, which no engine has
#: What Ray waits for in vain on a busy machine.
PATIENCE = {
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_health_check_timeout_ms": "60000",
}
#: Ray asks for a token where the user has one, which another cluster may have left behind.
NO_TOKEN = {"RAY_AUTH_MODE": "disabled"}
STARTS = 5
STORE_BYTES = 80_000_000  # the least that Ray takes is a little less


class RayCluster:
    """It runs once it is healed."""

    def __init__(self, folder: Path, processors: Mapping[str, int]) -> None:
        self.folder = folder
        self._processors = processors
        self.port, self.client_port = free_ports(2)

    @property
    def address(self) -> str:
        return f"{ADDRESSES[HEAD]}:{self.port}"

    @property
    def url(self) -> str:
        return f"ray:{self.address}"

    @property
    def client_url(self) -> str:
        return f"ray://{ADDRESSES[HEAD]}:{self.client_port}"

    @property
    def dashboard(self) -> str:
        """Ray has pages where more of it is installed than we need."""
        return ""

    @property
    def size(self) -> tuple[int, int]:
        return sum(self._processors.values()), len(self._processors)

    def backend(
        self, options: str = "", *, url: str = "", entry: str = "pools.deeds", **more: Any
    ) -> RayBackend:
        """Not open yet. `options` stand behind a question mark."""
        return RayBackend(read_pool("pool", f"{url or self.url}{options}"), entry=entry, **more)

    # -- its processes -----------------------------------------------------------------------

    def start(self, node: str, *, environment: Mapping[str, str] | None = None) -> None:
        """Some of Ray's patience is fixed, so this is tried more than once."""
        for _ in range(STARTS):
            if self._started(node, environment or {}):
                return
            self.kill(node)
        raise AssertionError((self.folder / f"{node}.log").read_text()[-4000:])

    def _started(self, node: str, environment: Mapping[str, str]) -> bool:
        words = ["start", f"--num-cpus={self._processors[node]}"]
        words += [f"--object-store-memory={STORE_BYTES}", "--no-monitor"]
        words += [f"--node-ip-address={ADDRESSES[node]}", f"--temp-dir={self.folder / node}"]
        words += ["--include-log-monitor=false", "--disable-usage-stats"]
        if node == HEAD:
            words += ["--head", f"--port={self.port}", "--include-dashboard=false"]
            words += [f"--ray-client-server-port={self.client_port}"]
        else:
            words += [f"--address={self.address}"]
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        mine = {"RAY_TMPDIR": str(self.folder), "PYTHONPATH": path, "FAR_TOKEN": SECRET}
        with (self.folder / f"{node}.log").open("ab") as log:
            starter = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **mine, **PATIENCE, **NO_TOKEN, **environment},
                cwd=self.folder,
                start_new_session=True,
            )
        (self.folder / f"{node}.session").write_text(str(starter.pid))
        return starter.wait(HANG_SECONDS) == 0

    def kill(self, node: str = "") -> None:
        """kill -9 of every process of a node, or of all; returns when they are gone."""
        for each in [node] if node else ADDRESSES:
            wait_for(partial(self._none_left, each))

    def _none_left(self, node: str) -> bool:
        found = self.pids(node)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    def pids(self, node: str, words: str = "") -> list[int]:
        """The processes of a node with these words in their command."""
        file = self.folder / f"{node}.session"
        session = file.read_text() if file.exists() else ""
        return [pid for pid in _session(session) if words in command_of(pid)]

    def running(self, node: str) -> bool:
        return bool(self.pids(node, "raylet/raylet"))

    def kill_scheduler(self) -> None:
        """kill -9 of the head and of everything on its machine."""
        for pid in self.pids(HEAD, "gcs/gcs_server"):
            os.kill(pid, signal.SIGKILL)
        self.kill(HEAD)

    def close(self) -> None:
        self.kill()

    def heal_workers(self) -> None:
        """Ray starts other ones by itself."""

    def log(self) -> str:
        """What all of its processes have printed, and what Ray keeps for people to read."""
        files = [*self.folder.glob("*.log"), *self.folder.glob("*/session_2*/logs/**/*")]
        return "\n".join(_read(one).decode(errors="replace") for one in files if one.is_file())

    def heal(self) -> None:
        """As it was in the beginning, whatever a test has done to it."""
        if not self.running(HEAD) or not self.pids(HEAD, "gcs/gcs_server"):
            self.kill()
            for node in ADDRESSES:
                shutil.rmtree(self.folder / node, ignore_errors=True)
            self.start(HEAD)
        if SECOND in self._processors and not self.running(SECOND):
            self.kill(SECOND)
            self.start(SECOND)


@contextmanager
def ray_cluster(processors: Mapping[str, int]) -> Iterator[RayCluster]:
    folder = Path(tempfile.mkdtemp(prefix="ry"))  # short, for sockets in it
    cluster = RayCluster(folder, processors)
    try:
        cluster.heal()
        yield cluster
    finally:
        cluster.kill()
        shutil.rmtree(folder, ignore_errors=True)


# -- processes -------------------------------------------------------------------------------


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + HANG_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def _session(session: str) -> Iterator[int]:
    """The processes of a session, without those that are dead and not yet waited for."""
    for path in Path("/proc").iterdir():
        if session and path.name.isdecimal():
            state, _, _, its = (_read(path / "stat").rpartition(b")")[2].split() + [b""] * 4)[:4]
            if its.decode() == session and state != b"Z":
                yield int(path.name)


def command_of(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/cmdline")).replace(b"\0", b" ").decode(errors="replace")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
