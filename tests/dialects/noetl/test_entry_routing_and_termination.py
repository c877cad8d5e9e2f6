"""Entry, routing and termination (canonical v10): every section, as far as compiling decides it.

The tests carry the number of the section they stand for.
"""

from __future__ import annotations

import pytest

from anabranch.net.net import Admission, RunPolicy

from ..support import codes, net_of, playbook, step_of

NAMES = {"run": "r", "workload": {"big": True}, "ctx": {}, "args": {}, "payload": {}, "results": {}}
DONE = {"ending": "done", "outcome": "ok", "step": "s", "result": {"n": 4}, "error": None, "at": 0}
FAILED = {**DONE, "ending": "failed", "result": None, "error": {"kind": "x", "message": "m"}}


# -- 1 model ---------------------------------------------------------------------------------


def test_1_1_steps_are_transitions_and_arcs_make_tokens() -> None:
    net = net_of("workflow: [{step: a, next: {arcs: [{step: b}]}}, {step: b, tool: {kind: noop}}]")
    (branch,) = net.steps["a"].branches
    assert [arc.target for arc in branch.arcs] == ["b"]
    assert branch.outcome is None  # routing happens on every outcome


def test_root_sections_are_the_six_of_the_seed() -> None:
    net = net_of(
        """
        keychain: []
        executor: {}
        workload: {a: 1}
        workflow: [{step: a, tool: {kind: noop}}]
        workbook: {tasks: {}}
        """
    )
    assert net.name == "test"
    assert net.workload == {"a": 1}


# -- 2 entry ---------------------------------------------------------------------------------

THREE = "workflow: [{step: x, next: {arcs: [{step: start}]}}, {step: start, tool: {kind: noop}}]\n"


def test_2_1_entry_is_the_first_step_whatever_its_name() -> None:
    assert net_of(THREE).entry == "x"


def test_2_2_entry_step_overrides() -> None:
    assert net_of("executor: {spec: {entry_step: start}}\n" + THREE).entry == "start"


def test_2_2_entry_step_must_exist() -> None:
    compiled = playbook("executor: {spec: {entry_step: strat}}\n" + THREE)
    assert str(compiled.errors[0]) == (
        "<text>:4:31: unknown-step: `entry_step` names the step 'strat', which does not exist; "
        "did you mean 'start'?"
    )


# -- 3 admission -----------------------------------------------------------------------------

RULES = """
spec:
  policy:
    admit:
      rules:
        - when: "{{ ctx.open }}"
          then: {allow: true}
        - else:
            then: {allow: false}
tool: {kind: noop}
"""


def admission_of(step: str) -> Admission:
    admission = step_of(step).admission
    assert admission is not None
    return admission


def allows(admission: Admission, ctx: dict[str, object]) -> bool:
    for rule in admission.rules:
        if rule.guard is None or rule.guard.evaluate({**NAMES, "ctx": ctx}):
            return rule.allow
    raise AssertionError("no rule decided")


def test_3_1_admission_rules() -> None:
    admission = admission_of(RULES)
    assert allows(admission, {"open": True}) is True
    assert allows(admission, {}) is False


def test_3_1_admission_defaults_to_allow() -> None:
    assert step_of("tool: {kind: noop}").admission is None


def test_3_1_rules_without_a_match_deny() -> None:
    admission = admission_of(
        """
        spec: {policy: {admit: {rules: [{when: "{{ ctx.open }}", then: {allow: true}}]}}}
        tool: {kind: noop}
        """
    )
    assert allows(admission, {}) is False


def test_3_1_the_first_matching_rule_decides() -> None:
    admission = admission_of(
        """
        spec: {policy: {admit: {rules: [
          {when: "{{ ctx.shut }}", then: {allow: false}},
          {when: "{{ ctx.open }}", then: {allow: true}}]}}}
        tool: {kind: noop}
        """
    )
    assert allows(admission, {"open": True}) is True
    assert allows(admission, {"open": True, "shut": True}) is False


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", "pending"),
        ("on_deny: pending, ", "pending"),
        ("on_deny: discard, ", "discard"),
        ("on_deny: skip, ", "skip"),
    ],
)
def test_3_2_denied_tokens_stay_pending_by_default(written: str, expected: str) -> None:
    rules = "rules: [{else: {then: {allow: false}}}]"
    step = f"spec: {{policy: {{admit: {{{written}{rules}}}}}}}\ntool: {{kind: noop}}"
    assert admission_of(step).on_deny == expected


# -- 4 routing -------------------------------------------------------------------------------


def arcs(mode: str, *guards: str) -> str:
    lines = [f"    - {{step: t{n}{guard}}}" for n, guard in enumerate(guards)]
    targets = [f"- step: t{n}\n  tool: {{kind: noop}}" for n in range(len(guards))]
    head = f"workflow:\n- step: s\n  next:\n{mode}    arcs:\n"
    return head + "\n".join(lines) + "\n" + "\n".join(targets)


def test_4_1_routers_have_a_mode_and_arcs() -> None:
    (branch,) = net_of(arcs("    spec: {mode: inclusive}\n", "", "")).steps["s"].branches
    assert branch.mode == "inclusive"
    assert [arc.target for arc in branch.arcs] == ["t0", "t1"]


def test_4_2_a_missing_guard_is_true_and_others_are_evaluated() -> None:
    guards = ("", ", when: \"{{ event.name == 'step.done' }}\"", ", when: workload.big")
    (branch,) = net_of(arcs("    spec: {mode: inclusive}\n", *guards)).steps["s"].branches
    always, on_done, on_big = (arc.guard for arc in branch.arcs)
    assert always is None
    assert on_done is not None
    assert on_big is not None
    assert on_done.evaluate({**NAMES, "event": DONE}) is True
    assert on_done.evaluate({**NAMES, "event": FAILED}) is False
    assert on_big.evaluate({**NAMES, "event": FAILED}) is True


