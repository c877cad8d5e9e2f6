"""`retry`, `skip` and `redrive --from` at a store, and what `show` says of how steps ended."""

from __future__ import annotations

import json

from ..support import HEAD, Here

ASKED = f"""{HEAD}metadata: {{name: asked}}
workflow:
  - step: quote
    tool: {{kind: noop, result: {{price: 3}}}}
    next: {{arcs: [{{step: approve}}]}}
  - step: approve
    tool: {{kind: decision, ask: "Pay?"}}
    next: {{arcs: [{{step: pay}}]}}
  - step: pay
    tool: {{kind: noop, result: "{{{{ approve | default('nothing') }}}}"}}
"""


def waiting(here: Here, run: str) -> None:
    here.write("asked.yaml", ASKED)
    assert here.run("run", "asked.yaml", "--run-id", run).code == 4


def test_a_step_is_skipped_with_a_result_and_the_run_goes_on(here: Here) -> None:
    waiting(here, "r")
    told = here.ok("skip", "r", "approve", "--result", '{"ok": 1}', "--actor", "kim", "--json")
    assert told.json == {"run": "r", "verb": "skip", "taken": "recorded", "status": "running"}
    assert here.ok("resume", "r", "--json").json["result"] == {"ok": 1}
    (event,) = (
        row for line in here.ok("events", "r", "--json").out.splitlines()
        if (row := json.loads(line))["kind"] == "token.skipped"
    )  # fmt: skip
    assert (event["fields"]["actor"], event["fields"]["result"]) == ("kim", {"ok": 1})


def test_a_step_is_skipped_without_one(here: Here) -> None:
    waiting(here, "r")
    here.ok("skip", "r", "approve", "--reason", "not today")
    here.ok("resume", "r")
    shown = here.ok("show", "r", "--json").json
    assert (shown["status"], shown["steps"]["approve"]["status"]) == ("completed", "skipped")
    assert shown["problems"] == 0


def test_what_does_not_apply_is_refused_with_the_reason_and_changes_nothing(here: Here) -> None:
    waiting(here, "r")
    before = here.ok("events", "r").out
    for words, said in (
        (("retry", "r", "approve"), "it waits for a decision"),
        (("retry", "r", "quote"), "none of its runs is unfinished"),
        (("retry", "r", "approv"), "did you mean 'approve'"),
        (("skip", "r", "quote"), "it was done"),
        (("skip", "r", "pay"), "it has not begun"),
        (("skip", "r", "approve", "--token", "99"), "unknown or over"),
        (("skip", "nobody", "approve"), "there is no run"),
    ):
        done = here.run(*words)
        assert (done.code, said in done.err) == (2, True), done
    assert here.ok("events", "r").out == before


def test_a_run_that_has_ended_is_redriven_from_a_step(here: Here) -> None:
    waiting(here, "r")
    here.ok("decide", "r", "approve", "--fulfil")
    here.ok("resume", "r")
    assert here.run("skip", "r", "approve").code == 2
    assert here.run("redrive", "r").code == 2  # nothing failed
    assert "did not run" not in here.ok("redrive", "r", "--dry-run", "--from", "pay").out
    plan = here.ok("redrive", "r", "--dry-run", "--from", "pay", "--json").json
    assert [(one["step"], one["how"]) for one in plan["again"]] == [("pay", "asked")]
    assert "did you mean" in here.run("redrive", "r", "--from", "payy").err
    assert here.ok("redrive", "r", "--from", "pay", "--json").json["status"] == "completed"


def test_rules_are_valid_invalid_or_invalid_by_error_wherever_a_run_is_shown(here: Here) -> None:
    rules = {
        "yes": {"payload": {}},
        "no": {"payload": {}, "rules": ["1 == 2"]},
        "lost": {"payload": {"amount": {"type": "int64"}}},
    }
    structure = {
        "A": {"rule": "yes", "onValid": {"spawns": ["B", "C"]}},
        "B": {"rule": "no"},
        "C": {"rule": "lost"},
    }
    bundle = {"orchestration": {"id": "three", "structure": structure}, "rules": rules}
    here.write("three.json", json.dumps(bundle))
    done = here.run("run", "three.json", "--run-id", "r", "--json")
    assert done.code == 0  # what is tolerated is no failure of the command
    assert (done.json["status"], done.json["problems"], done.json["tolerated"]) == (
        "completed",
        1,
        1,
    )
    states = {name: step["state"] for name, step in done.json["steps"].items()}
    assert states == {"A": "valid", "B": "invalid", "C": "invalid by error"}
    shown = here.ok("show", "r").out
    assert "completed, 1 problem" in shown
    assert "inputs are missing: amount" in shown
    assert "completed, 1 problem" in here.ok("runs").out
    rows = here.ok("session", "show", "r", "--json").json
    assert [row["outcome"] for row in rows] == ["valid", "invalid", "invalid by error"]
    assert "invalid by error" in here.ok("session", "show", "r").out
