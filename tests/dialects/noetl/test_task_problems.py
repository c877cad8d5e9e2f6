"""Problems of pipelines, rules, loops and task kinds, at their line and column."""

from __future__ import annotations

import pytest

from ..support import documented_severity, places, problems_of

NOOP = "tool: {kind: noop}"
FAN = "spec: {loop_mode: fanout}\nloop: {in: [1]}\n"


def ruled(rules: str) -> str:
    return f"tool: {{kind: noop, spec: {{policy: {{rules: {rules}}}}}}}"


def fanned(keys: str) -> str:
    return f"spec: {{loop_mode: fanout, fanout: {{{keys}}}}}\nloop: {{in: [1]}}\n{NOOP}"


def hooked(task: str) -> str:
    return f"tool: {{kind: noop, spec: {{policy: {{before: {task}}}}}}}"


def child(keys: str) -> str:
    return f"tool: {{kind: playbook, {keys}}}"


def looped(keys: str) -> str:
    return f"loop: {{{keys}}}\n{NOOP}"


#: (code, lines below `- step: s`, line and column of the problem, words of the message)
IN_A_PIPELINE = [
    # pipelines
    ("duplicate-label", "tool: [{name: a, kind: noop}, {name: a, kind: noop}]", 6, 34, "'a'"),
    ("misplaced-task", "tool: [{kind: noop}, {kind: decision, ask: x}]", 6, 24, "decision"),
    (
        "misplaced-task",
        "tool: {kind: playbook, path: p, wait: true, loop: {in: [1]}}",
        *(6, 9, "inside a loop of a task"),
    ),
    (
        "misplaced-task",
        "tool: {name: a, loop: {in: [1]}, tool: {kind: playbook, path: p, wait: true}}",
        *(6, 42, "inside a loop of a task"),
    ),
    ("misplaced-task", hooked("{kind: playbook, path: p, wait: true}"), 6, 46, "inside a hook"),
    ("misplaced-task", hooked("{kind: decision, ask: x}"), 6, 46, "inside a hook"),
    ("unknown-kind", hooked("{kind: nope}"), 6, 53, "'nope'"),
    ("missing-key", hooked("[]"), 6, 46, "is missing"),
    # loops of tasks
    ("conflicting-keys", "tool: {kind: noop, tool: {kind: noop}}", 6, 22, "no `loop` to use it in"),
    (
        "conflicting-keys",
        "tool: {kind: noop, loop: {in: [1]}, tool: {kind: noop}}",
        *(6, 39, "both `kind` and `tool`"),
    ),
    ("missing-key", "tool: {loop: {in: [1]}}", 6, 9, "has no `kind`"),
    ("missing-key", "tool: {kind: noop, loop: {iterator: x}}", 6, 28, "has no `in`"),
    (
        "bad-choice",
        "tool: {kind: noop, loop: {in: {csv: a}}}",
        *(6, 33, "to be read lazily"),
    ),
    ("unknown-key", "tool: {kind: noop, loop: {in: [1], spec: {fanout: {}}}}", 6, 45, "'fanout'"),
    (
        "bad-number",
        "tool: {kind: noop, loop: {in: [1], spec: {mode: parallel, max_in_flight: 0}}}",
        *(6, 76, "is 0"),
    ),
    ("unknown-kind", "tool: {kind: mcp}", 6, 16, "only NoETL runs"),
    ("missing-key", "tool: {kind: gcs, destination: 'gs://b/k'}", 6, 9, "has no `source`"),
    ("missing-key", "tool: {kind: gcs, data: 1}", 6, 9, "has no `destination`"),
    (
        "conflicting-keys",
        "tool: {kind: gcs, data: 1, source: a, destination: 'gs://b/k'}",
        *(6, 21, "both `source` and `data`"),
    ),
    ("bad-value", "tool: {kind: gcs, data: 1, destination: 's3://b/k'}", 6, 43, "'s3://b/k'"),
    ("unknown-kind", "tool: {kind: ducklake}", 6, 16, "register a tool under that name"),
    ("unknown-task", "tool: {kind: workbook, name: x}", 6, 32, "add it to `workbook`"),
    ("missing-key", "tool: {kind: workbook}", 6, 9, "has no `name`"),
    ("credential-by-name", "tool: {kind: http, url: u, auth: k}", 6, 36, "'k'"),
    ("wrong-type", "tool: {kind: http, url: u, auth: 5}", 6, 36, "the name of a credential"),
    ("not-yet", "tool: {kind: noop, sink: {}}", 6, 22, "`sink`"),
    ("no-reducer", "tool: {kind: noop, set_shared: {a: 1}}", 6, 22, "no loop"),
    # kinds
    ("missing-key", "tool: {kind: sqlite}", 6, 9, "need `command` or `commands`"),
    ("conflicting-keys", "tool: {kind: duckdb, query: a, command: b}", 6, 24, "`query`"),
    ("wrong-type", "tool: {kind: sqlite, commands: [5]}", 6, 35, "must be text"),
    ("missing-key", "tool: {kind: playbook}", 6, 9, "has no `path`"),
    ("missing-key", "tool: {kind: artifact}", 6, 9, "has no `result_ref`"),
    ("missing-key", "tool: {kind: artifact, action: put}", 6, 9, "has no `data`"),
    ("bad-choice", "tool: {kind: artifact, action: del, uri: x}", 6, 34, "`action`"),
    ("missing-key", "tool: {kind: secrets}", 6, 9, "has no `name`"),
    ("bad-value", "tool: {kind: postgres, query_b64: '%%'}", 6, 37, "`query_b64`"),
    # rules
    ("missing-key", ruled("[{when: a}]"), 6, 46, "has no `then`"),
    ("missing-key", ruled("[{then: {do: fail}}]"), 6, 46, "has no `when`"),
    ("missing-key", ruled("[{when: a, then: {}}]"), 6, 62, "has no `do`"),
    ("bad-choice", ruled("[{when: a, then: {do: skp}}]"), 6, 67, "did you mean 'skip'?"),
    ("bad-choice", ruled("[{when: a, then: {do: retry, backoff: x}}]"), 6, 83, "`backoff`"),
    ("bad-number", ruled("[{when: a, then: {do: retry, attempts: 0}}]"), 6, 84, "is 0"),
    ("missing-key", ruled("[{when: a, then: {do: jump}}]"), 6, 62, "has no `to`"),
    ("unknown-label", ruled("[{when: a, then: {do: jump, to: b}}]"), 6, 77, "'b'"),
    ("unknown-label", ruled("[{when: a, then: {do: jump, to: previous}}]"), 6, 77, "first one"),
    ("ignored-key", ruled("[{when: a, then: {do: fail, to: b}}]"), 6, 73, "`to`"),
    ("dead-rule", ruled("[{else: {then: {do: fail}}}, {when: a}]"), 6, 74, "after `else`"),
    ("no-reducer", ruled("[{when: a, then: {do: fail, set_shared: {x: 1}}}]"), 6, 73, "no loop"),
    ("wrong-type", ruled("[{when: a, then: {do: retry, attempts: x}}]"), 6, 84, "whole number"),
    ("bad-template", ruled("[{when: a, then: {do: fail, set_prev: '{{ x'}}]"), 6, 83, "wrong"),
    ("missing-key", "tool: {kind: noop, spec: {policy: {}}}", 6, 37, "has no `rules`"),
    # results
    ("unknown-key", "spec: {result: {max: 1, ttl: 5}}\n" + NOOP, 6, 19, "'max'"),
    ("bad-choice", "spec: {result: {store: {kind: tape}}}\n" + NOOP, 6, 33, "`kind`"),
    ("bad-choice", "spec: {result: {store: {compression: zip}}}\n" + NOOP, 6, 40, "'zip'"),
    ("bad-choice", "spec: {result: {scope: galaxy}}\n" + NOOP, 6, 26, "`scope`"),
    ("bad-value", "spec: {result: {select: ['a[*]']}}\n" + NOOP, 6, 27, "is not a path"),
    ("bad-value", "spec: {result: {output_select: a}}\n" + NOOP, 6, 34, "must be a list"),
    ("bad-value", "spec: {result: {accumulate: {merge_path: '[*]'}}}\n" + NOOP, 6, 31, "a path"),
    ("wrong-type", "spec: {result: {select: [5]}}\n" + NOOP, 6, 28, "an entry of `select`"),
    ("bad-number", "spec: {result: {inline_max_bytes: -1}}\n" + NOOP, 6, 37, "is -1"),
    ("wrong-type", "result: 5\n" + NOOP, 6, 11, "must be a mapping"),
    # loops
    ("missing-key", looped("iterator: x"), 6, 9, "has no `in`"),
    ("missing-key", "loop: {in: [1]}\nnext: {arcs: [{step: s}]}", 5, 3, "has no `tool`"),
    ("wrong-type", looped("in: 5"), 6, 14, "must be a list"),
    ("wrong-type", looped("in: workload.items"), 6, 14, "a template such as"),
    ("wrong-type", looped("in: {range: [a]}"), 6, 22, "`range`"),
    ("conflicting-keys", looped("in: {csv: a, jsonl: b}"), 6, 15, "two collections"),
    ("bad-name", looped("in: [1], iterator: a b"), 6, 29, "name of an item"),
    ("bad-name", looped("in: [1], iterator: ctx"), 6, 29, "choose another"),
    ("bad-choice", looped("in: [1], spec: {mode: fast}"), 6, 32, "`mode`"),
    ("bad-number", looped("in: [1], spec: {mode: parallel, max_in_flight: 0}"), 6, 57, "is 0"),
    ("wrong-type", looped("in: [1], spec: {mode: parallel, max_in_flight: x}"), 6, 57, "whole"),
    ("ignored-key", looped("in: [1], spec: {max_in_flight: 3}"), 6, 41, "sequential"),
    ("conflicting-keys", looped("in: [1], cursor: {kind: postgres}"), 6, 19, "`cursor`"),
    ("missing-key", looped("cursor: {kind: postgres}"), 6, 18, "has no `claim`"),
    ("bad-choice", looped("cursor: {kind: kafka, claim: x}"), 6, 25, "`kind`"),
    ("missing-key", looped("cursor: {claim: x}"), 6, 18, "has no `kind`"),
    ("wrong-type", looped("cursor: 5"), 6, 18, "must be a mapping"),
    (
        "conflicting-keys",
        looped("cursor: {kind: sqlite, claim: a, options: {claim: b}}"),
        *(6, 53, "'claim' twice"),
    ),
    (
        "missing-key",
        looped("cursor: {kind: sqlite, claim: SELECT 1}"),
        *(6, 18, "has no `key`"),
    ),
    (
        "unknown-key",
        looped("cursor: {kind: sqlite, claim: SELECT 1, key: k}, spec: {frame: {process: frame}}"),
        *(6, 74, "`process: row`"),
    ),
    ("missing-key", looped("in: {sql: {query: SELECT 1}}"), 6, 20, "has no `key`"),
    ("missing-key", looped("in: {pages: {items: a}}"), 6, 22, "has no `url`"),
    ("missing-key", looped("in: {claim: {kind: sqlite}}"), 6, 22, "has no `command`"),
    ("misplaced-task", "loop: {in: [1]}\ntool: {kind: decision, ask: x}", 7, 9, "inside a loop"),
    ("bad-number", child("path: p, version: two"), 6, 35, "a whole number, or `latest`"),
    ("missing-key", child("version: 2"), 6, 9, "`path` or `catalog_id`"),
    ("conflicting-keys", child("path: p, return_step: a, result_step: b"), 6, 51, "`return_step`"),
    ("ignored-key", "spec: {loop_mode: fanout}\n" + NOOP, 6, 10, "without a loop"),
    ("lost-order", FAN.replace("[1]", "[1], spec: {mode: sequential}") + NOOP, 7, 9, "any order"),
    ("shared-write", FAN + "tool: {kind: noop, set_ctx: {a: 1}}", 8, 22, "the last one wins"),
    ("bad-number", fanned("max_concurrent: 0"), 6, 54, "is 0"),
    ("bad-number", fanned("tolerated_failure_percentage: 101"), 6, 68, "is 101"),
    ("bad-choice", fanned("shard_size: big"), 6, 50, "`auto` or a number"),
    ("bad-number", fanned("shard_size: 0"), 6, 50, "is 0"),
    ("bad-choice", fanned("reducers: {a: avg}"), 6, 52, "reducer 'avg'"),
    ("bad-choice", fanned("reducers: {a: set}"), 6, 52, "only the last value"),
    ("wrong-type", fanned("iter_key: id"), 6, 48, "a template such as"),
    ("bad-duration", fanned("lease_s: 0"), 6, 47, "zero"),
    ("unknown-key", fanned("fail_fst: true"), 6, 38, "did you mean 'fail_fast'?"),
]


@pytest.mark.parametrize(("code", "step", "line", "column", "words"), IN_A_PIPELINE)
def test_problems_of_tasks(code: str, step: str, line: int, column: int, words: str) -> None:
    found = problems_of(step)
    assert (line, column, code) in places(found), list(map(str, found))
    at = [p for p in found if p.code == code and p.position.line == line]
    assert any(words in str(problem) for problem in at), list(map(str, found))
    assert {problem.severity for problem in at} == {documented_severity(code)}


@pytest.mark.parametrize(
    "named", ["catalog_id: 4711", "path: p, version: 2", "path: p, version: latest", "path: a/b"]
)
def test_a_child_from_a_catalog_is_no_problem(named: str) -> None:
    assert problems_of(child(f"{named}, return_step: end")) == ()


def test_set_shared_needs_its_own_reducer() -> None:
    rule = "[{when: a, then: {do: continue, set_shared: {total: 1, count: 1}}}]"
    step = "spec: {fanout: {reducers: {total: sum}}}\nloop: {in: [1]}\n" + ruled(rule)
    (problem,) = [p for p in problems_of(step) if p.code == "no-reducer"]
    assert "'count'" in problem.message
    assert "reducers: {count: sum}" in problem.hint
