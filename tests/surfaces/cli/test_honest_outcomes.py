"""The command line says how things went, no more and no less, in all three languages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from .server_in_thread import served
from .support import HEAD, Here, until

# -- definitions, each with one thing that did not go as it should ------------------------------

#: One step is too slow, and the playbook says that it does not matter.
SKIPPED = f"""{HEAD}metadata: {{name: skipped}}
workflow:
  - step: slow
    spec: {{timeout: 50ms, on_timeout: skip}}
    tool: {{kind: wait, for: 1h}}
    next: {{arcs: [{{step: after}}]}}
  - {{step: after, tool: {{kind: noop, result: 7}}}}
"""
PARTLY = f"""{HEAD}metadata: {{name: partly}}
workflow:
  - step: each
    loop: {{in: [1, 0], iterator: n, spec: {{policy: {{failure: {{mode: best_effort}}}}}}}}
    tool: {{kind: python, args: {{n: "{{{{ iter.n }}}}"}}, code: "result = 1 // n"}}
"""
ROUTED = f"""{HEAD}metadata: {{name: routed}}
executor: {{spec: {{on_failure: handled}}}}
workflow:
  - step: bad
    tool: {{kind: python, code: "raise ValueError('out of ink')"}}
    next: {{arcs: [{{step: instead, when: "{{{{ outcome.status == 'error' }}}}"}}]}}
  - {{step: instead, tool: {{kind: noop, result: letter}}}}
"""
WAITS = f"""{HEAD}metadata: {{name: waits}}
workflow:
  - {{step: ask, tool: {{kind: decision, ask: "May we?"}}}}
"""
POOLED = f"""{HEAD}metadata: {{name: pooled}}
workflow:
  - {{step: dig, spec: {{pool: nobodys}}, tool: {{kind: noop}}}}
"""


def meeting(**rules: Any) -> str:
    """B1 and B2 deliver to M1, which needs one of them."""
    join = {
        "joinid": "M1",
        "mode": "any",
        "from": [{"node": "B1", "when": "valid"}, {"node": "B2", "when": "valid"}],
    }
    structure = {
        "A1": {"rule": "yes", "onValid": {"spawns": ["B1", "B2"], "join": join}},
        "B1": {"rule": "yes"},
        "B2": {"rule": "b2"},
        "M1": {"rule": "yes"},
    }
    known = {"yes": {"payload": {}}, **rules}
    return json.dumps({"orchestration": {"id": "meet", "structure": structure}, "rules": known})


#: B2 cannot divide by nothing; the join closes without it.
ABORTED = meeting(
    b2={"payload": {}, "onValid": {"payload": {"n": "1 / 0"}}},
)
INVALID = meeting(b2={"payload": {}, "rules": ["1 == 2"]})
#: What the rule of B2 needs is not there, and that makes its answer a no.
BY_ERROR = meeting(b2={"payload": {"n": {"type": "int64"}}})
READ = {
    "to": "0x" + "11" * 20,
    "function": "price()(int64)",
    "saveAs": {"0": {"key": "Price", "type": "int64"}},
}
#: And so it is where a rule names what is not there.
BY_NAMED_ERROR = meeting(b2={"payload": {}, "contractReads": [READ], "rules": ["[Price] > 0"]})


def workflow(**more: Any) -> str:
    step = {
        "step_id": "solicit",
        "service_type": "t",
        "input": {},
        "target": {"resolve": "static", "participants": ["near", "no", "away"]},
        "fan_in": {"policy": "quorum", "min_responses": 2},
        **more,
    }
    after = {
        "step_id": "after",
        "service_type": "t",
        "depends_on": ["solicit"],
        "input": {},
        "target": {"resolve": "static", "participants": ["near"]},
    }
    return json.dumps({"workflow_id": "w", "plan": {"steps": [step, after]}})


BOOK = """participants:
  near: {function: "honest_parties:near", service_types: [t]}
  no: {function: "honest_parties:no", service_types: [t]}
  away: {function: "honest_parties:away", service_types: [t]}
"""
PARTIES = """
def near(request):
    return {"price": 1}


def no(request):
    return {"status": "no_offer_available"}


def away(request):
    raise ConnectionError("the line is cut")
