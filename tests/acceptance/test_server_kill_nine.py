"""A server that is killed in the middle: the next goes on, a repeated start is no second run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import quick_starts
from hangs import HANG_SECONDS

PLAYBOOK = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: survivor}
workflow:
  - step: first
    tool: {kind: shell, command: "echo first >> done"}
    next: {arcs: [{step: second}]}
  - step: second
    tool: {kind: shell, command: "echo second >> done; [ -e go ] || sleep 60"}
    next: {arcs: [{step: third}]}
  - step: third
    tool: {kind: noop, result: arrived}
"""


@contextmanager
def server(folder: Path) -> Iterator[tuple[quick_starts.Popen[str], str]]:
    words = ("serve", "--port", "0", "--json", "--store", "s.db")
    process = quick_starts.Popen(
        [sys.executable, "-m", "anabranch", *words], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.communicate()


def ask(url: str, path: str, body: Any = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    given = {
        "Content-Type": "application/json",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    request = urllib.request.Request(f"{url}/api/v1{path}", data, given)
    with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
        return json.load(answer)


def test_a_killed_server_loses_nothing_and_begins_nothing_twice(tmp_path: Path) -> None:
    start, key = {"definition": PLAYBOOK}, {"Idempotency_Key": "the order of today"}
    with server(tmp_path) as (process, url):
        run = ask(url, "/runs", start, **key)["run"]
        while ask(url, f"/runs/{run}")["steps"].get("second", {}).get("status") != "running":
            ask(url, f"/runs/{run}/wait?seconds=0")
        while not (tmp_path / "done").exists() or "second" not in (tmp_path / "done").read_text():
            ask(url, f"/runs/{run}/wait?seconds=0")
        process.send_signal(signal.SIGKILL)
        process.wait()
    (tmp_path / "go").touch()
    with server(tmp_path) as (_, url):
        assert ask(url, "/runs", start, **key)["run"] == run
        while not (ended := ask(url, f"/runs/{run}/wait?seconds=30"))["settled"]:
            pass
        assert ended["status"] == "completed"
        assert len(ask(url, "/runs")["items"]) == 1
        assert ask(url, f"/runs/{run}")["result"] == "arrived"
        trail = ask(url, "/audit")["items"]
        assert [(line["action"], line["subject"]) for line in trail] == [("runs.create", run)] * 2
    assert (tmp_path / "done").read_text().split() == ["first", "second", "second"]
