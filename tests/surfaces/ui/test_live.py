"""Streams of pages: they tell what changed and nothing else, and keep no server from stopping."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from anabranch.errors import StoreError
from anabranch.operations.read.timeline import Timeline
from anabranch.operations.runs.verbs import decision
from anabranch.store.cluster_ports import RunMoved
from anabranch.store.outages import AWAY
from anabranch.store.ports import Journal
from anabranch.surfaces.ui import live
from anabranch.surfaces.ui.pages.runs import counters
from hangs import HANG_SECONDS

from .support import ASKED, TWO_STEPS, Server, eventually


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
    with urlopen(f"{server.url}/live/runs/{run}", timeout=HANG_SECONDS) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        said = messages(answer)
        kind, first = next(said)
        assert (kind, list(first["steps"])) == ("run", ["dig"])
        parts = [next(said) for _ in range(3)]
        assert {part["name"] for _, part in parts} == {"waits", "loops", "troubles"}
        server.steps.open("s1")
        steps: dict[str, Any] = {}
        ways: list[Any] = []
        while not (ways and steps.get("fill")):
            _kind, news = next(said)
            steps |= news.get("steps", {})
            ways += news.get("ways", [])
        assert steps["dig"] == ["done", 1, 0]
        assert steps["fill"][2] == 1  # a token is there
        assert ways == [["dig", "fill", "ok", 1]]  # and this is the way it came
        server.steps.open("s2")
        rest = list(said)  # the stream ends with the run
    last = [news for kind, news in rest if kind == "run"][-1]
    assert (last["status"], list(last["steps"])) == ("completed", ["fill"])
    assert rest[-1] == ("end", {})


def test_a_way_that_is_recorded_after_its_state_was_told_is_told_too(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of a run goes ahead of its log; of one that is over, too."""
    server.steps.open("w1")
    run = server.run(TWO_STEPS, {"first": "w1", "second": "w1"})
    read, written = Timeline.catch_up, 0

    def catch_up(timeline: Timeline, log: Journal, run: str) -> Timeline:
        nonlocal written
        written += 1
        return read(timeline, log, run) if written > 3 else timeline

    monkeypatch.setattr(Timeline, "catch_up", catch_up)
    with urlopen(f"{server.url}/live/runs/{run}", timeout=HANG_SECONDS) as answer:
        told = list(messages(answer))
    last = {"ways": [["dig", "fill", "ok", 1]], "moved": True}
    assert told[-2:] == [("ways", last), ("end", {})]


def test_each_connection_begins_with_the_ways_that_were_taken_before(server: Server) -> None:
    server.steps.open("b1")
    run = server.start(TWO_STEPS, {"first": "b1", "second": "b2"})
    assert eventually(lambda: "fill" in str(server.parts.engine.state(run).tokens))
    for _connection in range(2):
        with urlopen(f"{server.url}/live/runs/{run}", timeout=HANG_SECONDS) as answer:
            told = next(news for kind, news in messages(answer) if kind == "ways")
        assert told["ways"] == [["dig", "fill", "ok", 1]]


def test_a_finished_run_is_told_once(server: Server) -> None:
    server.steps.open("once")
    run = server.run(TWO_STEPS, {"first": "once", "second": "once"})
    with urlopen(f"{server.url}/live/runs/{run}", timeout=HANG_SECONDS) as answer:
        kinds = [kind for kind, _ in messages(answer)]
    assert kinds == ["run", "part", "part", "part", "ways", "end"]


def test_a_run_that_began_before_the_page_is_not_new_where_its_news_come_late(
    server: Server,
) -> None:
    run = server.start(TWO_STEPS, {"first": "late1", "second": "late2"})
    head = server.store.head(run)
    assert head is not None
    told: list[Any] = []

    class Telling:
        async def say(self, _event: str, news: Any) -> None:
            told.append(news["begun"])

    for since in (head.created_at, head.created_at + 1):
        watch = live.ListWatch(since, [])
        watch.hear_elsewhere(
            RunMoved(run=run, seq=9, status="waiting", at=since + 9, finished=False, begun=True)
        )
        stream: Any = Telling()
        server.call(live._tell_of_list(watch, server.ui, stream))
    assert told == [1, 0]
    for name in ("late1", "late2"):
        server.steps.open(name)


