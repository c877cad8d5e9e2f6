"""A second terminal beside a running engine, and one where no engine runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hangs import HANG_SECONDS
from surfaces.cli.support import (
    ADMIT,
    GATE,
    HEAD,
    Here,
    Process,
    Terminal,
    beginning,
    sleeper,
    until,
)

from .log import read_story

#: A gate, and beside it a step that keeps the engine running until somebody ends the run.
BESIDE = f"""{HEAD}metadata: {{name: beside}}
workflow:
  - step: fork
    tool: {{kind: noop}}
    next:
      spec: {{mode: inclusive}}
      arcs: [{{step: busy}}, {{step: ask}}, {{step: held}}]
  - step: busy
    tool: {{kind: shell, command: "touch busy; while [ ! -e enough ]; do sleep 0.02; done"}}
  - step: ask
    tool: {{kind: decision, ask: "Go on?", actors: [ann, bob]}}
    next: {{arcs: [{{step: after, when: "{{{{ event.name == 'step.done' }}}}"}}]}}
  - step: after
    tool: {{kind: noop, result: went on}}
  - step: held
    spec: {{policy: {{admit: {{rules: [{{when: "{{{{ ctx.go }}}}", then: {{allow: true}}}}]}}}}}}
    tool: {{kind: noop, result: let in}}
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Here:
    """The second one, in this process; the first one is begun in a process of its own."""
    return Here(tmp_path, capsys, monkeypatch)


@contextmanager
def engine(terminal: Terminal) -> Iterator[Process]:
    """`anabranch run` in the first terminal, at work on its `busy` step."""
    terminal.write("beside.yaml", BESIDE)
    with beginning(terminal, "run", "beside.yaml", "--run-id", "beside", "--json") as process:
        until(lambda: (terminal.folder / "busy").exists())
        yield process


def enough(terminal: Terminal) -> None:
    terminal.write("enough", "")


def seq(terminal: Terminal, run: str = "beside") -> int:
    return int(terminal.show(run)["events"])


# -- beside an engine ------------------------------------------------------------------------


def test_reading_verbs_work_beside_a_running_engine(terminal: Terminal) -> None:
    with engine(terminal) as first:
        (run,) = terminal.ok("runs", "--json").json
        assert (run["run"], run["name"], run["status"]) == ("beside", "beside", "running")
        shown = terminal.ok("show", "last", "--json").json
        assert shown["steps"]["busy"]["status"] == "running"
        told = terminal.ok("explain", "beside").out
        for words in ("a decision by ann, bob: Go on?", "admission", "at work (attempt 1)"):
            assert words in told
        assert "anabranch decide beside gate-3 --reject" in told
        assert "no engine" not in told
        drawn = terminal.ok("graph", "beside", "--format", "dot").out
        assert drawn.startswith("digraph")
        listed = terminal.ok("events", "beside", "--json").out.splitlines()
        assert [json.loads(line)["seq"] for line in listed] == list(range(1, len(listed) + 1))
        assert first.poll() is None


def test_events_are_followed_until_the_run_has_ended(terminal: Terminal) -> None:
    with (
        engine(terminal) as first,
        beginning(terminal, "events", "beside", "--follow", "--json") as following,
    ):
        assert following.stdout is not None
        seen: list[dict[str, Any]] = []
        for line in following.stdout:
            seen.append(json.loads(line))
            if seen[-1]["kind"] == "gate.opened":
                terminal.ok("decide", "beside", "ask", "--fulfil")
            if seen[-1]["kind"] == "gate.decided":
                terminal.ok("cancel", "beside")
        assert (following.wait(HANG_SECONDS), first.end().code) == (0, 1)
    assert [one["seq"] for one in seen] == list(range(1, len(seen) + 1))
    assert seen[-1]["kind"] == "run.finished"


