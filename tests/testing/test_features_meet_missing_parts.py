"""A run that is opened for a while by an engine without its parts comes to what it comes to anyway.

Texts are random (`features.py`). The engine dies at some commit; the one that comes first lacks a
tool or a secret of the run, and whatever is due or said meanwhile, it records nothing; the next one
has everything.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from anabranch.errors import MissingRequirements
from anabranch.kernel import stimuli as s
from anabranch.operations.definitions.available import ENGINE_KINDS
from anabranch.operations.definitions.preflight import Available, Preflight
from anabranch.runtime.core import Core
from anabranch.runtime.recovery import recover
from anabranch.testing import ok
from anabranch.testing.play import RUN
from anabranch.testing.scripted.definitions import compiled
from anabranch.testing.scripted.script import Script, Scripts
from seeds import SHARE, part

from .features import Text, random_text
from .support import AFTER, AMID, BEFORE, DyingTheatre
from .test_features_meet import EVENTS_MAX, answer, outcome, played

SEEDS, PARTS = 400 if SHARE < 1 else 2_000, 4  # of which a test run takes a part
VARIABLE = "FEATURES_TEST_SECRET"
HOUR_MS = 3_600_000


class LackingTheatre(DyingTheatre):
    """Before the next engine comes up, one does that lacks what the run needs."""

    lacks: Preflight
    left_alone = 0

    def come_up(self, snapshot_every: int = 200) -> None:
        if (head := self.store.head(RUN)) is not None and not head.finished:
            self._open_without_parts()
        super().come_up(snapshot_every)

    def _open_without_parts(self) -> None:
        before = self._recorded()
        core = self.new_core()
        core.on_defect = lambda _run, _defect: None
        core.require = self.lacks.require_for
        recover(core, self.clock.now())
        if "call" not in (self.lacks.available.kinds or ()):  # told before anything wakes it
            assert [*core.broken, *core.lacking] == [RUN]
        core.offer(RUN, s.Cancel("somebody"))  # also brings back a run that only waits
        self._turn_for_a_while(core)
        assert isinstance(core.broken[RUN], MissingRequirements)
        assert not core.lacking  # nobody is counted twice
        assert self._recorded() == before
        self.left_alone += 1

    def _turn_for_a_while(self, core: Core) -> None:
        for later in (0, HOUR_MS):
            turned = core.turn(self.clock.now() + later)
            assert not turned.batch.commits

    def _recorded(self) -> list[Any]:
        rows = [(row.first_seq, row.events) for row in self.store.read(RUN)]
        return [self.store.head(RUN), *rows]


def with_a_secret(seed: int) -> Text:
    text = random_text(seed)
    text.definition["keychain"] = [{"name": "pw", "kind": "env", "variable": VARIABLE}]
    return text


def lacking(text: Text, dice: Random) -> Preflight:
    """Without the tool where the text uses it, or without its secret, which is nowhere set."""
    if text.brittle and dice.random() < 0.5:
        return Preflight(Available(kinds=ENGINE_KINDS))
    return Preflight(Available(kinds=(*ENGINE_KINDS, "call")))


def stage_for(text: Text, inline_bytes: int, shard_size: Any, lacks: Preflight) -> LackingTheatre:
    net = compiled(text.source(shard_size), tools=["call"])
    kind = type("Stage", (LackingTheatre,), {"inline_bytes_max": inline_bytes, "lacks": lacks})
    answers = Script(net, text.script(answer))
    decisions = Script(net, dict.fromkeys(text.decisions, ok("yes")), "decisions")
    made: LackingTheatre = kind(net, Scripts(answers, decisions))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_an_engine_without_the_parts_of_a_run_changes_nothing_in_it(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    opened = 0
    for seed in part(number, PARTS, SEEDS):
        text, dice = with_a_secret(seed), Random(seed)
        plain, stage = played(text, shard_size=1)
        wanted = outcome(plain, stage)
        limit, size = dice.choice((1, 700, 10_000_000)), dice.choice((None, 2, 1000))
        again = stage_for(text, limit, size, lacking(text, dice))
        again.dies_at, again.place = (
            dice.randint(1, stage.commits),
            dice.choice((BEFORE, AFTER, AMID)),
        )
        again.begin(s.Start(run=RUN))
        found = again.perform(EVENTS_MAX)
        assert outcome(found, again) == wanted, f"seed {seed}: died {again.place} {again.dies_at}"
        opened += again.left_alone
    assert opened > 0
