"""Routing: which arcs fire, what they hand on, and what happens when none does."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import ContextPatch
from anabranch.net.net import Arc, Branch, Patch, RunPolicy

from .driver import Run
from .nets import Fn, Wrong, const, exclusive, inclusive, net, router, step


def created(run: Run) -> list[str]:
    return [event.step for event in run.of_kind(e.TokenCreated)][1:]


def leads(branch: Branch, policy: RunPolicy | None = None) -> Run:
    """A router with that branch; b, c and d stand ready."""
    return Run(net(router("a", branch), step("b"), step("c"), step("d"), policy=policy))


# -- which arcs ----------------------------------------------------------------------------------


def test_exclusive_takes_the_first_match_in_document_order() -> None:
    run = leads(exclusive(Arc("b", const(False)), Arc("c", const(True)), Arc("d")))
    assert created(run) == ["c"]


def test_exclusive_does_not_look_at_arcs_after_the_match() -> None:
    assert created(leads(exclusive("b", Arc("c", Wrong())))) == ["b"]


def test_inclusive_takes_every_match_in_document_order() -> None:
    run = leads(inclusive("d", Arc("b", const(False)), Arc("c", const(True)), "d"))
    assert created(run) == ["d", "c", "d"]


def test_an_arc_without_a_guard_matches() -> None:
    assert created(leads(exclusive("b"))) == ["b"]


@pytest.mark.parametrize(("value", "taken"), [(1, True), ("x", True), (0, False), (None, False)])
def test_a_guard_holds_when_its_value_is_truthy(value: Any, taken: bool) -> None:
    assert (created(leads(exclusive(Arc("b", const(value))))) == ["b"]) is taken


@pytest.mark.parametrize(
    ("outcome", "target"), [("valid", "b"), ("invalid", "c"), ("else", "d"), ("ok", "d")]
)
def test_the_outcome_selects_the_branch(outcome: str, target: str) -> None:
    branches = [exclusive("b", outcome="valid"), exclusive("c", outcome="invalid"), exclusive("d")]
    run = Run(net(step("a", *branches), step("b"), step("c"), step("d")))
    run.done("a", outcome=outcome)
    assert created(run) == [target]


def test_a_failed_step_takes_the_branch_for_errors() -> None:
    branches = [exclusive("b", outcome="ok"), exclusive("c", outcome="error")]
    policy = RunPolicy(on_failure="handled")
    run = Run(net(step("a", *branches), step("b"), step("c"), policy=policy))
    run.fails("a")
    assert created(run) == ["c"]
    run.done("c")
    assert run.status == "completed"


# -- the end of a branch -------------------------------------------------------------------------


def test_a_step_without_arcs_is_a_leaf() -> None:
    run = Run(net(router("a")))
    assert run.of_kind(e.TokenFinished)[0].end == "leaf"
    assert run.status == "completed"


def test_no_match_ends_the_branch() -> None:
    run = leads(exclusive(Arc("b", const(False))))
    assert run.of_kind(e.TokenFinished)[0].end == "no_match"
    assert run.status == "completed"


def test_no_match_fails_where_the_run_says_so() -> None:
    run = leads(exclusive(Arc("b", const(False))), RunPolicy(no_route_is_error=True))
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "no arc of step a matches"


def test_a_leaf_is_no_error_even_there() -> None:
    assert Run(net(router("a"), policy=RunPolicy(no_route_is_error=True))).status == "completed"


def test_the_fault_of_a_failed_step_outlives_a_missing_route() -> None:
    branch = exclusive(Arc("b", const(False)))
    run = Run(net(step("a", branch), step("b"), policy=RunPolicy(no_route_is_error=True)))
    run.fails("a")
    assert run.state.problem is not None
    assert run.state.problem.kind == "boom"


# -- guards and arguments that cannot be had -------------------------------------------------------


def test_a_guard_that_cannot_be_evaluated_fails_the_step_clearly() -> None:
    run = leads(exclusive(Arc("b", Wrong("ctx.total / 0"))))
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "step a: ctx.total / 0: division by zero"
    assert created(run) == []


def test_one_broken_guard_of_an_inclusive_fork_creates_nothing() -> None:
    run = leads(inclusive("b", Arc("c", Wrong())))
    assert created(run) == []
    assert run.statuses("a") == ["failed"]


@pytest.mark.parametrize("args", [const([1]), const("text"), const(7)])
def test_arguments_must_be_a_mapping(args: Any) -> None:
    run = leads(exclusive(Arc("b", None, args)))
    assert run.status == "failed"
    assert run.state.problem is not None
    assert "the args of the arc to 'b' must be a mapping" in run.state.problem.message


def test_arguments_that_come_to_nothing_are_empty() -> None:
    assert leads(exclusive(Arc("b", None, const(None)))).token("b").args == {}


# -- what is handed on -----------------------------------------------------------------------------


def test_arguments_belong_to_the_step_run_and_never_change() -> None:
    args = Fn(lambda names: {"list": names["ctx"]["list"]})
    run = Run(net(step("a", exclusive(Arc("b", None, args))), step("b", "c"), step("c")))
    run.done("a", patches=(ContextPatch("list", 1, "append"),))
    run.patch(list=[9])
    assert run.token("b").args == {"list": [1]}
    run.done("b")
    assert run.token("c").args == {}, "arguments are handed on only by an arc that says so"


def test_guards_see_event_workload_context_arguments_and_results() -> None:
    seen: dict[str, Any] = {}

    def look(names: Mapping[str, Any]) -> bool:
        seen.update({name: copy(value) for name, value in names.items()})
        return True

    first = exclusive(Arc("b", None, const({"x": 1})))
    last = exclusive(Arc("c", Fn(look)))
    run = Run(net(step("a", first), step("b", last), step("c")), input={"who": "me"})
    run.done("a", "from a")
    run.done("b", {"n": 2}, outcome="fine", patches=(ContextPatch("k", 3),))
    assert seen["workload"] == {"who": "me"}
    assert seen["args"] == {"x": 1}
    assert seen["ctx"] == {"k": 3}, "as it is after the step's own patches"
    assert seen["results"] == {"a": "from a"}
    assert seen["event"] == {
        "ending": "done", "outcome": "fine", "step": "b", "result": {"n": 2}, "error": None,
        "at": run.at,
    }  # fmt: skip


def test_guards_see_why_a_step_failed() -> None:
    guard = Fn(lambda names: names["event"]["error"]["kind"] == "boom")
    policy = RunPolicy(on_failure="handled")
    run = Run(net(step("a", exclusive(Arc("b", guard))), step("b"), policy=policy))
    run.fails("a")
    assert created(run) == ["b"]


def test_input_is_laid_over_the_declared_workload_key_by_key() -> None:
    run = Run(net(router("a"), workload={"x": {"a": 1, "b": 2}, "y": [1]}), input={"x": {"b": 3}})
    assert run.state.workload == {"x": {"a": 1, "b": 3}, "y": [1]}


def test_children_inherit_the_payload_only_on_branches_that_carry_it() -> None:
    carrying = Branch(None, "inclusive", (Arc("b"),), carry_payload=True)
    run = Run(
        net(step("a", carrying), step("b", "c"), step("c"), carries_payload=True), input={"i": 1}
    )
    assert run.token("a").payload == {"i": 1}
    run.done("a", {"j": 2})
    assert run.token("b").payload == {"i": 1, "j": 2}
    run.done("b")
    assert run.token("c").payload == {}


# -- context patches -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reducer", "values", "result"),
    [
        ("set", [1, 2], 2),
        ("sum", [1, 2, 0.5], 3.5),
        ("min", [3, 1, 2], 1),
        ("max", [3, 1, 4], 4),
        ("append", [1, [2]], [1, [2]]),
        ("merge", [{"a": 1}, {"b": 2, "a": 3}], {"a": 3, "b": 2}),
    ],
)
def test_reducers(reducer: Any, values: list[Any], result: Any) -> None:
    run = Run(net(*(step(f"s{i}", f"s{i + 1}") for i in range(3)), step("s3")))
    for number, value in enumerate(values):
        run.done(f"s{number}", patches=(ContextPatch("k", value, reducer),))
    assert run.state.ctx == {"k": result}


@pytest.mark.parametrize(
    ("old", "reducer", "value"),
    [("x", "sum", 1), (1, "sum", "x"), (1, "min", True), (1, "append", 2), (1, "merge", {}),
     ({}, "merge", 1), (None, "max", 1)],
)  # fmt: skip
def test_patches_that_do_not_fit_are_refused_or_fail_the_step(
    old: Any, reducer: Any, value: Any
) -> None:
    run = Run(net(step("a", "b"), step("b")))
    run.patch(k=old)
    bad = (ContextPatch("fine", 1), ContextPatch("k", value, reducer))
    run.refuses(s.PatchContext(bad, "me"), "patch")
    run.done("a", patches=bad)
    assert run.statuses("a") == ["failed"]
    assert run.state.ctx == {"k": old}, "none of the patches was applied"
    assert run.state.problem is not None
    assert "context key 'k'" in run.state.problem.message


@pytest.mark.parametrize("patches", [(), (ContextPatch("", 1),), (ContextPatch(5, 1),)])  # type: ignore[arg-type]
def test_patches_without_a_key_are_refused(patches: tuple[ContextPatch, ...]) -> None:
    Run(net(step("a"))).refuses(s.PatchContext(patches), "patch")


def test_declared_patches_come_after_those_of_the_work_and_see_the_result() -> None:
    declared = Patch("k", Fn(lambda names: names["event"]["result"]), "sum")
    run = Run(net(step("a", patches=(declared,))))
    run.done("a", 5, patches=(ContextPatch("k", 2),))
    assert run.state.ctx == {"k": 7}


def test_a_declared_patch_that_cannot_be_evaluated_fails_the_step() -> None:
    run = Run(net(step("a", "b", patches=(Patch("k", Wrong()),)), step("b")))
    run.done("a")
    assert run.status == "failed"
    assert run.statuses("b") == []


def test_a_failed_step_patches_nothing() -> None:
    run = Run(net(step("a", patches=(Patch("k", const(1)),))))
    run.fails("a")
    assert run.state.ctx == {}


def test_a_patch_never_changes_a_value_that_was_handed_out() -> None:
    args = Fn(lambda names: names["ctx"]["map"])
    run = Run(net(step("a", exclusive(Arc("b", None, args))), step("b")))
    run.done("a", patches=(ContextPatch("map", {"x": 1}, "merge"),))
    run.send(s.PatchContext((ContextPatch("map", {"x": 2}, "merge"),)))
    assert run.token("b").args == {"x": 1}
    assert run.state.ctx == {"map": {"x": 2}}