def test_what_is_said_reaches_the_engine_and_is_acknowledged(terminal: Terminal) -> None:
    with engine(terminal) as first:
        told = terminal.ok("decide", "beside", "ask", "--fulfil", "--evidence", '{"n": 1}')
        assert told.out == "decide: taken by the running engine; run beside is running\n"
        told = terminal.ok("patch", "beside", "go=true", "who=ann", "--json")
        assert told.json == {
            "run": "beside", "verb": "patch", "taken": "engine", "status": "running"
        }  # fmt: skip
        until(lambda: terminal.show("beside")["steps"]["held"]["result"])
        shown = terminal.show("beside")
        assert shown["context"] == {"go": True, "who": "ann"}
        assert shown["steps"]["after"]["result"] == "went on"
        enough(terminal)
        done = first.end()
    assert (done.code, done.json["status"]) == (0, "completed")
    story = read_story(terminal.store, "beside")
    (decided,) = [e for e in story.events if type(e).__name__ == "GateDecided"]
    assert (decided.actor, decided.evidence) == ("ann", {"n": 1})  # type: ignore[union-attr]


def test_a_pause_reaches_the_engine_which_leaves_when_nothing_runs(terminal: Terminal) -> None:
    with engine(terminal) as first:
        assert "is paused" in terminal.ok("pause", "beside", "--reason", "lunch").out
        terminal.ok("decide", "beside", "ask", "--fulfil")
        enough(terminal)
        done = first.end()
        assert done.code == 4
        assert "run beside is left paused:" in done.err
        assert "lunch" in done.err
        assert done.json["steps"]["after"]["status"] == "ready"  # not started
    terminal.ok("patch", "beside", "go=1")
    assert terminal.ok("resume", "beside", "--json").json["status"] == "completed"


def test_a_cancel_reaches_the_engine_and_stops_its_work(terminal: Terminal) -> None:
    with engine(terminal) as first:
        terminal.ok("cancel", "beside", "--reason", "enough of it")
        done = first.end()
    assert done.code == 1
    assert done.json["status"] == "cancelled"
    assert done.json["problem"] == {"code": "cancelled", "message": "enough of it"}


REFUSED = {
    ("decide", "beside", "busy", "--fulfil"): "no gate 'busy' is open",
    ("decide", "beside", "ask", "--fulfil", "--actor", "eve"): "by ann, bob, not by eve",
    ("decide", "nobody", "ask", "--fulfil"): "there is no run 'nobody'",
    ("decide", "beside", "ask", "--fulfil", "--evidence", "{"): "--evidence is not JSON",
    ("patch", "beside", "go"): "'go' is not K=V",
    ("patch", "beside", "go=x", "--reduce", "sum"): "sum",
    ("pause", "nobody"): "there is no run 'nobody'",
    ("cancel", "nobody"): "there is no run 'nobody'",
}


def test_what_does_not_fit_is_refused_and_changes_nothing(terminal: Terminal) -> None:
    with engine(terminal) as first:
        before = seq(terminal)
        for words, why in REFUSED.items():
            done = terminal.run(*words)
            assert done.code == 2, words
            assert why in done.err
            assert done.err.count("\n") == 1
            assert done.out == ""
        assert seq(terminal) == before
        assert first.poll() is None


def test_two_decisions_that_race_from_two_processes(terminal: Terminal) -> None:
    with engine(terminal):
        racers = [
            terminal.begin("decide", "beside", "ask", verdict, "--actor", actor)
            for verdict, actor in (("--fulfil", "ann"), ("--reject", "bob")) * 2
        ]
        ends = [racer.end() for racer in racers]
        assert sorted(end.code for end in ends) == [0, 2, 2, 2]
        for end in ends:
            assert end.code == 0 or "is open" in end.err
    story = read_story(terminal.store, "beside")
    assert sum(type(event).__name__ == "GateDecided" for event in story.events) == 1


# -- without an engine -----------------------------------------------------------------------


def test_two_decisions_that_race_where_no_engine_runs(terminal: Terminal) -> None:
    terminal.write("gate.yaml", GATE)
    assert terminal.run("run", "gate.yaml", "--run-id", "g").code == 4
    racers = [
        terminal.begin("decide", "g", "ask", verdict, "--actor", actor)
        for verdict, actor in (("--fulfil", "ann"), ("--reject", "bob")) * 2
    ]
    ends = [racer.end() for racer in racers]
    assert sorted(end.code for end in ends) == [0, 2, 2, 2], ends
    for end in ends:  # whoever was late heard why, and nobody sat out his patience
        late = ("no gate 'ask' is open", "run g has ended")
        assert end.code == 0 or any(words in end.err for words in late), end
    story = read_story(terminal.store, "g")
    assert sum(type(event).__name__ == "GateDecided" for event in story.events) == 1


