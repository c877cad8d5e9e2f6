"""Streams of pages: they tell what changed and nothing else, and keep no server from stopping."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from .support import TWO_STEPS, Server, eventually


def messages(answer: HTTPResponse) -> Iterator[tuple[str, Any]]:
    """The events of a stream as they come."""
    event = ""
    for line in answer:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            event = value
        elif name == "data":
            yield event, json.loads(value)


def test_a_stream_tells_everything_first_and_then_only_what_changed(server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "s1", "second": "s2"})
    assert eventually(lambda: server.parts.engine.state(run).jobs)
    with urlopen(f"{server.url}/live/runs/{run}", timeout=20) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        said = messages(answer)
        kind, first = next(said)
        assert (kind, list(first["steps"])) == ("run", ["dig"])
        parts = [next(said) for _ in range(2)]
        assert {part["name"] for _, part in parts} == {"waits", "loops"}
        server.steps.open("s1")
        told = next(news for kind, news in said if kind == "run" and "fill" in news["steps"])
        assert told["steps"]["dig"] == ["done", 1]
        server.steps.open("s2")
        rest = list(said)  # the stream ends with the run
    last = [news for kind, news in rest if kind == "run"][-1]
    assert (last["status"], list(last["steps"])) == ("completed", ["fill"])
    assert rest[-1] == ("end", {})


def test_a_finished_run_is_told_once(server: Server) -> None:
    server.steps.open("once")
    run = server.run(TWO_STEPS, {"first": "once", "second": "once"})
    with urlopen(f"{server.url}/live/runs/{run}", timeout=20) as answer:
        kinds = [kind for kind, _ in messages(answer)]
    assert kinds == ["run", "part", "part", "end"]


def test_a_server_that_stops_does_not_wait_for_open_pages(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        run = server.start(TWO_STEPS, {"first": "open", "second": "open"})
        answers = [urlopen(f"{server.url}/live/runs{way}", timeout=20) for way in ("", f"/{run}")]
        for answer in answers:
            next(messages(answer))
        begun = time.monotonic()
    assert time.monotonic() - begun < 5
    for answer in answers:
        answer.close()
