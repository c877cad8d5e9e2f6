"""`run`, `resume` and `redrive`: what they take, what they print, how they leave."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from typing import Any

import pytest

from hangs import HANG_SECONDS

from ..support import ADMIT, GATE, HEAD, HELLO, Here, Terminal, sleeper

KEYS = [
    "run",
    "name",
    "dialect",
    "status",
    "result",
    "steps",
    "joins",
    "problem",
    "problems",
    "tolerated",
    "handled",
    "failures",
]


def playbook(body: str, spec: str = "") -> str:
    executor = f"executor: {{spec: {{{spec}}}}}\n" if spec else ""
    return f"{HEAD}metadata: {{name: test}}\n{executor}workflow:\n{body}"


FAILS = playbook('  - {step: bad, tool: {kind: python, code: "raise ValueError(1)"}}\n')
PARTIAL = playbook(
    '  - {step: bad, tool: {kind: python, code: "raise ValueError(1)"}}\n', "on_failure: partial"
)
LATE = playbook('  - {step: s, tool: {kind: shell, command: "sleep 9"}}\n', "deadline: 100ms")
TIMED_OUT = playbook(
    "  - step: s\n    spec: {timeout: 100ms, on_timeout: abort_run}\n"
    '    tool: {kind: shell, command: "sleep 9"}\n'
)
NO_ROUTE = playbook(
    "  - step: a\n    tool: {kind: noop}\n"
    '    next: {arcs: [{step: b, when: "{{ false }}"}]}\n'
    "  - {step: b, tool: {kind: noop}}\n",
    "no_next_is_error: true",
)
JOINED = playbook(
    "  - step: fork\n    tool: {kind: noop}\n"
    "    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}\n"
    "  - {step: a, tool: {kind: noop, result: 1}, next: {arcs: [{step: meet}]}}\n"
    "  - {step: b, tool: {kind: noop, result: 2}, next: {arcs: [{step: meet}]}}\n"
    "  - {step: meet, spec: {join: all}, tool: {kind: noop, result: met}}\n"
)
PAUSED = playbook(
    '  - {step: ask, tool: {kind: decision, ask: "?", on_reject: pause}}\n',
)


@pytest.mark.parametrize(
    ("text", "code", "status"),
    [
        (HELLO, 0, "completed"),
        (JOINED, 0, "completed"),
        (FAILS, 1, "failed"),
        (LATE, 1, "deadline_exceeded"),
        (TIMED_OUT, 1, "step_timeout"),
        (NO_ROUTE, 1, "failed"),
        (PARTIAL, 3, "partial"),
        (GATE, 4, "waiting"),
        (ADMIT, 4, "waiting"),
    ],
)
def test_the_exit_code_follows_the_status(here: Here, text: str, code: int, status: str) -> None:
    here.write("test.yaml", text)
    done = here.run("run", "test.yaml", "--json")
    assert done.code == code
    assert done.json["status"] == status
    assert list(done.json) == KEYS
    assert done.out.count("\n") == 1  # one object, and nothing else
    if code in (1, 3):
        assert set(done.json["problem"]) == {"code", "message"}
    else:
        assert done.json["problem"] is None


def test_the_object_has_exactly_the_promised_shape(here: Here) -> None:
    here.write("test.yaml", JOINED)
    found = here.run("run", "test.yaml", "--json", "--run-id", "j").json
    one = {"runs": 1, "status": "done", "statuses": ["done"], "state": "done"}
    assert found == {
        "run": "j",
        "name": "test",
        "dialect": "noetl",
        "status": "completed",
        "result": "met",
        "steps": {
            "fork": {**one, "result": {"status": "noop", "step": "fork"}},
            "a": {**one, "result": 1},
            "b": {**one, "result": 2},
            "meet": {**one, "result": "met"},
        },
        "joins": [{"target": "meet", "verdict": "closed", "selected": ["a", "b"], "late": 0}],
        "problem": None,
        "problems": 0,
        "tolerated": 0,
        "handled": 0,
        "failures": [],
    }


def test_without_json_a_plain_summary_is_printed(here: Here) -> None:
    here.write("test.yaml", JOINED)
    done = here.run("run", "test.yaml", "--run-id", "j")
    first, *lines = done.out.splitlines()
    assert first.startswith("test (j): completed in ")
    assert lines == [
        '  ✓ fork  done  {"status": "noop", "step": "fork"}',
        "  ✓ a     done  1",
        "  ✓ b     done  2",
        "  ✓ meet  done  met",
        "  join at meet: closed, took a, b",
        "  result: met",
    ]
    assert done.err == ""
    assert "\x1b" not in done.out


def test_a_failure_says_why(here: Here) -> None:
    here.write("test.yaml", FAILS)
    done = here.run("run", "test.yaml")
    assert "✗ bad  failed" in done.out
    assert "  reason: schema: ValueError: 1" in done.out


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_run_left_waiting_tells_its_id_and_the_reason_on_standard_error(
    here: Here, more: tuple[str, ...]
) -> None:
    here.write("gate.yaml", GATE)
    done = here.run("run", "gate.yaml", "--run-id", "g", *more)
    assert done.code == 4
    assert "run g is left waiting:" in done.err
    assert "ask (token 1) waits for a decision by ann, bob: Ship it?" in done.err
    assert "can be moved by: anabranch decide g gate-1 --fulfil\n" in done.err
    assert "or by: anabranch decide g gate-1 --reject\n" in done.err


def test_a_run_left_paused_exits_4(here: Here) -> None:
    here.write("test.yaml", PAUSED)
    assert here.run("run", "test.yaml", "--run-id", "p").code == 4
    here.ok("decide", "p", "ask", "--reject", "--reason", "not like this")
    done = here.run("resume", "p", "--json")  # resumed, it asks again
    assert (done.code, done.json["status"]) == (4, "waiting")
    here.ok("pause", "p")
    assert here.run("resume").err.startswith("left paused: p (name one to resume it)")
    here.ok("decide", "p", "ask", "--fulfil")
    assert here.show("p")["status"] == "completed"


# -- input -----------------------------------------------------------------------------------

ECHO = playbook('  - {step: echo, tool: {kind: noop, result: "{{ workload }}"}}\n').replace(
    "workflow:", "workload: {a: 1, deep: {x: 1, y: 2}}\nworkflow:"
)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), {"a": None, "deep": {"x": 1, "y": 2}}),
        (("a=2",), {"a": 2, "deep": {"x": 1, "y": 2}}),
        (("a=text",), {"a": "text", "deep": {"x": 1, "y": 2}}),
        (('a="2"',), {"a": "2", "deep": {"x": 1, "y": 2}}),
        (("a=[1, {}]",), {"a": [1, {}], "deep": {"x": 1, "y": 2}}),
        (("a=",), {"a": "", "deep": {"x": 1, "y": 2}}),
        (("a=b=c",), {"a": "b=c", "deep": {"x": 1, "y": 2}}),
        (("a=NaN",), {"a": "NaN", "deep": {"x": 1, "y": 2}}),
        (("deep.x=7", "deep.z=8"), {"a": None, "deep": {"x": 7, "y": 2, "z": 8}}),
        (("a=1", "a=2"), {"a": 2, "deep": {"x": 1, "y": 2}}),
    ],
)
def test_input_is_json_where_it_can_be_and_laid_over_the_workload(
    here: Here, words: tuple[str, ...], found: Any
) -> None:
    here.write("echo.yaml", ECHO.replace("a: 1", "a: null"))  # anything may be given for nothing
    given = [part for word in words for part in ("--input", word)]
    assert here.ok("run", "echo.yaml", "--json", *given).json["result"] == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("in.json", '{"a": 5, "deep": {"x": 6}}'),
        ("in.yaml", "a: 5\ndeep: {x: 6}\n"),
        ("in.txt", "a: 5\ndeep:\n  x: 6\n"),
    ],
)
def test_an_input_file_is_json_or_yaml_and_input_goes_over_it(
    here: Here, name: str, text: str
) -> None:
    here.write("echo.yaml", ECHO)
    here.write(name, text)
    words = ("run", "echo.yaml", "--json", "--input-file", name)
    assert here.ok(*words).json["result"] == {"a": 5, "deep": {"x": 6, "y": 2}}
    over = here.ok(*words, "--input", "deep.x=9").json["result"]
    assert over == {"a": 5, "deep": {"x": 9, "y": 2}}


def test_input_that_the_definition_has_no_use_for_is_refused_unless_allowed(here: Here) -> None:
    body = "  - {step: a, tool: {kind: noop, result: '{{ workload.items }}'}}\n"
    text = playbook(body).replace("workflow:", "workload: {items: 1}\nworkflow:", 1)
    here.write("items.yaml", text)
    done = here.run("run", "items.yaml", "--input", "itemz=2")
    assert done.code == 2
    assert "'itemz'; did you mean 'items'?" in done.err
    allowed = here.ok("run", "items.yaml", "--input", "itemz=2", "--allow-extra-input", "--json")
    assert allowed.json["result"] == 1


def test_an_empty_input_file_is_no_input(here: Here) -> None:
    here.write("echo.yaml", ECHO)
    here.write("in.yaml", "\n")
    assert here.ok("run", "echo.yaml", "--input-file", "in.yaml", "--json").json["result"]["a"] == 1


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n"
    for a, b in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("list.yaml", "- 1\n", "list.yaml must hold a mapping; it holds a list"),
        ("bad.json", '{"a": ', "bad.json:1:"),
        ("bad.yaml", "a: [1\n", "bad.yaml:"),
        ("bomb.yaml", BOMB, "too-many-values"),
        ("deep.json", '{"a":' * 2000 + "1" + "}" * 2000, "too-deep"),
        ("twice.yaml", "a: 1\na: 2\n", "twice.yaml:2:1"),
    ],
)
def test_an_input_file_that_cannot_be_taken_is_a_clear_error(
    here: Here, name: str, text: str, words: str
) -> None:
    here.write("echo.yaml", ECHO)
    here.write(name, text)
    done = here.run("run", "echo.yaml", "--input-file", name)
    assert done.code == 2
    assert words in done.err
    assert not here.store.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--input", "novalue"), "input 'novalue' is not K=V"),
        (("--input", "=1"), "input '=1' is not K=V"),
        (("--input", "a=1", "--input", "a.b=2"), "goes through 'a', which is not a mapping"),
        (("--input-file", "nowhere.json"), "nowhere.json cannot be read: No such file"),
        (("--label", "x"), "label 'x' is not K=V"),
        (("--start", "nowhere"), "there is no step 'nowhere' to start at"),
        (("--run-id", "a b"), "'a b' cannot be a run id"),
        (("--run-id", "last"), "'last' cannot be a run id"),
        (("--tools", "no_such_module"), "--tools no_such_module"),
    ],
)
def test_bad_usage_of_run_exits_2_and_starts_nothing(
    here: Here, words: tuple[str, ...], told: str
) -> None:
    here.write("echo.yaml", ECHO)
    done = here.run("run", "echo.yaml", *words)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert not here.store.exists() or here.run("runs").out == "no runs\n"


def test_labels_an_id_and_a_start_can_be_chosen(here: Here) -> None:
    here.write("test.yaml", JOINED)
    words = ("--label", "team=a", "--label", "n=1e3", "--run-id", "mine", "--start", "b")
    found = here.ok("run", "test.yaml", "--json", *words).json
    assert found["run"] == "mine"
    assert list(found["steps"]) == ["b", "meet"]
    (listed,) = here.ok("runs", "--json", "--label", "n=1e3").json
    assert listed["labels"] == {"team": "a", "n": "1e3"}
    again = here.run("run", "test.yaml", "--run-id", "mine")
    assert (again.code, again.err) == (2, "anabranch: there is a run mine already\n")


def test_a_definition_may_come_on_standard_input(here: Here) -> None:
    assert here.run("run", "-", "--json", stdin=HELLO).json["result"] == "hello you"
    done = here.run("run", "-", stdin="workflow: 7\n")
    assert done.code == 2
    assert here.run("run", "-", stdin="").code == 2


@pytest.mark.slow
def test_a_definition_may_come_through_a_pipe_and_is_read_once(terminal: Terminal) -> None:
    terminal.write("hello.yaml", HELLO)
    done = subprocess.run(
        ["bash", "-c", '"$0" -m anabranch run <(cat hello.yaml) --json --run-id p', sys.executable],
        cwd=terminal.folder, capture_output=True, text=True, timeout=HANG_SECONDS, check=True,
        env=terminal.environment(),
    )  # fmt: skip
    assert json.loads(done.stdout)["result"] == "hello you"
    assert terminal.show("p")["status"] == "completed"


# -- resume and redrive ----------------------------------------------------------------------


def test_resume_has_its_own_words_for_nothing_and_for_the_end(here: Here) -> None:
    assert here.run("resume").err.startswith("anabranch: there is no store")
    assert not here.store.exists()  # looking for runs makes no store
    here.write("hello.yaml", HELLO)
    here.ok("run", "hello.yaml", "--run-id", "h")
    done = here.run("resume")
    assert (done.code, done.err) == (0, "there is nothing to resume\n")
    done = here.run("resume", "h")
    assert (done.code, done.err) == (2, "anabranch: run h has ended: completed\n")


CLI_TOOL = """
import anabranch

