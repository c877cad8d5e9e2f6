"""Random nets: fixed by their seed, sound, and reaching everywhere."""

from __future__ import annotations

from collections import Counter

import pytest

from anabranch.kernel import events as e
from anabranch.kernel.events import Event
from anabranch.net.net import Net
from anabranch.store.ports import Commit
from anabranch.testing import simulate
from anabranch.testing.audit import Audit
from anabranch.testing.random_nets import RANDOM_PATCHES, random_net


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
        "fail",
        "retry",
        "pause",
    }
    assert {step.admission.on_deny for step in steps if step.admission} == {
        *("pending", "discard", "skip")
    }
    assert {step.barrier.need for step in steps if step.barrier} == {"reached", "all"}
    assert {flow.policy.on_failure for flow in nets} == {"fail", "handled", "partial"}
    assert {flow.policy.fail_fast for flow in nets} == {True, False}
    assert any(flow.policy.deadline_ms for flow in nets)
    assert any(flow.final for flow in nets)


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
        return events

    monkeypatch.setattr(Audit, "committed", committed)
    simulate(random_net, 400, patches=RANDOM_PATCHES)
    every_kind = {str(kind.__struct_config__.tag) for kind in Event.__args__}
    every_kind -= {kind for kind in every_kind if kind.startswith("loop.")}  # test_loops_in_plays
    verdicts = {"f closed", "f impossible", "f expired", "j closed", "j impossible", "b closed"}
    assert every_kind | verdicts <= kinds.keys()
