"""`failure-goes-on`: a failure that is followed like a success, and that nothing looks at."""

from __future__ import annotations

import pytest

from ...support import places, playbook, steps

FETCH = "- step: fetch\n  tool: {TOOL}\n  next: {arcs: [{ARC}]}"
PYTHON = "{kind: python, code: 'result = 1'}"
LOAD = "- {step: load, tool: {kind: shell, command: ./load}}"
END = "- {step: end}"


def warned(*lines: str, head: str = "") -> list[tuple[int, int]]:
    problems = playbook(head + steps(*lines)).problems
    assert [one for one in problems if one.severity == "error"] == []
    found = places(problems)
    return [(line, column) for line, column, code in found if code == "failure-goes-on"]


def fetch(tool: str = PYTHON, arc: str = "{step: load}", more: str = "") -> str:
    text = FETCH.replace("{TOOL}", tool).replace("{ARC}", arc)
    return text + "".join(f"\n  {line}" for line in more.splitlines())


def rules(do: str, when: str = "outcome.status == 'error'") -> str:
    rule = f'{{when: "{{{{ {when} }}}}", then: {{do: {do}}}}}'
    return f"{PYTHON[:-1]}, spec: {{policy: {{rules: [{rule}]}}}}}}"


@pytest.mark.parametrize(
    "step",
    [
        fetch(),
        fetch("{kind: http, url: 'https://shop.example'}"),
        fetch("[{kind: noop}, {kind: python, code: 'result = 1'}]"),
        fetch("{kind: noop, result: 1, assert: '{{ result == 2 }}'}"),
        fetch("{kind: wait, event: paid, timeout: 1h}"),
        fetch("{kind: wait, event: paid}", more="spec: {timeout: 1h}"),
        fetch(rules("retry")),
        fetch(rules("fail", "outcome.result == 1")),
        fetch(more="loop: {in: [1, 2]}"),
        fetch(more="set_ctx: {rows: '{{ outcome.result }}'}"),
        fetch(arc="{step: load, args: {rows: '{{ output.data }}'}}"),
        fetch(arc="{step: end}, {step: load}").replace("arcs", "spec: {mode: inclusive}, arcs"),
    ],
)
def test_a_failure_that_nothing_looks_at_is_told(step: str) -> None:
    at = 7, step.splitlines()[2].index("{step: load") + 1
    assert warned(step, LOAD, END) == [at]


@pytest.mark.parametrize(
    "step",
    [
        fetch("{kind: noop, result: '{{ execution_id }}'}"),
        fetch("{kind: wait, for: 1h}"),
        fetch("{kind: wait, event: paid}"),
        fetch("{kind: decision, ask: May it?}"),
        fetch(arc="{step: load, when: \"{{ event.name == 'step.done' }}\"}"),
        fetch(arc="{step: load, when: true}"),
        fetch(arc="{step: load, when: '{{ execution_id }}'}, {step: end}"),
        fetch(arc="{step: load, args: {why: \"{{ error | default('') }}\"}}"),
        fetch(arc="{step: load, set_ctx: {ended: '{{ outcome.status }}'}}"),
        fetch(more="set_ctx: {ended: '{{ event.name }}'}"),
        fetch(arc="{step: end}"),
        fetch(arc="{step: load, args: {rows: '{{ fetch.rows }}'}}"),
        fetch(arc="{step: load, set_ctx: {rows: '{{ outcome.result.rows }}'}}"),
        fetch(rules("continue")),
        fetch(rules("fail", "outcome.error.kind == 'schema'")),
        fetch(f"{PYTHON[:-1]}, spec: {{policy: {{on_unmatched: continue}}}}}}"),
        fetch(more="loop: {in: [1, 2]}\nspec: {policy: {failure: {mode: best_effort}}}"),
        fetch(more="loop: {in: [1, 2]}\nspec: {fanout: {tolerated_failures: 1}}"),
    ],
)
def test_one_that_is_looked_at_or_cannot_be_is_not(step: str) -> None:
    assert warned(step, LOAD, END) == []


@pytest.mark.parametrize(
    "head",
    [
        "executor: {spec: {on_failure: stop}}\n",
        "executor: {spec: {fail_fast: true}}\n",
        "executor: {spec: {final_step: load}}\n",
    ],
)
def test_nor_where_the_run_goes_no_further(head: str) -> None:
    assert warned(fetch(), LOAD, head=head) == []


@pytest.mark.parametrize(
    ("later", "told"),
    [
        ("{kind: noop, result: '{{ fetch }}'}", True),
        ("{kind: noop, result: '{{ fetch | default(0) }}'}", False),
        ("{kind: noop, result: '{{ steps.fetch.status }}'}", False),
        ("{kind: noop, result: '{{ args.failures }}'}", True),
    ],
)
def test_nor_where_a_later_step_looks_at_it(later: str, told: bool) -> None:
    last = f"- {{step: last, tool: {later}}}"
    load = LOAD[:-1] + ", next: {arcs: [{step: last, when: true}]}}"
    assert bool(warned(fetch(), load, last)) == told
    if "args" in later:
        assert warned(fetch(), LOAD, last, head="executor: {spec: {final_step: last}}\n") == []


def test_nor_where_a_later_guard_asks_for_the_step() -> None:
    load = LOAD[:-1] + ", next: {arcs: [{step: end, when: '{{ fetch.rows }}'}]}}"
    assert warned(fetch(), load, END) == []


def test_a_result_that_is_handed_on_goes_on_where_what_is_undefined_is_empty() -> None:
    step = fetch(arc="{step: load, args: {rows: '{{ fetch.rows }}'}}")
    assert warned(step, LOAD, head="executor: {spec: {undefined: empty}}\n") != []


def test_each_step_is_told_once_with_what_mends_it() -> None:
    chain = fetch(arc="{step: load}, {step: more}"), LOAD[:-1] + ", next: {arcs: [{step: more}]}}"
    problems = playbook(steps(*chain, "- {step: more, tool: {kind: shell, command: x}}")).problems
    found = [one for one in problems if one.code == "failure-goes-on"]
    assert [one.position.line for one in found] == [7, 8]
    assert "step 'fetch' fails the run goes on to 'load'" in str(found[0])
    assert "on_failure: stop" in str(found[0])
    assert "event.name == 'step.done'" in str(found[0])