@anabranch.tool("cli_tool")
def cli_tool():
    return "used"
"""

TOOLED = playbook(
    '  - {step: ask, tool: {kind: decision, ask: "?"}, next: {arcs: [{step: use}]}}\n'
    "  - {step: use, tool: {kind: cli_tool}}\n"
)


@pytest.mark.slow
def test_a_run_is_not_resumed_without_its_tools(terminal: Terminal) -> None:
    """It would only fail; with its module named again it goes on."""
    terminal.write("tool_module.py", CLI_TOOL)
    terminal.write("tooled.yaml", TOOLED)
    assert "there is no task kind 'cli_tool'" in terminal.run("run", "tooled.yaml").err
    tools = ("--tools", "tool_module")
    assert terminal.run("run", "tooled.yaml", "--run-id", "t", *tools).code == 4
    terminal.ok("decide", "t", "ask", "--fulfil")
    for words in (("resume", "t"), ("resume",)):
        done = terminal.run(*words)
        assert (done.code, done.out) == (4, "")
        assert "run t is left as it is" in done.err
        assert "needs the tool 'cli_tool'" in done.err
        assert "--tools MODULE" in done.err
    assert terminal.show("t")["status"] == "running"
    assert terminal.ok("resume", "t", "--json", *tools).json["result"] == "used"


def test_one_run_that_cannot_go_on_does_not_keep_the_others_from_it(here: Here) -> None:
    here.write("admit.yaml", ADMIT)
    here.write("bad.yaml", ADMIT.replace("name: admit", "name: bad"))
    for name in ("admit", "bad"):
        here.run("run", f"{name}.yaml", "--run-id", name)
        here.ok("patch", name, "go=1")
    db = sqlite3.connect(here.store)
    db.execute("UPDATE definitions SET source = 'workflow: 7' WHERE name = 'bad'")
    db.commit()
    db.close()
    done = here.run("resume")
    assert done.code == 1
    assert done.out.startswith("admit (admit): completed")
    assert "run bad is set aside" in done.err
    assert here.run("resume", "bad").code == 1


def test_redrive_starts_a_linked_run(here: Here) -> None:
    once = playbook(
        "  - {step: good, tool: {kind: shell, command: echo x >> good; echo fine},"
        " next: {arcs: [{step: bad}]}}\n"
        "  - {step: bad, tool: {kind: shell, command: test -e mended}}\n"
    )
    here.write("once.yaml", once)
    assert here.run("run", "once.yaml", "--run-id", "first").code == 1
    refused = here.run("redrive", "nobody")
    assert (refused.code, "there is no run 'nobody'" in refused.err) == (2, True)
    here.write("mended", "")
    done = here.run("redrive", "first", "--json")
    assert (done.code, done.json["status"]) == (0, "completed")
    assert done.err == f"run {done.json['run']} redrives first\n"
    assert (here.folder / "good").read_text() == "x\n"  # it was not done again
    assert here.ok("show", done.json["run"], "--json").json["origin"] == "first"
    refused = here.run("redrive", done.json["run"])  # now everything is done
    assert (refused.code, refused.out) == (2, "")
    assert f"nothing in run {done.json['run']} failed" in refused.err
    assert "`anabranch run` starts its definition again" in refused.err


def test_a_redrive_begins_where_the_run_began(here: Here) -> None:
    steps = """
  - {step: charge, tool: {kind: shell, command: echo charge >> did}, next: {arcs: [{step: ship}]}}
  - {step: ship, tool: {kind: shell, command: echo ship >> did}, next: {arcs: [{step: tell}]}}
  - {step: tell, tool: {kind: shell, command: echo tell >> did && test -e there}}
