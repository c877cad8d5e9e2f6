"""Sessions come to what the plain oracle comes to: everything inline, no crash, nothing redriven.

Orchestrations are random, their rules are real (`rule_sessions.py`).
"""

from __future__ import annotations

from random import Random

import pytest

from anabranch.kernel import stimuli as s
from anabranch.kernel.redrive import plan_redrive
from anabranch.runtime.live_run import history
from anabranch.testing.play import RUN
from seeds import part
from testing.support import AFTER, AMID, BEFORE

from .rule_sessions import INLINE, outcome, played, session

SEEDS, PARTS = 400, 4  # `tests/seeds.py` says how many of them are tried


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_neither_size_nor_a_crash_nor_a_redrive_changes_what_a_session_comes_to(
    number: int,
) -> None:
    for seed in part(number, PARTS, SEEDS):
        made, dice = session(seed), Random(seed)
        wanted = outcome(*played(made))
        assert wanted["status"] == "completed", (seed, wanted)
        limit = dice.choice((1, 30, 300))
        why = f"seed {seed}: inline {limit}"
        found, stage = played(made, inline_bytes=limit)
        assert outcome(found, stage) == wanted, why
        assert stage.store._payloads or limit > 1, why
        dies_at, place = dice.randint(1, stage.commits), dice.choice((BEFORE, AFTER, AMID))
        died = played(made, inline_bytes=limit, dies_at=dies_at, place=place)
        assert outcome(*died) == wanted, f"{why}, died {place} {dies_at}"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_a_redriven_session_comes_to_what_one_without_the_abort_comes_to(number: int) -> None:
    for seed in part(number, PARTS, SEEDS):
        made, dice = session(seed), Random(f"redrive {seed}")
        wanted = outcome(*played(made))
        aborts, limit = dice.choice(list(made.structure)), dice.choice((1, 300, INLINE))
        why = f"seed {seed}: {aborts} was aborted, inline {limit}"
        found, first = played(made, inline_bytes=limit, aborts=aborts)
        assert found.step(aborts).status == "aborted", why
        reuse = plan_redrive(made.net, history(first.store.read(RUN))).reuse
        start = s.Start(run=RUN, input=made.given, origin="before", reuse=reuse)
        payloads = first.store._payloads
        again = played(made, inline_bytes=limit, start=start, payloads=payloads)
        assert outcome(*again) == wanted, why
