"""Every problem code of a playbook, at its line and column, with the change that mends it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from anabranch.dialects.registry import compile_source
from anabranch.net.problems import CODES

from ..support import HEAD, documented_severity, places, problems_of, steps
from .test_playbook_problems import IN_A_PLAYBOOK
from .test_task_problems import IN_A_PIPELINE

SOURCE = Path(__file__).parents[3] / "src" / "anabranch"

#: Codes that have their tests where they arise: reading a text, and nets with joins.
ELSEWHERE = {
    *("too-large", "not-utf8", "bad-character", "syntax", "empty", "several-documents"),
    *("too-deep", "too-many-values", "bad-alias", "bad-merge", "bad-key", "unknown-tag"),
    *("unknown-dialect", "join-impossible", "slot-unreachable"),
    *("bad-expression", "bad-pattern", "text-candidate", "encrypted-rule"),
    "closed-rule",
    *("too-many", "empty-list", "unresolved-rule", "no-rule", "unused-rule", "several-starts"),
    *("child-cycle", "unknown-credential", "rate-at-workers"),
    *(
        "missing-extra",
        "file-not-allowed",
        "kind-off",
        "self-spawn",
        "join-target-spawned",
        "duplicate-slot",
        "payload-gap",
        "other-id",
    ),
    *("incomplete-bundle", "one-orchestration", "several-orchestrations", "cannot-load"),
    *("nothing-saved", "unresolved-address"),
    *("wrong-hash", "join-needs-outcome", "merge-overlap", "forks-partly-examined"),
    *("short-secret", "decision-arc", "join-reading"),  # test_noetl_spellings.py has the last
    *("unknown-input", "unknown-field", "tool-arguments", "missing-child"),  # test_noetl_lookups.py
    # test_arca_problems.py
    *("removed-key", "dependency-cycle", "unknown-reference", "unmeetable-policy"),
    # of books of participants: tests/surfaces/cli/commands/test_books_are_checked.py
    *("bad-book", "bad-passport", "missing-variable"),
    *("unknown-participant", "unknown-capability", "nobody-to-ask"),
}

NOOP = "tool: {kind: noop}"
LATE = "{step: s, when: \"{{ error.kind == 'tmeout' }}\"}"
OTHER = LATE.replace("tmeout", "shell")
TWO_RULES = "rules: [{else: {allow: true}}, {when: a}]"

#: (code, lines below `- step: s`, line and column of the problem, words of the message)
IN_A_STEP = [
    ("wrong-type", "tool: 5", 6, 9, "must be a mapping, but it is the number 5"),
    ("wrong-type", "spec: [a]\n" + NOOP, 6, 9, "`spec` of step 's' must be a mapping"),
    ("wrong-type", NOOP + "\nnext: {arcs: x}", 7, 16, "must be a list"),
    ("wrong-type", NOOP + "\nnext: {arcs: [[a]]}", 7, 17, "must be a mapping"),
    ("wrong-type", NOOP + "\nnext: {arcs: [{step: s, args: [1]}]}", 7, 33, "`args` of arc 1"),
    ("wrong-type", NOOP + "\nnext: {arcs: [{step: s, when: [1]}]}", 7, 33, "a condition"),
    ("wrong-type", "tool: {kind: shell, command: [a]}", 6, 32, "`command`"),
    ("wrong-type", "tool: {kind: python, code: {a: 1}}", 6, 30, "`code`"),
    ("wrong-type", "tool: {kind: noop, args: 5}", 6, 28, "`args` of the task"),
    ("wrong-type", "tool: {kind: decision, ask: x, actors: [5]}", 6, 43, "an actor"),
    ("wrong-type", "desc: true\n" + NOOP, 6, 9, "must be text, but it is true"),
    ("wrong-type", "spec: {retry: {attempts: many}}\n" + NOOP, 6, 28, "a whole number"),
    ("wrong-type", "spec: {retry: {multiplier: x}}\n" + NOOP, 6, 30, "a number"),
    ("wrong-type", "spec: {timeout: [1]}\n" + NOOP, 6, 19, "a duration"),
    ("missing-key", "tool: {}", 6, 9, "has no `kind`"),
    ("missing-key", "tool: []", 6, 9, "is missing"),
    ("missing-key", "tool: {kind: python}", 6, 9, "has no `code`"),
    ("missing-key", "tool: {kind: http}", 6, 9, "has no `url`"),
    ("missing-key", "tool: {kind: shell}", 6, 9, "has no `command`"),
    ("missing-key", "tool: {kind: decision}", 6, 9, "has no `ask`"),
    ("missing-key", NOOP + "\nnext: {}", 7, 9, "has no `arcs`"),
    ("missing-key", NOOP + "\nnext: {arcs: [{when: a}]}", 7, 17, "has no `step`"),
    ("missing-key", "spec: {policy: {admit: {}}}\n" + NOOP, 6, 26, "has no `rules`"),
    ("missing-key", "spec: {policy: {admit: {rules: }}}\n" + NOOP, 6, 26, "has no `rules`"),
    ("missing-key", "spec: {policy: {admit: {rules: []}}}\n" + NOOP, 6, 26, "has no `rules`"),
    ("missing-key", "spec: {policy: {admit: {rules: [{}]}}}\n" + NOOP, 6, 35, "no `when`"),
    ("missing-key", "spec: {policy: {admit: {rules: [{when: a}]}}}\n" + NOOP, 6, 35, "`allow`"),
    ("unknown-key", NOOP + "\nnxt: {}", 7, 3, "step 's' has no key 'nxt'"),
    ("unknown-key", "spec: {timout: 5s}\n" + NOOP, 6, 10, "'timout'"),
    ("unknown-key", "spec: {joins: all}\n" + NOOP, 6, 10, "did you mean 'join'?"),
    ("unknown-key", "tool: {kind: noop, colour: red}", 6, 22, "'colour'"),
    ("unknown-key", "tool: {kind: noop, spec: {when: 1}}", 6, 29, "'when'"),
    ("ignored-key", "tool: {kind: noop, spec: {owner: me}}", 6, 29, "`owner` of `spec`"),
    ("ignored-key", "spec: {cost_centre: 4}\n" + NOOP, 6, 10, "`cost_centre` of `spec`"),
    (
        "numeric-id",
        "tool: {kind: noop, result: \"{{ execution_id == 'abc' }}\"}",
        *(6, 30, "is compared with the text 'abc', and is a number"),
    ),
    ("at-once", "case: [{when: a, then: [s, s]}]\n" + NOOP, 6, 26, "s and s begin at once"),
    ("begun-only", "tool: {kind: playbook, path: a/b}", 6, 10, "does not wait for it"),
    ("unknown-key", "tool: {kind: decision, ask: x, timeout: 5}", 6, 34, "'timeout'"),
    ("conflicting-keys", "tool: {kind: shell, command: a, cmds: [b]}", 6, 35, "`cmds`"),
    ("conflicting-keys", "tool: {kind: http, url: a, endpoint: b}", 6, 30, "`endpoint`"),
    ("conflicting-keys", "tool: {kind: http, url: a, json: 1, body: 2}", 6, 30, "`json`"),
    ("conflicting-keys", "tool: {kind: noop, timeout: 5, timeout_seconds: 6}", 6, 34, "timeout"),
    ("bad-choice", "spec: {on_timeout: die}\n" + NOOP, 6, 22, "`on_timeout`"),
    ("bad-choice", "spec: {join: some}\n" + NOOP, 6, 16, "`join`"),
    ("bad-choice", NOOP + "\nset_ctx: {a: {reduce: avg, value: 1}}", 7, 25, "reducer 'avg'"),
    ("bad-choice", "spec: {retry: {backoff: linea}}\n" + NOOP, 6, 27, "`backoff`"),
    ("bad-number", "spec: {retry: {attempts: 0}}\n" + NOOP, 6, 28, "is 0"),
    ("bad-number", "spec: {retry: {multiplier: 0.5}}\n" + NOOP, 6, 30, "is 0.5"),
    ("bad-duration", "spec: {timeout: 5x}\n" + NOOP, 6, 19, "'5x' is not a duration"),
    ("bad-duration", "spec: {timeout: 0}\n" + NOOP, 6, 19, "zero"),
    ("bad-duration", "spec: {timeout: -5}\n" + NOOP, 6, 19, "negative"),
    ("bad-duration", "tool: {kind: noop, timeout: ''}", 6, 31, "empty duration"),
    ("bad-name", NOOP + "\nset_ctx: {'a b': 1}", 7, 13, "'a b' is not a name"),
    ("bad-value", "tool: {kind: python, code_b64: '%%'}", 6, 34, "base64"),
    ("bad-template", 'tool: {kind: noop, result: "{{ a"}', 6, 30, "expected `}}`"),
    ("bad-template", "tool:\n  kind: noop\n  result: |\n    ok\n    {{ a b }}", 10, 7, "got 'b'"),
    ("bad-template", 'tool: {kind: noop, result: "{{ a | nope }}"}', 6, 30, "no filter 'nope'"),
    ("bad-template", NOOP + "\nnext: {arcs: [{step: s, when: 'a b'}]}", 7, 33, "unexpected 'b'"),
    ("unknown-function", 'tool: {kind: noop, result: "{{ rang(3) }}"}', 6, 30, "'rang'; did you"),
    ("bad-code", "tool:\n  kind: python\n  code: |\n    x = 1\n    y = = 2", 10, 7, "not Python"),
    ("bad-code", "tool: {kind: python, code: 'def f(:'}", 6, 30, "not Python"),
    ("bad-code", "tool: {kind: python, code_b64: ZGVmIGYoOg==}", 6, 34, "not Python"),
    ("bad-number", f"loop: {{in: {{range: [0, 9, 0]}}}}\n{NOOP}", 6, 29, "the step 0"),
    ("bad-number", f"loop: {{in: {{range: {{stop: 9, step: 0}}}}}}\n{NOOP}", 6, 38, "the step 0"),
    ("text-condition", NOOP + "\nnext: {arcs: [{step: s, when: '{{ a }} or b'}]}", 7, 33, "text"),
    ("unquoted-template", 'tool: {kind: shell, command: "ls {{ a }}"}', 6, 32, "takes in `a`"),
    ("quoted-twice", """tool: {kind: shell, command: "ls '{{ a | sh }}'"}""", 6, 32, "quotes"),
    ("unknown-step", NOOP + "\nnext: {arcs: [{step: t}]}", 7, 24, "'t', which does not exist"),
    ("unknown-kind", "tool: {kind: pyton, code: x}", 6, 16, "there is no task kind 'pyton'"),
    ("unknown-name", 'tool: {kind: noop, result: "{{ worklod.x }}"}', 6, 30, "'worklod'"),
    ("unknown-name", 'tool: {kind: noop, result: "{{ fetch.count }}"}', 6, 30, "'fetch'"),
    ("unknown-name", 'tool: {kind: noop, result: "{{ steps.fetch }}"}', 6, 30, "no step 'fetch'"),
    ("unknown-error-kind", NOOP + f"\nnext: {{arcs: [{LATE}]}}", 7, 33, "the kind 'tmeout'"),
    ("unreachable-error-kind", NOOP + f"\nnext: {{arcs: [{OTHER}]}}", 7, 33, "no `noop` task"),
    ("dead-rule", f"spec: {{policy: {{admit: {{{TWO_RULES}}}}}}}\n{NOOP}", 6, 58, "after `else`"),
    ("bad-template", 'tool: {kind: decision, ask: "{{ a "}', 6, 31, "unexpected end"),
    ("conflicting-keys", NOOP + "\nset_iter: 5\nset: {iter.x: 1}", 8, 9, "'iter.x'"),
    (
        "conflicting-keys",
        NOOP + "\nnext: {arcs: [{step: s, args: 5, set: {iter.a: 1}}]}",
        *(7, 42, "'iter.a'"),
    ),
    ("wrong-type", NOOP + "\nvars: 5", 7, 9, "`vars`"),
    ("conflicting-keys", "tool: {kind: decision, ask: x}\nvars: {a: 1}", 7, 3, "set_iter"),
    ("not-yet", NOOP + "\neval: []", 7, 3, "`eval`"),
    ("not-yet", NOOP + "\nsink: {}", 7, 3, "`sink` of step 's'"),
]


@pytest.mark.parametrize(("code", "step", "line", "column", "words"), IN_A_STEP)
def test_problems_inside_a_step(code: str, step: str, line: int, column: int, words: str) -> None:
    found = problems_of(step)
    assert (line, column, code) in places(found), list(map(str, found))
    problem = next(p for p in found if p.code == code and p.position.line == line)
    assert words in str(problem)
    assert problem.severity == documented_severity(code)


def test_every_code_is_listed_and_every_listed_code_is_tested() -> None:
    cases = [*IN_A_STEP, *IN_A_PLAYBOOK, *IN_A_PIPELINE]
    tested = {case[0] for case in cases} | {"no-name"}
    assert tested | ELSEWHERE == set(CODES)


def test_no_other_code_is_used() -> None:
    used = set()
    for folder in ("dialects", "net"):
        for file in (SOURCE / folder).rglob("*.py"):
            used |= set(re.findall(r'"([a-z]+(?:-[a-z0-9]+)+)"', file.read_text()))
    codes_with_a_dash = {code for code in CODES if "-" in code}
    assert codes_with_a_dash <= used
    others = {word for word in used if word not in CODES and not word.startswith("anb-")}
    assert others == {"fan-out", "sans-serif", "service-order-orchestration", "utf-8"}


def test_everything_wrong_is_reported_at_once() -> None:
    compiled = compile_source(
        HEAD
        + steps(
            "- step: a",
            "  spec: {timeout: soon, retry: {attempts: 0}}",
            "  tool: {kind: pyhton, code: x}",
            '  next: {arcs: [{step: bb, when: "{{ a b }}"}, {stp: c}]}',
            "- step: a",
        )
    )
    assert places(compiled.errors) == [
        (6, 19, "bad-duration"),
        (6, 43, "bad-number"),
        (7, 16, "unknown-kind"),
        (8, 24, "unknown-step"),
        (8, 34, "bad-template"),
        (8, 48, "missing-key"),
        (8, 49, "unknown-key"),
        (9, 9, "duplicate-step"),
    ]


@pytest.mark.parametrize(
    "template",
    [
        "{{ fetch.count | default('') }}",
        "{{ fetch or 1 }}",
        "{% if fetch is defined %}yes{% endif %}",
        "{{ input_only | default(none) }}",
        "{{ steps.fetch | default('') }}",
    ],
)
def test_a_name_that_may_be_missing_is_no_problem(template: str) -> None:
    assert problems_of(f"tool: {{kind: noop, result: {json.dumps(template)}}}") == ()
