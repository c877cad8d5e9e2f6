"""A secret changes what is shown, never what is decided, whatever else a run goes through.

Playbooks are random (`secret_features.py`), and so are their secrets: words of one to seven
characters that are in the data and in its keys, long ones that are, and long ones that are not.
The oracle has no keychain, everything inline, one item a shard and no crash. What a step that looks
up no secret comes to is the same to the byte, so every guard takes the same arc; what the others
come to is what the rule of the documentation makes of it, and the run says where there are stars.
"""

from __future__ import annotations

import logging
from collections import Counter
from random import Random
from typing import Any

import pytest

from anabranch.kernel import stimuli as s
from anabranch.kernel.redrive import plan_redrive
from anabranch.runtime.live_run import history
from anabranch.runtime.values.payloads import resolve
from anabranch.runtime.values.sealing import marks_of
from anabranch.testing.play import RUN
from anabranch.testing.scripted.played import Played
from seeds import part, seeds

from .secret_features import Guarded, PlainStage, SecretStage, guarded, recorded
from .support import AFTER, AMID, BEFORE, DyingTheatre
from .test_features_meet import EVENTS_MAX, outcome

SEEDS, PARTS = 500, 4  # `tests/seeds.py` says how many of them are tried
INLINE = 10_000_000


@pytest.fixture(autouse=True)
def no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """That secrets are short is said of nearly every playbook here."""
    caplog.set_level(logging.ERROR, "anabranch")


def wanted_of(made: Guarded) -> dict[str, Any]:
    stage = PlainStage(made)
    stage.begin(s.Start(run=RUN))
    found = outcome(stage.perform(EVENTS_MAX), stage)
    assert found["status"] == "completed", found["problem"]
    return {**found, "redacted": stage.redacted}


def kept(
    made: Guarded, *, inline_bytes: int, dies_at: int = 0, place: str = BEFORE, fails: str = ""
) -> tuple[Played, SecretStage]:
    stage = stage_for(made, inline_bytes)
    stage.dies_at, stage.place, stage.fails = dies_at, place, fails
    stage.begin(s.Start(run=RUN, input=made.input))
    return stage.perform(EVENTS_MAX), stage


def stage_for(made: Guarded, inline_bytes: int) -> SecretStage:
    kind = type("Stage", (SecretStage,), {"inline_bytes_max": inline_bytes})
    stage: SecretStage = kind(made)
    return stage


def seen(play: Played, stage: DyingTheatre) -> dict[str, Any]:
    return {**outcome(play, stage), "redacted": set(play.state.redacted)}


def shows_none(made: Guarded, stage: SecretStage, why: str) -> None:
    """Nothing that is recorded has a secret of eight characters or more that is no word of the
    data."""
    said = recorded(stage).lower()
    for secret in made.unheard:
        assert secret.encode() not in said, f"{why}: {secret}"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_secrets_change_nothing_but_what_was_given_them(number: int) -> None:
    for seed in part(number, PARTS, SEEDS):
        made, dice = guarded(seed), Random(seed)
        wanted, limit = wanted_of(made), dice.choice((1, 60, 700, INLINE))
        found, stage = kept(made, inline_bytes=limit)
        why = f"seed {seed}: inline {limit}, secrets {made.secrets}"
        assert seen(found, stage) == wanted, why
        shows_none(made, stage, why)
        dies_at, place = dice.randint(1, stage.commits), dice.choice((BEFORE, AFTER, AMID))
        died = kept(made, inline_bytes=limit, dies_at=dies_at, place=place)
        assert seen(*died) == wanted, f"{why}, died {place} {dies_at}"
        shows_none(made, died[1], why)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_a_redrive_of_a_run_with_secrets_comes_to_what_one_without_the_failure_comes_to(
    number: int,
) -> None:
    for seed in part(number, PARTS, SEEDS):
        made, dice = guarded(seed), Random(f"redrive {seed}")
        if not made.text.brittle:
            continue
        fails, limit = dice.choice(made.text.brittle), dice.choice((1, 700, INLINE))
        why = f"seed {seed}: {fails} failed, inline {limit}, secrets {made.secrets}"
        _, first = kept(made, inline_bytes=limit, fails=fails)
        shows_none(made, first, why)
        again, stage = redriven(made, first, limit)
        assert seen(again, stage) == wanted_of(made), why
        shows_none(made, stage, why)


def redriven(made: Guarded, before: SecretStage, limit: int) -> tuple[Played, SecretStage]:
    """The run once more, with what may be reused of the first."""
    stage = stage_for(made, limit)
    for sha256, content in before.store._payloads.items():
        stage.store.put_payload(sha256, content)
    assert before.final is not None
    reuse = plan_redrive(stage.net, history(before.store.read(RUN))).reuse
    hidden = {name: before.final.workload[name] for name in made.input}
    shown = resolve(hidden, before.store.payload)
    workload = {**before.final.workload, **shown}
    start = s.Start(run=RUN, input=workload, origin="before", reuse=reuse)
    marks: dict[str, str] = {}
    for name, secret in made.input.items():
        marks |= marks_of(name, workload[name], secret)
    stage.begin(start, marks)
    return stage.perform(EVENTS_MAX), stage


def test_the_playbooks_reach_every_corner() -> None:
    """Or the tests above would compare little."""
    tally: Counter[str] = Counter()
    for seed in seeds(600):
        made = guarded(seed)
        stage = PlainStage(made)
        stage.begin(s.Start(run=RUN))
        said = str(outcome(stage.perform(EVENTS_MAX), stage))
        tally["has stars"] += "***" in said
        tally["says a secret all the same"] += any(
            len(each) < 8 and f"{each} " in said for each in made.secrets.values()
        )
        tally["is given none"] += not made.given
        tally["is given as input"] += bool(made.input)
        tally["nobody may hear"] += bool(made.unheard)
        tally["whole mappings go"] += "'book': '***'" in said
    for corner, count in tally.items():
        assert count > len(seeds(600)) / 30, (corner, tally)