def test_4_2_guards_see_event_workload_ctx_and_args() -> None:
    guard = ', when: "{{ event.step == ctx.a and workload.big and args.b }}"'
    (branch,) = net_of(arcs("", guard)).steps["s"].branches
    names = {**NAMES, "event": DONE, "ctx": {"a": "s"}, "args": {"b": 1}}
    assert branch.arcs[0].guard is not None
    assert branch.arcs[0].guard.evaluate(names) is True


def test_4_3_exclusive_is_the_default_mode() -> None:
    (branch,) = net_of(arcs("", ", when: ctx.a", "")).steps["s"].branches
    assert branch.mode == "exclusive"


def test_4_3_other_modes_are_refused() -> None:
    compiled = playbook(arcs("    spec: {mode: inclusiv}\n", ""))
    assert codes(compiled) == ["bad-choice"]
    assert compiled.problems[0].hint == "did you mean 'inclusive'?"


def test_4_4_arc_args_are_rendered_into_the_token() -> None:
    (branch,) = net_of(arcs("", ', args: {n: "{{ s.n }}", k: [1]}')).steps["s"].branches
    assert branch.arcs[0].args is not None
    assert branch.arcs[0].args.evaluate({**NAMES, "event": DONE}) == {"n": 4, "k": [1]}


# -- 5 branch ends ---------------------------------------------------------------------------


def test_5_1_a_step_without_next_is_a_leaf() -> None:
    assert step_of("tool: {kind: noop}").branches == ()


@pytest.mark.parametrize(("written", "expected"), [("", False), ("no_next_is_error: true", True)])
def test_5_2_no_match_is_an_error_only_by_policy(written: str, expected: bool) -> None:
    net = net_of(
        f"executor: {{spec: {{{written}}}}}\nworkflow: [{{step: a, tool: {{kind: noop}}}}]"
    )
    assert net.policy.no_route_is_error is expected


# -- 6 termination ---------------------------------------------------------------------------


def policy(written: str) -> RunPolicy:
    body = f"executor: {{spec: {{{written}}}}}\nworkflow: [{{step: a, tool: {{kind: noop}}}}]"
    return net_of(body).policy


def test_6_2_the_status_rule_is_explicit() -> None:
    plain = policy("")
    assert (plain.on_failure, plain.fail_fast, plain.held) == ("fail", False, "wait")
    assert plain.timeouts_have_own_status is False
    other = policy("on_failure: partial, fail_fast: true, held: discard, deadline: 1h")
    assert (other.on_failure, other.fail_fast, other.held) == ("partial", True, "discard")
    assert other.deadline_ms == 3_600_000
    assert policy("on_failure: handled").on_failure == "handled"
    stop = policy("on_failure: stop")
    assert (stop.on_failure, stop.fail_fast) == ("handled", True)


# -- 7 final step ----------------------------------------------------------------------------

TWO = "workflow: [{step: a, tool: {kind: noop}}, {step: end, tool: {kind: noop}}]\n"


def test_7_1_final_step() -> None:
    compiled = playbook("executor: {spec: {final_step: end}}\n" + TWO)
    assert compiled.net is not None
    assert compiled.net.final == "end"
    assert codes(compiled) == []  # it needs no arc to be reached


def test_7_1_final_step_must_exist_and_end_is_no_reserved_name() -> None:
    assert codes(playbook("executor: {spec: {final_step: fin}}\n" + TWO), "error") == [
        "unknown-step"
    ]
    assert net_of(TWO).final is None


def test_7_2_final_step_reads_its_summary_from_args() -> None:
    body = """
    executor: {spec: {final_step: end}}
    workflow:
      - {step: a, tool: {kind: noop}}
      - {step: end, tool: {kind: noop, result: "{{ args.counts.failed }}"}}
    """
    work = net_of(body).steps["end"].work
    assert work is not None
    assert work.inputs is not None
    names = {**NAMES, "args": {"counts": {"failed": 2}}}
    assert work.inputs.evaluate(names) == {"result": 2}


@pytest.mark.parametrize(
    ("written", "expected"), [("", "fail"), ("final_failure: partial", "partial")]
)
def test_7_3_final_step_failure_follows_policy(written: str, expected: str) -> None:
    assert policy(written).on_final_failure == expected


# -- 8 noop ----------------------------------------------------------------------------------


def test_8_noop_is_a_kind_and_never_required() -> None:
    work = step_of("tool: {kind: noop}").work
    assert work is not None
    assert work.kind == "noop"
    routing = net_of(
        "workflow: [{step: a, next: {arcs: [{step: b}]}}, {step: b, tool: {kind: noop}}]"
    )
    assert routing.steps["a"].work is not None
    assert routing.steps["a"].work.kind == "noop"
    assert "noop" not in codes(playbook(THREE))


def test_8_noop_may_write_the_context() -> None:
    (patch,) = step_of('tool: {kind: noop}\nset_ctx: {total: "{{ workload.big }}"}').patches
    assert (patch.key, patch.reducer) == ("total", "set")
    assert patch.value.evaluate(NAMES) is True


# -- 9 summary -------------------------------------------------------------------------------


def test_9_canonical_defaults() -> None:
    net = net_of(
        "workflow: [{step: one, next: {arcs: [{step: two}]}}, {step: two, tool: {kind: noop}}]"
    )
    one = net.steps["one"]
    assert net.entry == "one"
    assert net.final is None
    assert one.admission is None
    assert one.branches[0].mode == "exclusive"
    assert one.barrier is None
    assert net.policy == RunPolicy(timeouts_have_own_status=False)
