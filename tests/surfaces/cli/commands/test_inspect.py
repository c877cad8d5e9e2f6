"""`check`, `graph`, `runs`, `show`, `events`, `explain`, `simulate`: verbs that only look."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as Xml

import pytest

from ..support import ADMIT, GATE, HEAD, HELLO, Here

BAD = f"""{HEAD}metadata: {{name: bad}}
workflow:
  - step: one
    tool: {{kind: nop}}
    next: {{arcs: [{{step: twoo}}]}}
  - step: two
    tool: {{kind: noop, result: "{{{{ 1 + }}}}"}}
    surprise: 1
  - step: two
    tool: {{kind: noop}}
"""

WARNS = f"{HEAD}workflow:\n  - {{step: only, tool: {{kind: noop}}}}\n"


@pytest.fixture
def shop(here: Here) -> Here:
    """A store with a run that has ended, one that waits, and one that failed."""
    here.write("hello.yaml", HELLO)
    here.write("gate.yaml", GATE)
    here.write(
        "fails.yaml",
        f"{HEAD}metadata: {{name: fails}}\nworkflow:\n"
        "  - {step: bad, tool: {kind: shell, command: exit 3}}\n",
    )
    here.ok("run", "hello.yaml", "--run-id", "hello-1", "--label", "team=a", "--input", "who=ann")
    here.run("run", "gate.yaml", "--run-id", "gate-1")
    here.run("run", "fails.yaml", "--run-id", "fails-1")
    return here


# -- check -----------------------------------------------------------------------------------


def test_check_lists_every_problem_with_its_place_and_its_mending(here: Here) -> None:
    here.write("bad.yaml", BAD)
    done = here.run("check", "bad.yaml")
    assert done.code == 2
    *problems, verdict = done.out.splitlines()
    places = [re.fullmatch(r"bad.yaml:(\d+):\d+", line.split(": ")[0]) for line in problems]
    assert [place and int(place[1]) for place in places] == [6, 7, 9, 10, 11]
    assert [line.split(": ")[1] for line in problems] == [
        "unknown-kind", "unknown-step", "bad-template", "unknown-key", "duplicate-step",
    ]  # fmt: skip
    assert "did you mean 'noop'?" in problems[0]
    assert "did you mean 'two'?" in problems[1]
    assert verdict == "bad.yaml: 5 to fix, 0 worth a look"


def test_check_as_json(here: Here) -> None:
    here.write("bad.yaml", BAD)
    here.write("hello.yaml", HELLO)
    told = here.run("check", "bad.yaml", "hello.yaml", "--json").json
    assert told["ok"] is False
    assert len(told["problems"]) == 5
    assert told["problems"][0] == {
        "file": "bad.yaml",
        "line": 6,
        "column": 18,
        "code": "unknown-kind",
        "severity": "error",
        "message": "there is no task kind 'nop', and no tool is registered under that name",
        "hint": "did you mean 'noop'?",
    }
    assert here.ok("check", "hello.yaml", "--json").json == {"ok": True, "problems": []}


def test_run_refuses_with_every_problem_and_makes_no_store(here: Here) -> None:
    here.write("bad.yaml", BAD)
    done = here.run("run", "bad.yaml")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("bad.yaml:") == 5
    told = here.run("run", "bad.yaml", "--json")
    assert told.code == 2
    assert told.json["problem"]["code"] == "definition"
    assert told.json["problem"]["message"].count("bad.yaml:") == 5
    assert not here.store.exists()


def test_warnings_count_only_when_strict(here: Here) -> None:
    here.write("warns.yaml", WARNS)
    assert here.ok("check", "warns.yaml").out.startswith("warns.yaml:1:1: no-name: ")
    assert here.run("check", "warns.yaml", "--strict").code == 2
    assert "no-name" in here.ok("run", "warns.yaml").err


def test_check_looks_at_all_files_even_if_one_is_missing(here: Here) -> None:
    here.write("bad.yaml", BAD)
    done = here.run("check", "nowhere.yaml", "bad.yaml", str(here.folder))
    assert done.code == 2
    assert "nowhere.yaml:1:1: no-file: there is no such file" in done.out
    assert "is a directory" in done.out
    assert done.out.count("bad.yaml:") == 5


def test_check_reads_standard_input(here: Here) -> None:
    assert here.run("check", "-", stdin=HELLO).code == 0
    assert here.run("check", "-", stdin=BAD).out.count("<text>:") == 5


# -- graph -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["mermaid", "dot", "svg"])
def test_a_definition_and_a_run_are_drawn(shop: Here, form: str) -> None:
    begins = {"mermaid": "flowchart", "dot": "digraph", "svg": "<svg"}[form]
    plain = shop.ok("graph", "gate.yaml", "--format", form).out
    drawn = shop.ok("graph", "gate-1", "--format", form).out
    for text in (plain, drawn):
        assert text.startswith(begins)
        assert "ship" in text
    assert plain != drawn
    told = shop.ok("graph", "gate-1", "--format", form, "--json").json
    assert told == {"format": form, "graph": drawn.removesuffix("\n")}
    if form == "svg":
        Xml.fromstring(drawn)


def test_a_drawing_can_be_written_to_a_file(shop: Here) -> None:
    done = shop.ok("graph", "gate.yaml", "-o", "gate.mmd")
    assert done.out == ""
    assert (shop.folder / "gate.mmd").read_text().startswith("flowchart")
    refused = shop.run("graph", "gate.yaml", "-o", "no/such/folder/x.svg")
    assert (refused.code, "cannot be written" in refused.err) == (2, True)


def test_what_cannot_be_drawn_is_named(shop: Here) -> None:
    shop.write("bad.yaml", BAD)
    assert shop.run("graph", "bad.yaml").err.count("bad.yaml:") == 5
    assert "there is no such file" in shop.run("graph", "nowhere.yaml").err
    assert "there is no run 'nobody'" in shop.run("graph", "nobody").err


# -- runs, show, events, explain -------------------------------------------------------------


def test_runs_are_listed_newest_first_and_filtered(shop: Here) -> None:
    found = shop.ok("runs", "--json").json
    assert [run["run"] for run in found] == ["fails-1", "gate-1", "hello-1"]
    assert [run["status"] for run in found] == ["failed", "waiting", "completed"]
    filters = {
        ("--status", "waiting"): ["gate-1"],
        ("--status", "waiting", "--status", "failed"): ["fails-1", "gate-1"],
        ("--name", "hello"): ["hello-1"],
        ("--label", "team=a"): ["hello-1"],
        ("--label", "team=b"): [],
        ("--limit", "1"): ["fails-1"],
    }
    for words, expected in filters.items():
        listed = shop.ok("runs", "--json", *words).json
        assert [run["run"] for run in listed] == expected, words
    head, *rows = shop.ok("runs").out.splitlines()
    assert head.split() == ["RUN", "NAME", "STATUS", "STARTED", "TOOK", "LABELS", "REASON"]
    assert rows[-1].split()[:3] == ["hello-1", "hello", "completed"]
    assert rows[-1].endswith("team=a")
    assert shop.ok("runs", "--label", "x=y").out == "no runs\n"


def test_a_run_is_named_by_its_first_letters_or_as_the_last(shop: Here) -> None:
    for name in ("gate-1", "g", "gate"):
        assert shop.ok("show", name, "--json").json["run"] == "gate-1"
    assert shop.ok("show", "last", "--json").json["run"] == "fails-1"
    shop.run("run", "gate.yaml", "--run-id", "gate-11")
    shop.run("run", "gate.yaml", "--run-id", "gate-12")
    shop.run("run", "gate.yaml", "--run-id", "gate-13")
    assert shop.ok("show", "gate-1", "--json").json["run"] == "gate-1"  # exact wins
    done = shop.run("show", "gate")
    assert (done.code, done.err) == (
        2,
        "anabranch: several runs start with 'gate': give more of the id\n",
    )
    assert "there is no run 'x'; `anabranch runs` lists them" in shop.run("show", "x").err


def test_show_tells_everything_about_a_run(shop: Here) -> None:
    told = shop.ok("show", "hello-1", "--json").json
    assert told["input"] == {"who": "ann", "deep": {"a": 1, "b": 2}}
    assert told["labels"] == {"team": "a"}
    assert (told["status"], told["result"]) == ("completed", "hello ann")
    assert told["finished_at"] >= told["created_at"]
    assert (told["waiting"], told["failures"]) == ([], [])
    text = shop.ok("show", "hello-1").out
    for words in ("hello (hello-1): completed", "✓ greet  done  hello ann", "input who: ann"):
        assert words in text
    failed = shop.ok("show", "fails-1")
    assert "  failed: bad: shell: the command ended with exit status 3" in failed.out


def test_explain_says_for_whom_it_waits(shop: Here) -> None:
    told = shop.ok("explain", "gate-1", "--json").json
    assert (told["run"], told["status"], told["engine"]) == ("gate-1", "waiting", None)
    (waits,) = told["waiting"]
    assert waits["step"] == "ask"
    assert waits["movers"] == [
        "anabranch decide gate-1 gate-1 --fulfil",
        "anabranch decide gate-1 gate-1 --reject",
    ]
    assert "a decision by ann, bob: Ship it?" in shop.ok("explain", "gate-1").out
    assert "nothing is unfinished" in shop.ok("explain", "hello-1").out


def test_events_are_listed_one_to_a_line(shop: Here) -> None:
    lines = [json.loads(line) for line in shop.ok("events", "hello-1", "--json").out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, 8))
    assert list(lines[0]) == ["seq", "at", "kind", "fields"]
    assert [line["kind"] for line in lines][0::6] == ["run.started", "run.finished"]
    after = shop.ok("events", "hello-1", "--after", "5", "--json").out.splitlines()
    assert [json.loads(line)["seq"] for line in after] == [6, 7]
    assert shop.ok("events", "hello-1", "--after", "99").out == ""
    text = shop.ok("events", "hello-1", "--follow").out.splitlines()
    assert len(text) == 7
    assert text[-1].split()[-2:] == ["run.finished", "status=completed"]


# -- simulate --------------------------------------------------------------------------------


def test_simulate_runs_a_definition_under_faults(here: Here) -> None:
    here.write("admit.yaml", ADMIT)
    told = here.ok("simulate", "admit.yaml", "--seeds", "5", "--json").json
    assert (told["ok"], told["seeds"]) == (True, 5)
    assert here.ok("simulate", "admit.yaml", "--seeds", "3").out.startswith("3 seeds, ")
    assert here.ok("simulate", "admit.yaml", "--seed", "4", "--json").json["seeds"] == 1
    here.write("bad.yaml", BAD)
    assert here.run("simulate", "bad.yaml").code == 2
