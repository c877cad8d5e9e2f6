"""A real server with few files to open: it starts, serves and works, and its log stays short."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hangs import HANG_SECONDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc"),
]
HALF_A_HEAD = b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-More: "
SMALL = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "small"},
    "workflow": [
        {
            "step": "first",
            "tool": {"kind": "shell", "command": "echo hello"},
            "next": {"arcs": [{"step": "second"}]},
        },
        {"step": "second", "tool": {"kind": "python", "code": "return 5"}},
    ],
}
LIMITED = (
    "import resource, sys; most = (int(sys.argv[1]),) * 2;"
    "resource.setrlimit(resource.RLIMIT_NOFILE, most);"
    "sys.argv[1:] = sys.argv[2:]; from anabranch.surfaces.cli.main import main; main()"
)
LOG_BYTES = 20_000


class Limited:
    def __init__(self, url: str, log: Path, pid: int) -> None:
        self.url, self.log, self.pid = url, log, pid

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ask(self, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        head = {"Content-Type": "application/json"} if data else {}
        asked = urllib.request.Request(f"{self.url}/api/v1{path}", data, head)
        with urllib.request.urlopen(asked, timeout=HANG_SECONDS) as answer:
            return json.load(answer)

    def works(self) -> None:
        run = self.ask("/runs", {"definition": SMALL})["run"]
        while not self.ask(f"/runs/{run}/wait?seconds=50")["finished"]:
            pass
        assert self.ask(f"/runs/{run}")["result"] == 5


@contextmanager
def limited(folder: Path, files: int) -> Iterator[Limited]:
    log = folder / "log"
    words = ["serve", "--port", "0", "--json", "--store", str(folder / "kept.db")]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", LIMITED, str(files), *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=folder,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield Limited(json.loads(line)["url"], log, process.pid)
        process.terminate()
        assert process.wait(HANG_SECONDS) == 0, log.read_text()[-4000:]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("files", "crowd"),
    [
        (64, 200),
        pytest.param(256, 300, marks=pytest.mark.soak),
        pytest.param(1024, 1000, marks=pytest.mark.soak),
    ],
)
def test_half_heads_beyond_the_limit_of_files_keep_nobody_out_and_the_log_short(
    files: int, crowd: int, tmp_path: Path
) -> None:
    with limited(tmp_path, files) as server:
        server.works()
        waiting = [socket.socket() for _ in range(crowd)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", server.port))
            until = time.monotonic() + HANG_SECONDS
            for one in waiting:  # those that are connected by now; the others wait in line
                while time.monotonic() < until:
                    try:
                        one.send(HALF_A_HEAD)
                        break
                    except (BlockingIOError, InterruptedError):
                        time.sleep(0.001)
                    except OSError:
                        break  # it made room already
            server.works()
        finally:
            for one in waiting:
                one.close()
        server.works()
    said = server.log.read_text()
    assert len(said) < LOG_BYTES, said[:2000]
    assert "Traceback" not in said, said[:4000]
    assert "ulimit -n" in said  # the log says that there is less room than the setting wants


def test_a_server_with_64_files_works_beside_its_readers(tmp_path: Path) -> None:
    with limited(tmp_path, 64) as server:
        for _ in range(5):
            server.works()
            assert server.ask("/runs")["items"]
            assert server.ask("/health")
