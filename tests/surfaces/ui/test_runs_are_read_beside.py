"""A page reads a run that is not in memory beside the event loop, however long its log is."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from .support import Server
from .test_guard import Visitor

DONE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: done}
workflow:
  - step: dig
    tool: {kind: noop, result: 1}
"""


def test_no_page_of_a_run_replays_it_on_the_event_loop(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = server.run(DONE)
    store, read = server.parts.store, server.parts.store.read_many
    on_the_loop: list[str] = []
    server.parts.engine._followed._subscribers.finished.pop(run, None)

    def watched(runs: Any) -> Any:
        if threading.current_thread() is server._thread:
            on_the_loop.append(run)
        return read(runs)

    monkeypatch.setattr(store, "read_many", watched)
    visitor = Visitor(server.url)
    for path in ("", "/data", "/joins", "/steps/dig", "/data/input.json", "/events"):
        assert visitor.ask(f"/runs/{run}{path}")[0] == 200
    assert visitor.ask(f"/api/v1/runs/{run}/wait?seconds=0", Accept="*/*")[0] == 200
    assert on_the_loop == []
