"""Redrive: reuse is closed under dependence. What follows from anything done again runs again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import msgspec
import pytest

from anabranch.expressions.port import Constant, Paths
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.redrive import plan_redrive, reusable
from anabranch.kernel.replay import replay
from anabranch.kernel.state import State, decode_state, encode_state
from anabranch.kernel.step import step as kernel_step
from anabranch.kernel.values import ContextPatch, succeeded
from anabranch.net.net import (
    Admission,
    AdmitRule,
    Arc,
    Barrier,
    Branch,
    Decision,
    GatherRule,
    Join,
    Net,
    Patch,
    Slot,
    Work,
)

from .driver import Run
from .nets import arcs, fan_net, inclusive, net, router, step


@dataclass(frozen=True, slots=True)
class Read:
    """An expression that says what it reads, such as `ctx.total` or `steps.b`."""

    text: str

    @property
    def reads(self) -> Paths:
        return frozenset({tuple(self.text.split("."))})

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        where, _, key = self.text.partition(".")
        return names["ctx" if where == "ctx" else "results"].get(key)


def reads(text: str) -> Work:
    return Work("test", inputs=Read(text))


QUIET = Work("test", inputs=Constant({}))


def redriven(run: Run) -> Run:
    return Run(run.net, origin="run", reuse=reusable(run.net, run.history))


def scheduled(run: Run) -> list[str]:
    steps = {event.token: event.step for event in run.of_kind(e.TokenCreated)}
    return [steps[event.token] for event in run.of_kind(e.JobScheduled)]


def again(run: Run) -> dict[str, str]:
    """Step → how it depends on what failed, as the plan says it."""
    fates = plan_redrive(run.net, run.history).again
    return {fate.step: fate.cause.how for fate in fates if fate.cause is not None}


# -- by arcs ---------------------------------------------------------------------------------


def test_what_followed_a_failure_runs_again_when_the_failure_is_mended() -> None:
    """`b` fails and an arc goes on all the same; redriven, `add` must not say what it said."""
    first = Run(net(step("b", "add"), step("add", "last"), step("last")))
    first.fails("b")
    first.done("add", 1)
    first.done("last", 1)
    assert again(first) == {"b": "failed", "add": "arc", "last": "arc"}
    second = redriven(first)
    second.done("b", 2)
    second.done("add", 2)
    second.done("last", 2)
    assert second.state.results == {"b": 2, "add": 2, "last": 2}


def test_a_branch_that_has_nothing_to_do_with_the_failure_is_kept() -> None:
    fork = router("r", "a", "b")
    steps = (step("a", "a2", work=QUIET), step("a2", work=QUIET), step("b", "c"), step("c"))
    first = Run(net(fork, *steps))
    first.fails("b")
    first.done("a", 1)
    first.done("a2", 2)
    first.done("c", 3)
    second = redriven(first)
    assert scheduled(second) == ["b"]
    second.done("b", 0)
    assert scheduled(second) == ["b", "c"]


def test_an_approval_of_what_is_made_anew_is_asked_for_again() -> None:
    approve = step("approve", "send", work=None, decision=Decision("send it?"))
    first = Run(net(step("report", "approve"), approve, step("send")))
    first.fails("report")
    first.send(s.Decide("approve", "fulfil", "alice"))
    first.done("send")
    second = redriven(first)
    second.done("report", "new")
    assert [gate.step for gate in second.state.gates.values()] == ["approve"]


def test_a_judged_task_downstream_is_judged_again() -> None:
    judged = step("offer", decision=Decision("good?", policy="manual"))
    first = Run(net(step("ask", "offer"), judged))
    first.fails("ask")
    first.done("offer", "old")
    first.send(s.Decide("offer", "fulfil", "alice"))
    second = redriven(first)
    second.done("ask")
    second.done("offer", "new")
    assert [gate.step for gate in second.state.gates.values()] == ["offer"]


def test_what_was_let_in_by_hand_is_let_in_again_only_if_nothing_before_it_changed() -> None:
    gate = Admission((AdmitRule(None, allow=False),))
    kept = step("kept", work=QUIET, admission=gate)
    after = step("after", work=QUIET, admission=gate)
    first = Run(net(router("r", "kept", "b"), kept, step("b", "after"), after))
    first.fails("b")
    for name in ("kept", "after"):
        first.send(s.Decide(name, "fulfil", "alice"))
        first.done(name)
    second = redriven(first)
    assert scheduled(second) == ["b"]
    assert second.state.held == {}
    second.done("b")
    assert [second.state.tokens[token].step for token in second.state.held] == ["after"]


# -- by the context and by results -----------------------------------------------------------


def test_who_reads_what_a_failed_step_did_not_write_runs_again() -> None:
    """A bill that said "unknown" because nobody had written the total."""
    b = step("b", patches=(Patch("total", Read("steps.b")),))
    first = Run(net(router("r", "b", "c"), b, step("c", "bill", work=QUIET), bill()))
    first.fails("b")
    first.done("c")
    first.done("bill", "unknown")
    assert again(first) == {"b": "failed", "bill": "context"}
    assert scheduled(redriven(first)) == ["b", "bill"]


def bill() -> Any:
    return step("bill", work=reads("ctx.total"))


def test_who_reads_what_a_handler_wrote_runs_again() -> None:
    handler = step("handler", work=QUIET, patches=(Patch("total", Constant(0)),))
    b = step("b", Branch("error", arcs=arcs("handler")))
    first = Run(net(router("r", "b", "c"), b, handler, step("c", "bill", work=QUIET), bill()))
    first.fails("b")
    first.done("handler")
    first.done("c")
    first.done("bill", "unknown")
    second = redriven(first)
    assert scheduled(second) == ["b", "bill"]


def test_who_reads_another_key_is_kept() -> None:
    handler = step("handler", work=QUIET, patches=(Patch("other", Constant(0)),))
    b = step("b", Branch("error", arcs=arcs("handler")))
    first = Run(net(router("r", "b", "c"), b, handler, step("c", "bill", work=QUIET), bill()))
    first.fails("b")
    first.done("handler")
    first.done("c")
    first.done("bill", "known")
    assert scheduled(redriven(first)) == ["b"]


def test_who_reads_the_result_of_what_is_done_again_runs_again() -> None:
    add = step("add", work=reads("steps.b"))
    first = Run(net(router("r", "b", "c"), step("b"), step("c", "add", work=QUIET), add))
    first.fails("b")
    first.done("c")
    first.done("add", 1)
    assert again(first) == {"b": "failed", "add": "result"}


def test_a_guard_that_reads_what_changed_takes_what_it_lets_through_along() -> None:
    go = inclusive(Arc("d", Read("ctx.flag")))
    b = step("b", Branch("error", arcs=arcs("handler")))
    handler = step("handler", work=QUIET, patches=(Patch("flag", Constant(True)),))
    c = step("c", go, work=QUIET)
    first = Run(net(router("r", "b", "c"), b, handler, c, step("d", work=QUIET)))
    first.fails("b")
    first.done("handler")
    first.done("c")
    first.done("d", "old")
    assert again(first)["d"] == "arc"
    assert [fate.step for fate in plan_redrive(first.net, first.history).reused] == ["c"]


def test_what_somebody_wrote_by_hand_is_not_there_in_the_redriven_run() -> None:
    first = Run(net(router("r", "b", "c"), step("b"), step("c", "bill", work=QUIET), bill()))
    first.send(s.PatchContext((ContextPatch("total", 7),), "alice"))
    first.done("c")
    first.done("bill", 7)
    first.fails("b")
    assert scheduled(redriven(first)) == ["b", "bill"]


def test_a_step_that_comes_late_reads_what_was_written_anew() -> None:
    """Kept steps may sleep; what is done again meanwhile counts for whoever wakes behind them."""
    b = step("b", patches=(Patch("total", Read("steps.b")),))
    first = Run(net(router("r", "c", "b"), b, step("c", "bill", work=QUIET), bill()))
    first.done("c", wait_ms=1_000)
    first.tick(first.at + 1_000)
    first.done("bill", "unknown")
    first.fails("b")
    second = redriven(first)
    second.done("b", 2)
    second.tick(second.at + 1_000)
    assert scheduled(second) == ["b", "bill"]
    assert [event.cause.text for event in second.of_kind(e.TokenInvalidated)] == [
        "it reads ctx.total, which b writes"
    ]


# -- by joins and barriers -------------------------------------------------------------------


def test_a_barrier_that_did_without_the_failed_one_runs_again() -> None:
    end = step("end", work=QUIET, barrier=Barrier())
    fails = step("b", inclusive("end", outcome="ok"))
    first = Run(net(router("r", "a", "b"), step("a", "end", work=QUIET), fails, end))
    first.fails("b")
    first.done("a", 1)
    first.done("end", "without b")
    assert again(first) == {"b": "failed", "end": "join"}
    second = redriven(first)
    second.done("b")
    second.done("end", "with b")
    assert second.state.results["end"] == "with b"


def scoped(rule: GatherRule) -> Net:
    join = Join("j", rule, (Slot("a"), Slot("b"), Slot("c")))
    branch = Branch(None, "inclusive", arcs("a", "b", "c"), join)
    steps = [step(name, work=QUIET) for name in ("a", "b", "c")]
    return net(router("r", branch), *steps, step("j", "end", work=QUIET), step("end"))


@pytest.mark.parametrize("mode", ["any", "quorum"])
@pytest.mark.parametrize("came", list(permutations("abc")))
def test_a_closed_join_has_taken_whom_it_took_in_the_origin(mode: Any, came: Sequence[str]) -> None:
    """The answers that are taken over come in the order in which they came there."""
    first = Run(scoped(GatherRule(mode, k=2, combine="merge", losers="drain")))
    for name in came:
        first.done(name, {name: 1})
    first.done("j")
    first.fails("end")
    second = redriven(first)
    assert scheduled(second) == ["end"]
    assert _closed(second) == _closed(first)


def _closed(run: Run) -> list[tuple[str, Sequence[int]]]:
    return [(event.verdict, event.selected) for event in run.of_kind(e.GatherSettled)]


def test_what_is_taken_over_waits_for_what_followed_from_what_came_before_it() -> None:
    """`a2` ended before `b` in the origin: so it does here, though `b` is an older token."""
    a, a2 = step("a", "a2", work=QUIET), step("a2", work=QUIET)
    first = Run(net(router("r", "a", "b", "last"), a, a2, step("b", work=QUIET), step("last")))
    first.done("a")
    first.done("a2")
    first.done("b")
    first.fails("last")
    second = redriven(first)
    order = [event.token for event in second.of_kind(e.TokenFinished)]
    steps = {event.token: event.step for event in second.of_kind(e.TokenCreated)}
    ended = [steps[token] for token in order]
    assert ended.index("a2") < ended.index("b")
    assert scheduled(second)[:1] == ["last"]


def test_a_join_with_losers_killed_is_kept_and_what_failed_behind_it_is_done_again() -> None:
    first = Run(scoped(GatherRule("quorum", k=2, combine="merge", losers="kill")))
    first.begin("c")
    first.done("a", {"a": 1})
    first.done("b", {"b": 1})
    first.done("c", {"c": 1})
    first.done("j")
    first.fails("end")
    second = redriven(first)
    assert [job.step for job in second.state.jobs.values()] == ["end"]
    second.done("end")
    assert second.status == "completed"


def test_a_join_that_was_impossible_closes_once_what_failed_is_done_again() -> None:
    first = Run(scoped(GatherRule("all", combine="merge")))
    first.done("a", {"a": 1})
    first.done("c", {"c": 1})
    first.fails("b")
    second = redriven(first)
    assert scheduled(second) == ["b"]
    second.done("b", {"b": 2})
    second.done("j")
    assert second.state.counts.created == 6
    assert [job.step for job in second.state.jobs.values()] == ["end"]


def test_step_runs_of_one_step_keep_their_own_answers() -> None:
    """The same step on two ways with the same arguments; the slower one began first."""
    first = Run(
        net(
            router("r", "a", "b", "x"),
            step("a", "c", work=QUIET),
            step("b", "c", work=QUIET),
            step("c", "d", work=QUIET, patches=()),
            step("d", work=QUIET),
            step("x"),
        )
    )
    first.done("b")
    first.done("c", "by b")
    first.done("a")
    first.done("c", "by a")
    first.done("d", nth=0)
    first.done("d", nth=0)
    first.fails("x")
    second = redriven(first)
    parents = {event.token: event.parent for event in second.of_kind(e.TokenCreated)}
    steps = {event.token: event.step for event in second.of_kind(e.TokenCreated)}
    answers = {
        steps[parents[event.token]]: event.answer.result
        for event in second.of_kind(e.JobReused)
        if steps[event.token] == "c"
    }
    assert answers == {"a": "by a", "b": "by b"}


# -- asking many -----------------------------------------------------------------------------


def test_a_fan_out_that_succeeded_is_not_asked_again_not_even_who_failed_there() -> None:
    asks = fan_net(["ann", "bob", "cy"], "any", "end", losers="kill")
    steps = [each for each in asks.steps.values() if each.fan is not None]
    first = Run(net(*steps, step("end")))
    first.fails("1.0")
    first.done("1.1", "b")
    first.fails("end")
    second = redriven(first)
    assert scheduled(second) == ["end"]
    assert second.state.results == first.state.results


def test_a_fan_out_behind_what_is_done_again_asks_everybody_again() -> None:
    asks = fan_net(["ann", "bob"], "all")
    before = step("before", next(iter(asks.steps)))
    first = Run(net(before, *asks.steps.values()))
    first.fails("before")
    first.done("2.0", "a")
    first.done("2.1", "b")
    second = redriven(first)
    second.done("before")
    assert list(second.state.jobs) == ["2.0", "2.1"]


# -- logs from before ------------------------------------------------------------------------


def before_marks(run: Run) -> list[tuple[int, e.Event]]:
    """The log of a redriven run as it was written when answers were known by arguments alone."""
    found: list[tuple[int, e.Event]] = []
    for at, event in run.history:
        if isinstance(event, e.RunStarted):
            renamed = {f"old {key}": answers for key, answers in event.reuse.items()}
            event = msgspec.structs.replace(event, reuse=renamed)
        elif isinstance(event, e.JobReused):
            event = msgspec.structs.replace(event, key=f"old {event.key}")
        found.append((at, event))
    return found


def test_a_redriven_run_from_before_is_replayed_and_redriven_again() -> None:
    first = Run(net(step("a", "b", work=QUIET), step("b", work=QUIET)))
    first.done("a", 1)
    first.fails("b")
    second = redriven(first)
    second.fails("b")
    old = before_marks(second)
    assert replay(old).results == {"a": 1}
    third = Run(first.net, origin="run", reuse=reusable(first.net, old))
    assert scheduled(third) == ["b"]


def test_a_redriven_run_that_was_under_way_before_goes_on_without_taking_more_over() -> None:
    """Where its tokens come from was not noted: whatever is left to do is done."""
    first = Run(net(step("a", "b", work=QUIET), step("b", "c", work=QUIET), step("c")))
    first.done("a", 1)
    first.done("b", 2)
    first.fails("c")
    reuse = reusable(first.net, first.history)
    state = State()
    kernel_step(first.net, state, s.Start(run="run", origin="o", reuse=reuse), 1_000)
    plain = msgspec.json.decode(encode_state(state))
    plain["provenance"] = None
    old = decode_state(msgspec.json.encode(plain))
    (job,) = old.jobs.values()
    kernel_step(first.net, old, s.JobStart(job.id, 1, "w"), 1_000)
    kernel_step(first.net, old, s.JobReport(job.id, 1, succeeded(3)), 1_000)
    assert (old.status, old.results["c"]) == ("completed", 3)