def test_what_is_said_without_an_engine_is_recorded_and_resume_finishes(
    terminal: Terminal,
) -> None:
    terminal.write("gate.yaml", GATE)
    left = terminal.run("run", "gate.yaml", "--run-id", "g")
    assert left.code == 4
    assert "run g is left waiting:" in left.err
    told = terminal.ok("decide", "g", "ask", "--fulfil", "--actor", "ann")
    assert "decide: recorded; run g is running" in told.out
    assert "`anabranch resume g` goes on with it" in told.out
    assert terminal.ok("resume").out.startswith("gate (g): completed")
    again = terminal.run("decide", "g", "ask", "--fulfil", "--actor", "ann")
    assert again.code == 2
    assert again.err.startswith("anabranch: run g has ended: completed; ann answered fulfil at 20")


def test_a_pause_and_a_patch_without_an_engine_take_effect(terminal: Terminal) -> None:
    terminal.write("admit.yaml", ADMIT)
    assert terminal.run("run", "admit.yaml", "--run-id", "a").code == 4
    assert "run a is paused" in terminal.ok("pause", "a").out
    assert terminal.run("pause", "a").code == 2
    terminal.ok("patch", "a", "go=7")
    assert terminal.ok("explain", "a").out.count("paused") >= 1
    assert "left paused: a (name one to resume it)" in terminal.ok("resume").err
    assert terminal.ok("resume", "a", "--json").json["result"] == 7


def test_a_cancel_without_an_engine_ends_what_a_dead_engine_left(terminal: Terminal) -> None:
    terminal.write("sleeper.yaml", sleeper(30))
    with beginning(terminal, "run", "sleeper.yaml", "--run-id", "s") as first:
        until(lambda: (terminal.folder / "pids").exists())
        first.kill()
        first.wait()
    told = terminal.ok("cancel", "s", "--json").json
    assert told == {"run": "s", "verb": "cancel", "taken": "recorded", "status": "cancelled"}
    refused = terminal.run("resume", "s")
    assert (refused.code, refused.err) == (2, "anabranch: run s has ended: cancelled\n")


# -- one engine per file ---------------------------------------------------------------------


def test_a_second_engine_is_refused_and_the_owner_named(terminal: Terminal) -> None:
    with engine(terminal) as first:
        before = seq(terminal)
        for words in (("run", "beside.yaml"), ("resume",), ("resume", "beside")):
            done = terminal.run(*words)
            assert done.code == 2
            assert f"pid {first.pid} on" in done.err
            assert "work beside it" in done.err
            assert done.out == ""
        assert seq(terminal) == before
        assert len(terminal.ok("runs", "--json").json) == 1


def test_the_store_of_a_killed_engine_is_free_at_once(terminal: Terminal) -> None:
    with engine(terminal) as first:
        first.kill()
        first.wait()
    enough(terminal)
    terminal.ok("patch", "beside", "go=1")
    terminal.ok("decide", "beside", "ask", "--fulfil")
    assert terminal.ok("resume", "--json").json["status"] == "completed"


def test_a_run_paused_in_an_engine_elsewhere_is_resumed_there(terminal: Terminal) -> None:
    """An engine that serves several runs does not leave because one of them is paused."""
    terminal.write("gate.yaml", GATE)
    assert terminal.run("run", "gate.yaml", "--run-id", "g").code == 4
    with engine(terminal):
        terminal.ok("pause", "g")
        told = terminal.ok("resume", "g", "--json").json
        assert told == {"run": "g", "verb": "resume", "taken": "engine", "status": "waiting"}
        assert "taken by the running engine" in terminal.ok("decide", "g", "ask", "--fulfil").out
        until(lambda: terminal.show("g")["status"] == "completed")
