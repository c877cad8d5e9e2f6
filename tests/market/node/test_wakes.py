"""Instants of open things: the earliest first, as a plain dictionary would say it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.market.node.wakes import SPARE, Key, Wakes

KEYS = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", "z"]))
INSTANTS = st.one_of(st.none(), st.integers(0, 9))


@settings(max_examples=60)
@given(st.lists(st.tuples(KEYS, INSTANTS, st.integers(-1, 10)), max_size=60))
def test_what_is_due_is_what_a_dictionary_says(steps: list[tuple[Key, int | None, int]]) -> None:
    wakes, model = Wakes(), dict[Key, int]()
    for key, at, now in steps:
        wakes.put(key, at)
        model.pop(key, None)
        if at is not None:
            model[key] = at
        due = [key for at, key in sorted((at, key) for key, at in model.items()) if at <= now]
        assert wakes.due(now) == due
        assert wakes.due(now) == due, "asking takes nothing away"
        assert wakes.first() == min(model.values(), default=None)


def test_instants_that_are_put_off_again_and_again_do_not_pile_up() -> None:
    wakes = Wakes()
    for at in range(10_000):
        wakes.put(("session", "s"), at)
    assert len(wakes._heap) <= SPARE + 2
    assert wakes.first() == 9_999
