"""Random playbooks: fixed by their seed, clean, reaching everywhere, and sound under faults."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from anabranch.kernel import events as e
from anabranch.net.net import Step
from anabranch.net.program import Iteration, Program
from anabranch.operations.definitions.prepare import check
from anabranch.store.ports import Commit
from anabranch.testing import error, play, simulate
from anabranch.testing.random.nets import RANDOM_PATCHES
from anabranch.testing.random.playbooks import random_playbook, random_playbook_net
from anabranch.testing.simulated.audit import Audit
from seeds import seeds

FAILURE = re.compile("failure-goes-on.*step '(\\w+)' fails the run goes on to '(\\w+)'")
SEEDS = seeds(600, least=200)  # fewer would not meet every event that is looked for


def _program(step: Step) -> Program | None:
    program = step.work.program if step.work is not None else None
    return program.program if isinstance(program, Iteration) else program


def test_a_seed_gives_the_same_text() -> None:
    texts = [random_playbook(seed) for seed in range(100)]
    assert [random_playbook(seed) for seed in range(100)] == texts
    assert len(set(texts)) == 100


def test_every_text_is_canonical_and_compiles() -> None:
    for seed in range(200):
        problems = check(random_playbook(seed)).problems
        wrong = [one for one in problems if one.severity == "error" or one.code == "old-spelling"]
        assert wrong == [], f"random_playbook({seed})"


def test_all_parts_of_a_playbook_occur() -> None:
    nets = [random_playbook_net(seed) for seed in range(200)]
    steps = [step for net in nets for step in net.steps.values()]
    loops = [step.loop for step in steps if step.loop is not None]
    programs = [program for step in steps if (program := _program(step)) is not None]
    controls = {rule.do for one in programs for task in one.tasks for rule in task.rules}
    assert {loop.mode for loop in loops} == {"local", "fanout"}
    assert any(loop.queue_ttl_ms for loop in loops)
    assert any(loop.reducers for loop in loops)
    assert controls == {"continue", "retry", "jump", "break", "fail"}
    assert any(len(one.tasks) > 1 for one in programs)
    assert any(step.barrier for step in steps)
    assert any(step.admission for step in steps)
    assert {branch.mode for step in steps for branch in step.branches} == {"exclusive", "inclusive"}
    assert any(net.final for net in nets)


def test_a_failure_that_goes_on_does_so_unless_the_playbook_stops() -> None:
    """What `check` says of a step is what happens when it fails: its first arc is taken."""
    told = 0
    for seed in range(200):
        text = random_playbook(seed)
        for name, target in FAILURE.findall("\n".join(map(str, check(text).problems))):
            played = play(text, start=name, script={name: error("schema")}, limit=20_000)
            if list(played.step(name).statuses[:1]) == ["failed"]:
                told += 1
                assert target in played.steps, f"random_playbook({seed}), {name}"
        stopping = re.sub('"on_failure": "[a-z]+"', '"on_failure": "stop"', text)
        assert not FAILURE.search("\n".join(map(str, check(stopping).problems)))
    assert told > 20


def test_hundreds_of_playbooks_keep_every_law_under_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: Counter[str] = Counter()
    real = Audit.committed

    def committed(self: Audit, commit: Commit) -> list[e.Event]:
        events = real(self, commit)
        kinds.update(
            f"loop {event.status}" if isinstance(event, e.LoopSettled) else e.kind_of(event)
            for event in events
        )
        return events

    monkeypatch.setattr(Audit, "committed", committed)
    sums = simulate(random_playbook_net, SEEDS, patches=RANDOM_PATCHES)
    assert sums.seeds == len(SEEDS)
    assert sums.crashes > len(SEEDS) / 6
    assert {"loop complete", "loop partial", "loop failed", "loop.stopped"} <= kinds.keys()
    assert {"loop.cut", "job.lost", "job.retrying", "context.patched"} <= kinds.keys()


def test_the_same_seed_gives_the_same_run() -> None:
    """Also where shards choose their size by time: it is virtual time that counts."""
    one = simulate(random_playbook_net, 60, patches=RANDOM_PATCHES)
    other = simulate(random_playbook_net, 60, patches=RANDOM_PATCHES)
    assert (one.events, one.turns, one.faults) == (other.events, other.turns, other.faults)
