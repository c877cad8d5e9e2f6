"""Random nets: fixed by their seed, sound, and reaching everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from anabranch.kernel import events as e
from anabranch.kernel.events import Event
from anabranch.kernel.values import Fault
from anabranch.net.net import Net
from anabranch.store.ports import Commit
from anabranch.testing import simulate
from anabranch.testing.random.arca import POLICIES
from anabranch.testing.random.nets import RANDOM_PATCHES, random_net
from anabranch.testing.simulated.audit import Audit

SEEDS_MAX = 2_000
#: Together these reach everything now: whatever changes the kernel changes what a seed does.
KNOWN = (11, 48, 251, 313, 476, 772)


def _shape(flow: Net) -> list[object]:
    return [
        (step.name, step.timeout_ms, step.work and step.work.retry, [
            (branch.outcome, branch.mode, [arc.target for arc in branch.arcs], branch.join)
            for branch in step.branches
        ])
        for step in flow.steps.values()
    ]  # fmt: skip


def test_a_seed_gives_the_same_net() -> None:
    assert [_shape(random_net(seed)) for seed in range(50)] == [
        _shape(random_net(seed)) for seed in range(50)
    ]
    assert random_net(3).fingerprint != random_net(4).fingerprint


def test_every_arc_leads_somewhere() -> None:
    for seed in range(300):
        flow = random_net(seed)
        assert flow.entry in flow.steps
        for step in flow.steps.values():
            for branch in step.branches:
                assert all(arc.target in flow.steps for arc in branch.arcs)
                if branch.join is not None:
                    assert branch.join.target in flow.steps
                    assert all(slot.node in flow.steps for slot in branch.join.slots)


def test_all_parts_of_a_net_occur() -> None:
    nets = [random_net(seed) for seed in range(400)]
    steps = [step for flow in nets for step in flow.steps.values()]
    rules = [step.fan.rule for step in steps if step.fan is not None]
    rules += [
        branch.join.rule for step in steps for branch in step.branches if branch.join is not None
    ]
    assert {rule.mode for rule in rules} == {"any", "quorum", "all", "best_of"}
    assert {rule.losers for rule in rules} == {"kill", "drain"}
    assert {step.on_timeout for step in steps if step.timeout_ms} == {"fail", "skip", "abort_run"}
    assert {step.decision.on_reject for step in steps if step.decision} == {
        *("fail", "retry", "pause", "continue")
    }
    assert {step.admission.on_deny for step in steps if step.admission} == {
        *("pending", "discard", "skip")
    }
    assert {step.barrier.need for step in steps if step.barrier} == {"reached", "all"}
    assert {flow.policy.on_failure for flow in nets} == {"fail", "handled", "partial"}
    assert {flow.policy.fail_fast for flow in nets} == {True, False}
    assert any(flow.policy.deadline_ms for flow in nets)
    assert any(flow.final for flow in nets)


def _about_loops(events: list[Event]) -> Iterator[str]:
    for event in events:
        match event:
            case e.LoopSettled():
                yield f"loop {event.status}"
            case e.ShardClosed(fault=Fault(kind="queue_ttl")):
                yield "queue_ttl again" if event.whole else "queue_ttl"
            case e.JobDischarged(how="put_back"):
                yield "put_back"
            case e.JobReported() if event.answer.shard is not None and event.answer.shard.unbegun:
                yield "unbegun"


def test_loops_of_every_kind_occur() -> None:
    steps = [step for seed in range(400) for step in random_net(seed).steps.values()]
    loops = [step.loop for step in steps if step.loop is not None]
    assert {loop.mode for loop in loops} == {"local", "fanout"}
    assert {type(loop.over.evaluate({"args": {"missing": 1}})) for loop in loops} >= {list, dict}
    assert {None, 1} < {loop.shard_size for loop in loops}
    for flag in ("fail_fast", "allow_partial", "keep_results"):
        assert {getattr(loop, flag) for loop in loops} == {True, False}
    for number in ("tolerate", "tolerate_percent", "item_retries", "queue_ttl_ms", "reducers"):
        assert any(getattr(loop, number) for loop in loops)
        assert not all(getattr(loop, number) for loop in loops)
    assert any(step.timeout_ms for step in steps if step.loop is not None)


def test_all_that_arca_definitions_bring_occurs() -> None:
    nets = [random_net(seed) for seed in range(400)]
    steps = [step for flow in nets for step in flow.steps.values()]
    fans = [step.fan for step in steps if step.fan is not None]
    decisions = [step.decision for step in steps if step.decision is not None]
    assert any(fan.targets for fan in fans)
    searched = [fan.targets.inputs for fan in fans if fan.targets is not None]
    assert {getattr(inputs, "text", None) for inputs in searched} == {None, "the offer", "no offer"}
    assert any(fan.rounds.attempts > 1 for fan in fans)
    assert {fan.keeps_targets for fan in fans} == {True, False}
    assert {decision.policy for decision in decisions} >= {*POLICIES}
    assert {decision.on_error for decision in decisions} == {"fail", "retry", "pause"}
    assert any(decision.source for decision in decisions)
    assert {step.on_failure for step in steps} == {"route", "skip", "pause", "abort_run"}
    assert any(step.work is not None and step.work.retry_timeouts for step in steps)
    assert {flow.policy.parallel_max for flow in nets} == {None, 1, 2, 3}


def test_simulation_reaches_every_kind_of_event_and_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds: Counter[str] = Counter()
    real = Audit.committed

    def committed(self: Audit, commit: Commit) -> list[Event]:
        events = real(self, commit)
        kinds.update(e.kind_of(event) for event in events)
        kinds.update(
            f"{event.gather[0]} {event.verdict}"
            for event in events
            if isinstance(event, e.GatherSettled)
        )
        kinds.update(_about_loops(events))
        return events

    monkeypatch.setattr(Audit, "committed", committed)
    every_kind = {str(kind.__struct_config__.tag) for kind in Event.__args__}
    verdicts = {"f closed", "f impossible", "f expired", "j closed", "j impossible", "b closed"}
    ends = {"loop complete", "loop partial", "loop failed", "queue_ttl", "queue_ttl again"}
    wanted = every_kind | verdicts | ends | {"unbegun", "put_back"}
    searched = (range(first, first + 100) for first in range(0, SEEDS_MAX, 100))
    for seeds in (KNOWN, *searched):
        simulate(random_net, seeds, patches=RANDOM_PATCHES)
        if wanted <= kinds.keys():
            return
    raise AssertionError(f"not reached: {wanted - kinds.keys()}")
