"""A no goes where somebody asked for it to go, and nowhere else, whatever else a run goes through.

The oracle is a twin of the playbook (`decision_features.py`) in which nobody is asked and the arcs
that the verdicts take are the only ones; with everything inline, one item a shard and no crash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from anabranch.kernel import stimuli as s
from anabranch.kernel.redrive import plan_redrive
from anabranch.runtime.live_run import history
from anabranch.testing import after, error, ok
from anabranch.testing.play import RUN
from anabranch.testing.scripted.played import Played
from seeds import part, seeds

from .decision_features import Asking, asking
from .support import AFTER, AMID, BEFORE, DyingTheatre
from .test_features_meet import EVENTS_MAX, outcome, played, stage_for

SEEDS, PARTS = 500, 4  # `tests/seeds.py` says how many of them are tried
INLINE = 10_000_000


def said(verdicts: Mapping[str, bool]) -> dict[str, Any]:
    no = error("rejected", "not like this")
    return {name: after(2, ok("yes") if yes else no) for name, yes in verdicts.items()}


def staged(made: Asking, verdicts: Mapping[str, bool], limit: int, size: Any) -> DyingTheatre:
    return stage_for(made.text, size, limit, decisions=said(verdicts))


def ran(stage: DyingTheatre) -> tuple[Played, DyingTheatre]:
    stage.begin(s.Start(run=RUN))
    return stage.perform(EVENTS_MAX), stage


def agrees(
    made: Asking, verdicts: Mapping[str, bool], found: tuple[Played, DyingTheatre], why: str
) -> None:
    """With the twin in everything but the decisions themselves, which end as was decided."""
    plain = played(made.twin(verdicts), shard_size=1)
    got, wanted = outcome(*found), outcome(*plain)
    decided = {name: got["steps"].pop(name) for name in verdicts if name in got["steps"]}
    for name, (status, runs, _) in decided.items():
        assert (status, runs) == ("done" if verdicts[name] else "failed", 1), why
        assert wanted["steps"].pop(name)[:2] == ("done", 1), why
    assert got["steps"] == wanted["steps"], why
    assert got["context"] == wanted["context"], why
    if Asking(made.text, dict(verdicts)).stops_at:
        assert got["status"] == "failed", why
        assert "not like this" in got["problem"]["message"], why
    else:
        assert (got["status"], got["result"]) == ("completed", wanted["result"]), why


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_a_no_takes_the_arcs_that_ask_for_it_and_no_other(number: int) -> None:
    for seed in part(number, PARTS, SEEDS):
        made, dice = asking(seed), Random(seed)
        limit, size = dice.choice((1, 60, INLINE)), dice.choice((None, 2, 1000))
        why = f"seed {seed}: {made.verdicts}, inline {limit}, shards of {size}"
        found, stage = ran(staged(made, made.verdicts, limit, size))
        agrees(made, made.verdicts, (found, stage), why)
        dying = staged(made, made.verdicts, limit, size)
        dying.dies_at, dying.place = (
            dice.randint(1, stage.commits),
            dice.choice((BEFORE, AFTER, AMID)),
        )
        agrees(made, made.verdicts, ran(dying), f"{why}, died {dying.place} {dying.dies_at}")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_a_redrive_asks_again_what_was_rejected(number: int) -> None:
    for seed in part(number, PARTS, SEEDS):
        made, dice = asking(seed), Random(f"redrive {seed}")
        if not made.stops_at:
            continue
        limit = dice.choice((1, 700, INLINE))
        why = f"seed {seed}: {made.verdicts}, inline {limit}"
        _, first = ran(staged(made, made.verdicts, limit, None))
        assert first.final is not None, why
        verdicts = {**made.verdicts, made.stops_at: True}
        stage = staged(made, verdicts, limit, None)
        for sha256, content in first.store._payloads.items():
            stage.store.put_payload(sha256, content)
        reuse = plan_redrive(stage.net, history(first.store.read(RUN))).reuse
        stage.begin(s.Start(run=RUN, input=first.final.workload, origin="before", reuse=reuse))
        agrees(made, verdicts, (stage.perform(EVENTS_MAX), stage), why)


def test_the_playbooks_reach_every_corner() -> None:
    tally: Counter[str] = Counter()
    for seed in seeds(1_000):
        made = asking(seed)
        tally["stops"] += bool(made.stops_at)
        tally["goes on after a no"] += not made.stops_at and not all(made.verdicts.values())
        tally["all are approved"] += all(made.verdicts.values())
    assert min(tally.values()) > len(seeds(1_000)) / 20, tally
