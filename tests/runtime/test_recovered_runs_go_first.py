"""What recovered runs wait for is turned before the next steps of others, which go on as well."""

from __future__ import annotations

from random import Random

from anabranch.kernel import stimuli as s
from anabranch.operations.definitions.prepare import compiler
from anabranch.runtime.core import RECOVERED_MAX, TURN_MAX, Core
from anabranch.runtime.effects import Replied
from anabranch.runtime.nets import Nets
from anabranch.store.memory.store import MemoryStore
from anabranch.testing.virtual.one_lane import OneLane
from anabranch.testing.virtual.world import UNLIMITED

from .support import KINDS

OTHERS = 100_000  # their tickets begin there


class Waiting:
    """A core for which stimuli wait: so many of others, and so many for recovered runs."""

    def __init__(self, others: int, recovered: int) -> None:
        store = MemoryStore()
        self.core = Core(store, Nets(store, compiler(KINDS)), OneLane(UNLIMITED, Random(1)))
        for ticket in range(OTHERS, OTHERS + others):
            self._offer(ticket)
        for ticket in range(1, recovered + 1):
            self._offer(ticket)
        self.core.bring_forward(recovered)

    def _offer(self, ticket: int) -> None:
        """For a run that does not exist: the reply tells in which turn it was taken."""
        self.core.offer(f"run-{ticket}", s.Tick(), ticket=ticket)

    def turn(self) -> list[int]:
        effects = self.core.turn(1).effects
        return [effect.ticket for effect in effects if isinstance(effect, Replied)]


def test_the_stimuli_of_recovered_runs_are_taken_first_and_in_their_order() -> None:
    waiting = Waiting(others=5, recovered=5)
    assert waiting.core.inbox == 10
    assert waiting.core.busy
    assert waiting.turn() == [*range(1, 6), *range(OTHERS, OTHERS + 5)]
    assert not waiting.core.busy


def test_others_keep_a_part_of_every_turn() -> None:
    waiting = Waiting(others=TURN_MAX, recovered=2 * TURN_MAX)
    taken = waiting.turn()
    assert len(taken) == TURN_MAX
    assert sum(ticket >= OTHERS for ticket in taken) == TURN_MAX - RECOVERED_MAX


def test_without_others_recovered_runs_have_all_of_a_turn() -> None:
    waiting = Waiting(others=0, recovered=2 * TURN_MAX)
    assert waiting.turn() == list(range(1, TURN_MAX + 1))


def test_what_waits_for_recovered_runs_is_forgotten_with_them() -> None:
    """They are recovered again, by whichever server has them then."""
    waiting = Waiting(others=0, recovered=3)
    assert waiting.core.runs_in_hand == {"run-1", "run-2", "run-3"}
    waiting.core.forget_turn()
    assert not waiting.core.inbox
    assert not waiting.core.busy