def test_the_list_is_told_what_moved_and_how_many_runs_began(server: Server) -> None:
    with urlopen(f"{server.url}/live/runs", timeout=HANG_SECONDS) as answer:
        said = messages(answer)
        assert next(said)[1]["begun"] == 0
        run = server.start(TWO_STEPS, {"first": "l1", "second": "l2"})
        told = next(news for _, news in said if run in news["moved"])
        assert told["begun"] == 1
        assert told["moved"][run]["ended"] == 0
        server.steps.open("l1")
        server.steps.open("l2")
        told = next(news for _, news in said if news["moved"].get(run, {}).get("ended"))
    assert told["moved"][run]["status"] == "completed"
    assert told["moved"][run]["events"] == server.wait(run).seq


def test_a_list_that_lost_its_connection_is_told_of_what_happened_without_it(
    server: Server,
) -> None:
    shown = server.start(TWO_STEPS, {"first": "c1", "second": "c2"})
    rendered = server.ui.now() + 1
    while server.ui.now() < rendered:
        pass
    for name in ("c1", "c2"):
        server.steps.open(name)
    server.wait(shown)
    server.run(TWO_STEPS, {"first": "c1", "second": "c2"})
    for _connection in range(2):
        way = f"/live/runs?since={rendered}&run={shown}&run=gone"
        with urlopen(f"{server.url}{way}", timeout=HANG_SECONDS) as answer:
            told = next(messages(answer))[1]
        assert told["begun"] == 1
        assert told["moved"][shown]["status"] == "completed"
        assert told["moved"][shown]["events"] == server.wait(shown).seq


def test_the_inbox_is_told_which_questions_are_open_and_nothing_else(server: Server) -> None:
    with urlopen(f"{server.url}/live/approvals", timeout=HANG_SECONDS) as answer:
        said = messages(answer)
        _, before = next(said)
        server.steps.open("noise")
        server.run(TWO_STEPS, {"first": "noise", "second": "noise"})  # asks nothing
        run = server.run(ASKED)
        _, told = next(said)  # the very next message is about the question
        (new,) = set(told["open"]) - set(before["open"])
        assert new.startswith(f"{run}/gate-")
        server.call(server.parts.verbs.send(run, decision("approve", "fulfil", "kim")))
        _, told = next(said)
        assert new not in told["open"]


def test_a_server_that_stops_does_not_wait_for_open_pages(tmp_path: Path) -> None:
    with Server(tmp_path, shutdown_seconds=600) as server:
        run = server.start(TWO_STEPS, {"first": "open", "second": "open"})
        answers = [
            urlopen(f"{server.url}/live/runs{way}", timeout=HANG_SECONDS) for way in ("", f"/{run}")
        ]
        for answer in answers:
            next(messages(answer))
    for answer in answers:
        answer.close()


@pytest.mark.parametrize("passes", [True, False])
def test_a_page_is_told_more_when_the_store_is_back_and_never_gets_a_second_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    real, failed = counters, 0
    error = StoreError("hung up", code=AWAY if passes else "store_io")

    async def failing(ui: Any) -> Any:
        nonlocal failed
        failed += 1
        if failed < 4:
            raise error
        return await real(ui)

    monkeypatch.setattr(live, "counters", failing)
    monkeypatch.setattr(live, "AWAY_SECONDS", 0.01)
    with urlopen(f"{server.url}/live/runs", timeout=HANG_SECONDS) as answer:
        if passes:
            assert next(messages(answer))[0] == "runs"
        else:
            assert answer.read() == b""
