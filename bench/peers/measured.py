"""One measurement: a script in the peer's environment, bounded in time, ended with all it began."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.peers import environments
from bench.peers.catalog import Peer
from bench.peers.environments import NotInstalled
from bench.peers.work import measuring

#: For the largest number of one case; `ANABRANCH_BENCH_PEER_SECONDS` says another.
SECONDS = 15.0
#: A number may take longer than the smaller one let expect.
PATIENCE = 3
#: What interpreters, servers, workers and warm-up may take more.
SERVERS_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Measured:
    """So many runs, steps or items in so many seconds; or the reason why there is no figure."""

    peer: Peer
    case: str
    number: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    reason: str = ""

    @property
    def counted(self) -> int:
        """What a rate counts: steps of runs, or items; one run where the time itself is told."""
        if self.case in ("one", "start"):
            return 1
        return self.number * (measuring.STEPS_OF_MANY if self.case == "many" else 1)

    @property
    def rate(self) -> float:
        return self.counted / self.wall

    @property
    def each_us(self) -> float:
        """Microseconds of the processor for one of what is counted."""
        return self.cpu / self.counted * 1e6


def measured(peer: Peer, case: str, folder: Path, seconds: float) -> Measured:
    """The figure of one case, or why there is none. It never raises for what a peer does."""
    reason = peer.lacks()
    if reason:
        return Measured(peer, case, reason=reason)
    try:
        python = environments.python_of(peer.script, peer.requirements)
        found = _call(python, peer, case, folder, seconds)
    except NotInstalled as problem:
        return Measured(peer, case, reason=str(problem))
    except subprocess.TimeoutExpired as problem:
        return Measured(peer, case, reason=f"did not end within {problem.timeout:.0f} s")
    except (RuntimeError, ValueError) as problem:
        return Measured(peer, case, reason=f"failed: {environments.last_line(str(problem))}")
    return Measured(peer, case, int(found["number"]), found["wall"], found["cpu"])


def _call(python: Path, peer: Peer, case: str, folder: Path, seconds: float) -> dict[str, float]:
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as place:
        words = [case, peer.variant, place, str(seconds)]
        environment = {**os.environ, measuring.MARK: mark, "HOME": _home(Path(place))}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # pip has compiled theirs
        try:
            done = subprocess.run(
                [str(python), str(peer.path), *words],
                check=False,
                capture_output=True,
                text=True,
                env=environment,
                timeout=seconds * PATIENCE + SERVERS_SECONDS,
            )
        finally:
            end_all(mark)
    if done.returncode:
        raise RuntimeError(done.stderr or f"exit code {done.returncode}")
    return parsed(done.stdout)


def _home(place: Path) -> str:
    """Of its own: Ray keeps a token there, which later clusters of the same user would ask for."""
    home = place / "home"
    home.mkdir()
    return str(home)


def parsed(printed: str) -> dict[str, float]:
    """The line of JSON at the end of what a script printed."""
    found = json.loads(environments.last_line(printed) or "null")
    if not isinstance(found, dict) or not {"number", "wall", "cpu"} <= found.keys():
        raise ValueError("it printed no figures")
    return found


def end_all(mark: str, name: str = measuring.MARK) -> None:
    """Servers of the peer that are still there; only processes that this measurement began."""
    for pid in measuring.marked(mark, name):
        if pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
