"""Break loops on purpose: the laws find it in a simulation, or the model does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import LawBroken
from anabranch.kernel import events as e
from anabranch.kernel import (
    evolve,
    evolve_jobs,
    evolve_loops,
    loops,
    redrive,
    reducers,
    step,
    tracker,
)
from anabranch.kernel.state import State
from anabranch.kernel.turn import FillLoop, Turn
from anabranch.testing import SimulationFailed, simulate
from anabranch.testing.random.nets import RANDOM_PATCHES, random_net

from ..test_loops_against_a_model import compare

Break = Callable[[pytest.MonkeyPatch], None]


def _count_twice(patch: pytest.MonkeyPatch) -> None:
    """A shard that comes back counts once more."""
    real = evolve_loops.shard_closed

    def closed(state: State, event: Any, answer: Any) -> None:
        real(state, event, answer)
        state.loops[event.loop].succeeded += event.fault is None

    patch.setattr(evolve, "shard_closed", closed)


def _forget_stopped_shards(patch: pytest.MonkeyPatch) -> None:
    """The items of a shard that was stopped are nowhere any more."""
    patch.setattr(evolve_jobs, "job_given_up", lambda tracker, job: tracker.in_flight.pop(job, 0))


def _forget_second_tries(patch: pytest.MonkeyPatch) -> None:
    """Items that may be tried again are not."""
    patch.setattr(evolve_loops, "_once_more", lambda _tracker, _shard, _only: None)


def _begin_twice(patch: pytest.MonkeyPatch) -> None:
    """A shard that a reader found stays where it was after it has begun."""
    real = evolve_loops.shard_begun

    def begun(tracker: Any, job: str, shard: Any) -> None:
        ready = list(tracker.ready)
        real(tracker, job, shard)
        tracker.ready = ready

    patch.setattr(evolve, "shard_begun", begun)


def _one_too_many(patch: pytest.MonkeyPatch) -> None:
    """One shard more than the window allows."""

    def fill(turn: Turn, item: FillLoop) -> None:
        token = turn.state.tokens.get(item.token)
        tracker = turn.state.loops.get(token.loop) if token is not None else None
        if tracker is None:
            return
        tracker.window += 1
        loops.fill_loop(turn, item)
        tracker.window -= 1

    patch.setitem(step._AGENDA, FillLoop, fill)


def _settle_early(patch: pytest.MonkeyPatch) -> None:
    """A loop is taken for over while shards are out."""
    patch.setattr(loops, "over", lambda tracker: tracker.exhausted and not tracker.ready)


def _always_complete(patch: pytest.MonkeyPatch) -> None:
    """Failures do not count."""
    patch.setattr(loops, "verdict", lambda _tracker, _partial, _allowed: "complete")


def _wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks at how long a shard waits for a worker."""
    patch.setattr(evolve, "queue_time_runs", lambda _state, _job, _at: None)


def _believe_stale_readers(patch: pytest.MonkeyPatch) -> None:
    """Every reading of a collection is the first."""
    real = evolve._TABLE[e.LoopCutting]

    def cutting(state: State, event: Any, at: int) -> None:
        real(state, event, at)
        state.jobs[event.job].attempt = 1

    patch.setitem(evolve._TABLE, e.LoopCutting, cutting)


def _redrive_what_is_done(patch: pytest.MonkeyPatch) -> None:
    """A redriven loop takes what failed for finished, and tries it all the same."""
    patch.setattr(redrive, "_without", lambda done, _failed: done)


@pytest.mark.parametrize(
    "break_it",
    [
        _count_twice,
        _forget_stopped_shards,
        _forget_second_tries,
        _begin_twice,
        _one_too_many,
        _settle_early,
        _always_complete,
        _wait_for_ever,
        _believe_stale_readers,
        _redrive_what_is_done,
    ],
)
def test_a_defect_of_loops_breaks_a_law_within_300_seeds(
    break_it: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    with pytest.raises(SimulationFailed) as found:
        simulate(random_net, 300, patches=RANDOM_PATCHES)
    monkeypatch.undo()
    simulate(random_net, [found.value.seed], patches=RANDOM_PATCHES)


def _lose_a_part(patch: pytest.MonkeyPatch) -> None:
    """What a shard shared is kept only when it is the first."""
    patch.setattr(reducers, "fold", lambda into, key, value, _r: into.setdefault(key, value))


def _nest_what_was_appended(patch: pytest.MonkeyPatch) -> None:
    """The lists of the shards are appended as they are."""

    def fold(into: dict[str, Any], key: str, value: Any, reducer: Any) -> None:
        evolve_loops_fold(into, key, [value] if reducer == "append" else value, reducer)

    evolve_loops_fold = reducers.fold
    patch.setattr(reducers, "fold", fold)


def _tolerate_one_more(patch: pytest.MonkeyPatch) -> None:
    real = tracker.tolerated
    patch.setattr(loops, "tolerated", lambda *given: real(*given) + 1)


def _shuffle_results(patch: pytest.MonkeyPatch) -> None:
    """Results stand in the order in which they came."""
    flat: Any = lambda parts, _until: [  # noqa: E731
        value for _, part in parts for value in (part.values() if isinstance(part, dict) else part)
    ]
    patch.setattr(evolve_loops, "in_order", flat)


def _try_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A second try does not count as one."""
    real = evolve_loops._once_more

    def once_more(tracker: Any, shard: Any, only: Any) -> None:
        real(tracker, shard, only)
        last = tracker.again[-1]
        tracker.again[-1] = type(last)(0, last.first, last.count, last.cursor, last.only, 3)

    patch.setattr(evolve_loops, "_once_more", once_more)


@pytest.mark.parametrize(
    "break_it",
    [
        _lose_a_part,
        _nest_what_was_appended,
        _tolerate_one_more,
        _shuffle_results,
        _try_for_ever,
    ],
)
def test_a_defect_that_breaks_no_law_differs_from_the_model(
    break_it: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    with pytest.raises((AssertionError, LawBroken)):
        _compare_many()


def _compare_many() -> None:
    for seed in range(300):
        compare(seed)
