"""`unreachable-error-kind`: a guard that asks for what nothing before it can fail with."""

from __future__ import annotations

import pytest

from ...support import playbook, steps

SHELL = "{kind: shell, command: ls}"
PYTHON = "{kind: python, code: 'result = 1'}"
HTTP = "{kind: http, url: 'https://shop.example'}"
KEYCHAIN = "keychain: [{name: k, kind: bearer, token: t}]\n"


def told(tool: str, guard: str, *, more: str = "", head: str = "") -> str:
    step = (
        f'- step: s\n  tool: {tool}\n  next: {{arcs: [{{step: end, when: "{{{{ {guard} }}}}"}}]}}'
    )
    problems = playbook(head + steps(step + more, "- {step: end}"), tools=["price"]).problems
    assert [one for one in problems if one.severity == "error"] == []
    found = [one for one in problems if one.code == "unreachable-error-kind"]
    return "".join(f"{one.position.line}:{one.position.column} {one}" for one in found)


@pytest.mark.parametrize(
    ("tool", "guard", "words"),
    [
        (SHELL, "error.kind == 'rate_limit'", "no `shell` task fails with the kind 'rate_limit'"),
        (SHELL, "'db_error' == outcome.error.kind", "'db_error'"),
        (SHELL, "event.payload.error.kind in ['python', 'db_error']", "'python' or 'db_error'"),
        (HTTP, "error.kind == 'unreachable'", "`connection`"),
        (f"[{SHELL}, {PYTHON}]", "output.error.kind == 'parse'", "no `python` or `shell` task"),
        ("{kind: noop}", "error.kind == 'shell'", "only end with what any step can"),
        ("{kind: decision, ask: May it?}", "error.kind == 'shell'", "nothing that comes before"),
    ],
)
def test_a_guard_that_can_never_hold_is_told(tool: str, guard: str, words: str) -> None:
    found = told(tool, guard)
    assert found.startswith("7:35 ")
    assert words in found


@pytest.mark.parametrize(
    ("tool", "guard"),
    [
        (SHELL, "error.kind in ['timeout', 'rate_limit']"),  # one of them is enough
        (SHELL, "error.kind == 'connection'"),
        (SHELL, "error.kind == 'cancelled'"),  # of the engine
        (SHELL, "error.kind == 'my_own_word'"),
        (SHELL, "error.kind in [ctx.kind, 'rate_limit'] or error.kind == ctx.kind"),
        (SHELL, "ctx.error.kind == 'rate_limit'"),
        (f"[{SHELL}, {HTTP}]", "error.kind == 'rate_limit'"),
        ("{kind: python, script: 'https://shop.example/a.py'}", "error.kind == 'rate_limit'"),
        ("{kind: playbook, path: child.yaml, return_step: end}", "error.kind == 'rate_limit'"),
        ("{kind: price}", "error.kind == 'rate_limit'"),
        ("{kind: workbook, task: ours}", "error.kind == 'rate_limit'"),
    ],
)
def test_one_that_may_hold_is_not(tool: str, guard: str) -> None:
    head = "workbook: [{name: ours, tool: {kind: http, url: 'https://shop.example'}}]\n"
    head = head if "workbook" in tool else ""
    assert told(tool, guard, head=head) == ""


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ("", "\n  loop: {in: [1]}"),
        ("", "\n  spec: {pool: gpu}"),
        ("workload: {error: {kind: a}}\n", ""),
        (KEYCHAIN, ""),
    ],
)
def test_nor_where_errors_come_from_elsewhere(head: str, more: str) -> None:
    assert told(SHELL, "error.kind == 'rate_limit'", head=head, more=more) == ""


def test_a_rule_is_about_its_task_and_a_shared_one_about_all_that_share_it() -> None:
    rule = "{when: \"{{ outcome.error.kind == 'rate_limit' }}\", then: {do: retry}}"
    policy = f"spec: {{policy: {{rules: [{rule}]}}}}"
    own = f"[{SHELL[:-1]}, {policy}}}, {HTTP}]"
    assert "no `shell` task fails" in told(own, "error.kind == 'shell'")
    assert told(f"[{HTTP[:-1]}, {policy}}}, {SHELL}]", "error.kind == 'shell'") == ""
    shared = f"executor: {{{policy}}}\n"
    assert told(f"[{SHELL}, {HTTP}]", "error.kind == 'shell'", head=shared) == ""
    assert "no `shell` task fails" in told(SHELL, "error.kind == 'shell'", head=shared)