"""
    here.write("order.yaml", playbook(steps))
    here.run("run", "order.yaml", "--start", "ship")
    here.write("there", "")
    assert here.ok("redrive", "last", "--json").json["status"] == "completed"
    assert (here.folder / "did").read_text().split() == ["ship", "tell", "tell"]


def test_a_run_that_was_redriven_says_so_and_is_redriven_again_only_on_demand(here: Here) -> None:
    here.write("bad.yaml", playbook("  - {step: bad, tool: {kind: shell, command: exit 1}}\n"))
    assert here.run("run", "bad.yaml", "--run-id", "first").code == 1
    second = here.run("redrive", "first", "--json").json["run"]
    refused = here.run("redrive", "first")
    assert (refused.code, refused.out) == (2, "")
    assert f"run first was redriven already: by {second}, which is failed." in refused.err
    assert (
        f"redriven already, by {second}: say --again"
        in here.ok("redrive", "first", "--dry-run").out
    )
    third = here.run("redrive", "first", "--again", "--json").json["run"]
    assert here.ok("show", "first", "--json").json["redriven_by"] == [third, second]
    shown = here.ok("show", "first").out
    assert f"  redriven by: {third}, {second}\n" in shown
    assert "next:" not in shown
    assert here.ok("show", third, "--json").json["redriven_by"] == []
    listed = {line.split()[0]: line for line in here.ok("runs").out.splitlines()[1:]}
    assert "redriven" in listed["first"]
    assert "redriven" not in listed[third] + listed[second]
    only = here.ok("runs", "--redriven", "yes", "--json").json
    assert [run["run"] for run in only] == ["first"]
    told = here.run("bulk", "redrive", "--status", "failed", "--dry-run", "--json").json
    assert {item["run"] for item in told["items"]} == {second, third}
    assert ", 3 failed (100.0%), 2 of them not redriven" in here.ok("overview").out


BILLS = playbook(
    "  - {step: start, tool: {kind: noop}, next: {spec: {mode: inclusive},"
    " arcs: [{step: a}, {step: b}]}}\n"
    "  - {step: a, tool: {kind: shell, command: echo x >> a}, next: {arcs: [{step: add}]}}\n"
    "  - {step: b, tool: {kind: shell, command: cat b}, next: {arcs: [{step: add}]}}\n"
    "  - step: add\n"
    "    spec: {join: all}\n"
    "    tool: {kind: python, code: 'result = args', args:"
    " {b: \"{{ steps.b.stdout | default('unknown') }}\"}}\n"
)


def test_redrive_says_beforehand_what_it_runs_again_and_what_it_reuses(here: Here) -> None:
    here.write("bills.yaml", BILLS)
    here.run("run", "bills.yaml", "--run-id", "first")
    told = here.ok("redrive", "first", "--dry-run")
    assert "first): failed; a redrive would repeat 2 step runs and reuse 2\n" in told.out
    lines = [line.split(maxsplit=2) for line in told.out.splitlines()[1:]]
    assert lines == [
        ["again", "b", "it did not end well"],
        ["again", "add", "it joins what b delivers, which runs again"],
        ["reused", "start"],
        ["reused", "a"],
    ]
    plan = here.ok("redrive", "first", "--dry-run", "--json").json
    assert [(one["step"], one["how"], one["of"]) for one in plan["again"]] == [
        ("b", "failed", ""),
        ("add", "join", "b"),
    ]
    assert [one["step"] for one in plan["reused"]] == ["start", "a"]
    assert len(here.ok("runs", "--json").json) == 1, "nothing was begun"
    here.write("b", "2")
    done = here.run("redrive", "first", "--json").json
    assert done["steps"]["add"]["result"] == {"b": "2"}
    assert (here.folder / "a").read_text() == "x\n"
    refused = here.run("redrive", done["run"], "--dry-run")
    assert (refused.code, "nothing in run" in refused.err) == (2, True)


def test_a_bulk_redrive_says_beforehand_which_runs_have_nothing_to_redo(here: Here) -> None:
    here.write("bills.yaml", BILLS)
    here.run("run", "bills.yaml", "--run-id", "bad")
    here.write("b", "2")
    here.ok("run", "bills.yaml", "--run-id", "good")
    told = here.run("bulk", "redrive", "--all", "--dry-run", "--json").json
    outcomes = {item["run"]: (item["outcome"], item.get("code")) for item in told["items"]}
    assert outcomes["bad"][0] == "would"
    assert outcomes["good"] == ("refused", "nothing_failed")
    assert len(here.ok("runs", "--json").json) == 2


def test_runs_left_unfinished_are_mentioned_and_not_touched(here: Here, terminal: Terminal) -> None:
    here.write("admit.yaml", ADMIT)
    here.run("run", "admit.yaml", "--run-id", "a")
    here.ok("patch", "a", "go=1")
    here.write("hello.yaml", HELLO)
    done = here.ok("run", "hello.yaml")
    assert "unfinished in this store: a (admit); `anabranch resume` goes on with them" in done.err
    assert here.ok("run", "hello.yaml", "--json").err == ""
    assert here.show("a")["status"] == "running"


def test_watch_can_be_asked_for_and_forbidden(here: Here) -> None:
    here.write("sleeper.yaml", sleeper(0.2))
    assert "\x1b[?25h" in here.ok("run", "sleeper.yaml", "--watch").err
    assert here.ok("run", "sleeper.yaml", "--no-watch").err == ""
