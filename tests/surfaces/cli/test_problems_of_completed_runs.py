"""What went wrong is said, and seen in the exit code, also where the status is `completed`."""

from __future__ import annotations

import json
from typing import Any

from .server_in_thread import served
from .support import HEAD, Here

ALIAS = "only"


def session(**more: Any) -> str:
    """One process whose rule needs a number."""
    document = {"id": "orders", "structure": {"A1": {"rule": ALIAS, **more}}}
    rule = {"payload": {"n": {"type": "int64"}}, "onValid": {"payload": {"n": "[n] + 1"}}}
    return json.dumps({"orchestration": document, "rules": {ALIAS: rule}})


#: Both must arrive, and one of them is never valid.
IMPOSSIBLE = json.dumps(
    {
        "orchestration": {
            "id": "meet",
            "structure": {
                "A1": {
                    "rule": "yes",
                    "onValid": {
                        "spawns": ["B1", "B2"],
                        "join": {
                            "joinid": "M1",
                            "mode": "all",
                            "from": [
                                {"node": "B1", "when": "valid"},
                                {"node": "B2", "when": "valid"},
                            ],
                        },
                    },
                },
                "B1": {"rule": "yes"},
                "B2": {"rule": "no"},
                "M1": {"rule": "yes"},
            },
        },
        "rules": {"yes": {"payload": {}}, "no": {"payload": {}, "rules": ["1 == 2"]}},
    }
)


def test_a_session_whose_only_process_was_aborted_is_completed_with_exit_code_3(here: Here) -> None:
    here.write("one.json", session())
    done = here.run("run", "one.json", "--input", "n=text", "--run-id", "r", "--json")
    assert done.code == 3, done
    assert (done.json["status"], done.json["problems"]) == ("completed", 1)
    assert "run r is completed, with 1 problem that nothing handled" in done.err
    assert "step A1: " in done.err
    lenient = here.run("run", "one.json", "--input", "n=text", "--lenient")
    assert lenient.code == 0
    assert "step A1: " in lenient.err
    assert "completed, 1 problem" in here.ok("runs").out
    assert [row["problems"] for row in here.ok("runs", "--json").json] == [1, 1]
    assert here.ok("show", "r", "--json").json["problems"] == 1
    assert here.ok("run", "one.json", "--input", "n=1").err == ""


def test_a_join_that_was_impossible_is_a_problem_and_says_of_what(here: Here) -> None:
    here.write("meet.json", IMPOSSIBLE)
    done = here.run("run", "meet.json", "--json")
    assert (done.code, done.json["status"], done.json["problems"]) == (3, "completed", 1)
    assert "step M1: impossible_join" in done.err


def test_a_server_says_the_same_as_a_store(here: Here) -> None:
    here.write("one.json", session())
    words = ("run", "one.json", "--input", "n=text", "--json")
    with served(here.store) as server:
        at = ("--server", server.url)
        done = here.run(*words, *at)
        assert (done.code, done.json["problems"]) == (3, 1), done
        assert "that nothing handled" in done.err
        assert here.run(*words, *at, "--lenient").code == 0
        assert [row["problems"] for row in here.ok("runs", "--json", *at).json] == [1, 1]


GATE_BESIDE = f"""{HEAD}metadata: {{name: beside}}
workflow:
  - step: fork
    tool: {{kind: noop}}
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: bad}}, {{step: ask}}]}}
  - {{step: bad, tool: {{kind: python, code: "raise ValueError('out of ink')"}}}}
  - {{step: ask, tool: {{kind: decision, ask: "?"}}}}
"""

GUARDED = f"""{HEAD}metadata: {{name: guarded}}
workflow:
  - step: bad
    tool: {{kind: python, code: "raise ValueError('out of ink')"}}
    next: {{arcs: [{{step: b, when: "{{{{ steps.bad.rows[0].n > 1 }}}}"}}]}}
  - {{step: b, tool: {{kind: noop}}}}
"""

CHAINED = f"""{HEAD}metadata: {{name: chained}}
workflow:
  - step: bad
    tool: {{kind: python, code: "raise ValueError('out of ink')"}}
    next: {{arcs: [{{step: clean, when: "{{{{ event.name == 'step.failed' }}}}"}}]}}
  - {{step: clean, tool: {{kind: python, code: "raise KeyError('nothing to clean')"}}}}
"""


def test_why_a_step_failed_is_said_also_when_the_run_ends_waiting(here: Here) -> None:
    here.write("beside.yaml", GATE_BESIDE)
    done = here.run("run", "beside.yaml")
    assert done.code == 4
    assert "step bad: " in done.err
    assert "out of ink" in done.err


def test_a_guard_that_fails_because_its_step_failed_does_not_hide_why(here: Here) -> None:
    here.write("guarded.yaml", GUARDED)
    problem = here.run("run", "guarded.yaml", "--json").json["problem"]
    assert "out of ink" in problem["message"]
    assert "could not be looked at" in problem["message"]


def test_the_first_cause_is_the_problem_and_the_chain_leads_to_the_last(here: Here) -> None:
    here.write("chained.yaml", CHAINED)
    done = here.run("run", "chained.yaml", "--json")
    assert done.code == 1
    problem = done.json["problem"]
    assert "out of ink" in problem["message"]
    assert [one["step"] for one in problem["chain"]] == ["bad", "clean"]
    assert "nothing to clean" in problem["chain"][1]["message"]
    shown = here.run("run", "chained.yaml").out
    assert "and so step clean: " in shown
    assert "next: `anabranch redrive " in shown


def test_codes_are_shown_in_one_style_and_the_log_keeps_its_spelling(here: Here) -> None:
    timed = GUARDED.partition("workflow:")[0] + (
        "workflow:\n  - {step: slow, tool: {kind: shell, command: 'sleep 60', timeout: 50ms}}\n"
    )
    here.write("timed.yaml", timed)
    told = here.run("run", "timed.yaml", "--json").json
    assert told["problem"]["code"] == told["failures"][0]["code"] == "timeout"
    assert '"TIMEOUT"' in here.ok("events", "last", "--json").out
