"""A server that was stopped for a while (SIGSTOP, a paused machine) loses no finished work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import quick_starts
from hangs import HANG_SECONDS, PATIENCE

pytestmark = pytest.mark.slow

POOLED = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "pooled"},
    "workflow": [{"step": "far", "spec": {"pool": "gpu"}, "tool": {"kind": "noop"}}],
}
LEASE_SECONDS = 2.0


class Suspended:
    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.process, self.url, self.log = process, url, log

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        data = json.dumps(body).encode() if body is not None else None
        head = {"Content-Type": "application/json"} if data else {}
        asked = urllib.request.Request(f"{self.url}/api/v1{path}", data, head)
        try:
            with urllib.request.urlopen(asked, timeout=HANG_SECONDS) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def good(self, path: str, body: Any = None) -> Any:
        status, answer = self.ask(path, body)
        assert status < 300, answer
        return answer

    def start(self, definition: Any) -> str:
        return str(self.good("/runs", {"definition": definition})["run"])

    def wait(self, run: str) -> None:
        while not self.good(f"/runs/{run}/wait?seconds=30")["finished"]:
            pass

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Stopped as long as the block takes."""
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def events(self, run: str) -> list[str]:
        return [one["type"] for one in self.good(f"/runs/{run}/events?limit=500")["items"]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Suspended]:
    log = tmp_path / "log"
    words = ["serve", "--port", "0", "--json", "--store", str(tmp_path / "kept.db")]
    with log.open("wb") as errors:
        process: quick_starts.Popen[bytes] = quick_starts.Popen(
            [sys.executable, "-m", "anabranch", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=tmp_path,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield Suspended(process, json.loads(line)["url"], log)
    finally:
        process.kill()
        process.communicate()


def test_work_that_was_finished_while_the_server_slept_is_taken(server: Suspended) -> None:
    run = server.start(POOLED)
    claim = {"worker": "w1", "max": 1, "lease_seconds": LEASE_SECONDS}
    (job,) = server.good("/pools/gpu/claim", claim)["tasks"]
    with server.asleep():
        time.sleep(LEASE_SECONDS + 1.5)  # its lease runs out
    # it is awake, and has had the time to look at its timers
    for _ in range(20):
        server.good("/health")
        time.sleep(0.02)
    place = f"/jobs/{run}/{job['job']}/{job['attempt']}/report?worker=w1"
    status, answer = server.ask(place, {"result": 17})
    assert status == 200, answer
    server.wait(run)
    assert server.good(f"/runs/{run}")["result"] == 17


def test_a_worker_that_is_gone_still_loses_its_job(server: Suspended) -> None:
    run = server.start(POOLED)
    claim = {"worker": "w1", "max": 1, "lease_seconds": LEASE_SECONDS}
    server.good("/pools/gpu/claim", claim)
    with server.asleep():
        time.sleep(LEASE_SECONDS + 1.5)
    again = {"worker": "w2", "max": 1, "wait_seconds": 40}
    (job,) = server.good("/pools/gpu/claim", again)["tasks"]
    assert (job["run"], job["attempt"]) == (run, 2)


@pytest.mark.parametrize(
    "tool",
    [
        {"kind": "shell", "command": "touch {began}; sleep {pause}; echo done"},
        {
            "kind": "python",
            "code": "import time, pathlib\npathlib.Path('{began}').touch()\n"
            "time.sleep({pause})\nreturn 'done'",
        },
    ],
    ids=["shell", "python"],
)
def test_a_step_that_ended_in_time_is_not_out_of_time_because_the_engine_slept(
    tool: dict[str, str], server: Suspended, tmp_path: Path
) -> None:
    def completed(limit: float) -> bool:
        began = tmp_path / f"began-{limit}"
        given = {key: value.format(began=began, pause=limit / 4) for key, value in tool.items()}
        one = {"step": "here", "tool": {**given, "timeout": f"{limit}s"}}
        run = server.start({**POOLED, "workflow": [one]})
        until = time.monotonic() + HANG_SECONDS
        while not began.exists():
            assert time.monotonic() < until
            time.sleep(0.005)
        with server.asleep():
            time.sleep(limit * 1.5)
        server.wait(run)
        return bool(server.good(f"/runs/{run}")["status"] == "completed")

    assert any(completed(limit) for limit in PATIENCE[1:])