"""
TOLERATED: Mapping[str, tuple[str, str, str]] = {
    "a step that was skipped": ("a.yaml", SKIPPED, "slow: step slow took longer than"),
    "items that a loop tolerates": ("a.yaml", PARTLY, "each: 1 of 2 items failed"),
    "a process that was aborted": ("a.json", ABORTED, "B2: payload n: division by zero"),
    "a no that comes from an error": ("a.json", BY_ERROR, "B2: inputs are missing: n"),
}


@pytest.mark.parametrize("case", TOLERATED)
def test_a_run_that_completed_with_tolerated_failures_says_so_everywhere(
    here: Here, case: str
) -> None:
    name, text, why = TOLERATED[case]
    here.write(name, text)
    done = here.ok("run", name, "--run-id", "r")
    assert "(r): completed, 1 problem tolerated in " in done.out
    told = why.partition(": ")[2]
    if case != "items that a loop tolerates":  # whose result has the counts
        assert told in done.out
    shown = here.ok("show", "r")
    assert "completed, 1 problem tolerated" in shown.out
    assert told in shown.out or "1 failed: partial" in shown.out
    explained = here.ok("explain", "r").out
    assert "(r): completed, 1 problem tolerated\n  nothing is unfinished\n" in explained
    assert f"went wrong: {why}" in explained
    (row,) = here.ok("runs", "--json").json
    assert (row["status"], row["problems"]) == ("completed", 1)
    assert row["reason"].startswith(why)
    assert "completed, 1 problem" in here.ok("runs").out
    for verb in ("show", "explain"):
        found = here.ok(verb, "r", "--json").json
        assert (found["problems"], found["tolerated"]) == (1, 1)


@pytest.mark.parametrize("case", TOLERATED)
def test_a_redrive_is_advised_only_where_it_would_do_something(here: Here, case: str) -> None:
    name, text, _ = TOLERATED[case]
    here.write(name, text)
    advised = "next: `anabranch redrive " in here.ok("run", name).out
    assert advised == (here.run("redrive", "last", "--dry-run").code == 0)


def test_a_run_whose_failure_was_handled_names_it_and_has_no_problem(here: Here) -> None:
    here.write("a.yaml", ROUTED)
    done = here.ok("run", "a.yaml")
    assert "completed, 1 failure handled in " in done.out
    assert "out of ink" in done.out
    assert "next: " not in done.out
    assert "completed, 1 failure handled\n" in here.ok("explain", "last").out
    assert here.ok("show", "last", "--json").json["problems"] == 0


def test_rules_are_valid_invalid_or_invalid_by_error_in_run_show_and_session_show(
    here: Here,
) -> None:
    by_error = ((text, "invalid by error") for text in (BY_ERROR, BY_NAMED_ERROR))
    for text, word in ((INVALID, "invalid"), *by_error):
        here.write("a.json", text)
        here.ok("run", "a.json")
        for verb in (("show", "last"), ("run", "a.json")):
            lines = here.ok(*verb).out.splitlines()
            assert [line.split()[2] for line in lines if line.startswith("  ✓ B1")] == ["valid"]
            (said,) = [line for line in lines if line.startswith("  ✗ B2")]
            assert f"B2  {word}  " in f"{said}  "
        assert "problem" not in here.ok("show", "last").out or word == "invalid by error"
        rows = here.ok("session", "show", "last", "--json").json
        assert {row["step"]: row["outcome"] for row in rows} == {
            "A1": "valid",
            "B1": "valid",
            "B2": word,
            "M1": "valid",
        }


def test_a_session_says_why_a_process_was_aborted_or_its_no_comes_from_an_error(
    here: Here,
) -> None:
    for text, why in ((ABORTED, "division by zero"), (BY_ERROR, "inputs are missing: n")):
        here.write("a.json", text)
        here.ok("run", "a.json")
        errors = {
            row["step"]: row["error"] for row in here.ok("session", "show", "last", "--json").json
        }
        assert why in errors.pop("B2")
        assert set(errors.values()) == {""}
        assert why in here.ok("session", "show", "last").out


def test_a_workflow_that_skips_a_step_says_so_and_names_who_was_away_and_why(here: Here) -> None:
    here.write("a.json", workflow(fail_policy="skip"))
    here.write("book.yaml", BOOK)
    here.write("honest_parties.py", PARTIES)
    done = here.ok("run", "a.json", "--participants", "book.yaml")
    assert "completed, 1 problem tolerated" in done.out
    assert "– solicit  skipped" in done.out
    dispatches = here.ok("dispatches", "last").out
    assert "unreachable" in dispatches
    assert "away: the line is cut" in dispatches
    assert "went wrong: solicit: " in here.ok("explain", "last").out


# -- what waits, and what does not ----------------------------------------------------------------


def test_an_unfinished_run_took_no_time_yet_and_says_when_it_began(here: Here) -> None:
    here.write("a.yaml", WAITS)
    done = here.run("run", "a.yaml")
    assert done.code == 4
    assert "): waiting, begun " in done.out
    head, row = here.ok("runs").out.splitlines()
    assert row[head.index("TOOK") :].split()[0] == "-"


def test_a_job_that_nobody_claimed_is_queued_and_not_running(here: Here) -> None:
    here.write("a.yaml", POOLED)
    with served(here.store) as server:
        at = ("--server", server.url)
        here.ok("register", "a.yaml", "--path", "pooled", *at)
        here.ok("schedule", "add", "s", "pooled", "--every", "1h", *at)
        run = here.ok("schedule", "run-now", "s", "--json", *at).json["run"]

        def state() -> str:
            shown = here.run("show", run, "--json", *at)
            steps = shown.json.get("steps", {}) if shown.code == 0 else {}
            return str(steps.get("dig", {}).get("state", ""))

        until(lambda: state() == "queued")
        assert "· dig  queued" in here.ok("show", run, *at).out
        explained = here.ok("explain", run, *at).out
        assert "queued, waits for a worker" in explained
        assert "anabranch worker --pool nobodys" in explained
        assert "at work" not in explained
