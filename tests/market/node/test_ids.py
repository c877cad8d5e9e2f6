"""Derived ids: the same parts give the same id, and no other parts do."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.market.node.ids import derived

PARTS = st.lists(st.text(st.sampled_from("ab:/é\0"), max_size=3), max_size=4)


def test_the_place_where_one_part_ends_and_the_next_begins_counts() -> None:
    ids = {
        derived("d", "ab", "c"),
        derived("d", "a", "bc"),
        derived("d", "abc"),
        derived("d", "abc", ""),
        derived("d", "", "abc"),
        derived("da", "b", "c"),
        derived("e", "ab", "c"),
    }
    assert len(ids) == 7


@settings(max_examples=200, deadline=None)
@given(PARTS, PARTS)
def test_ids_are_equal_where_the_parts_are(one: list[str], other: list[str]) -> None:
    assert (derived("d", *one) == derived("d", *other)) == (one == other)
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", derived("d", *one))
