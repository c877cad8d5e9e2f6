"""A page reads a run that is not in memory beside the event loop, however long its log is."""

from __future__ import annotations

import json
import threading
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from hangs import HANG_SECONDS

from .support import ASKED, Server
from .test_guard import Visitor

DONE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: done}
workflow:
  - step: dig
    tool: {kind: noop, result: 1}
"""


def reads_on_the_loop(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that are read there from now on."""
    store, read = server.parts.store, server.parts.store.read_many
    found: list[str] = []

    def watched(runs: Any) -> Any:
        if threading.current_thread() is server._thread:
            found.extend(runs)
        return read(runs)

    monkeypatch.setattr(store, "read_many", watched)
    return found


def test_no_page_of_a_run_replays_it_on_the_event_loop(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = server.run(DONE)
    server.parts.engine._followed._subscribers.finished.pop(run, None)
    on_the_loop = reads_on_the_loop(server, monkeypatch)
    visitor = Visitor(server.url)
    for path in ("", "/data", "/joins", "/steps/dig", "/data/input.json", "/events"):
        assert visitor.ask(f"/runs/{run}{path}")[0] == 200
    assert visitor.ask(f"/api/v1/runs/{run}/wait?seconds=0", Accept="*/*")[0] == 200
    assert on_the_loop == []


def test_whoever_asks_for_a_run_that_waits_does_not_have_it_read_on_the_event_loop(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor brought into memory: nothing of it is out, and waiting changes nothing of it."""
    run, core = server.run(ASKED), server.parts.engine._core
    server.call(forget(core))
    on_the_loop = reads_on_the_loop(server, monkeypatch)
    for standing in ("true", "false"):
        for seconds in ("0", "1"):
            asked = f"/runs/{run}/wait?seconds={seconds}&standing={standing}"
            _, told = ask(server, "GET", asked)
            assert (told["status"], told["settled"]) == ("waiting", standing == "true")
    job = {"run": run, "job": "1.0", "attempt": 1}
    _, told = ask(server, "POST", "/jobs/watch", {"worker": "w", "jobs": [job], "wait_seconds": 0})
    assert [one["code"] for one in told["stop"]] == ["unknown_job"]
    status, told = ask(server, "GET", f"/jobs/{run}/1.0/1/definition?worker=w")
    assert (status, told["code"]) == (409, "unknown_job")
    assert run not in core.live
    assert on_the_loop == []


async def forget(core: Any) -> None:
    core.evict(2**50, 0)
    assert not core.live


def ask(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = json.dumps(body).encode() if body is not None else None
    request = Request(f"{server.url}/api/v1{path}", data, method=method)
    request.add_header("Content-Type", "application/json")
    try:
        with urlopen(request, timeout=HANG_SECONDS) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)
