"""No document, however mangled, breaks the reader, the bill or the evaluation."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dialects.xrc137.gas import estimate
from anabranch.dialects.xrc137.read import read_rule
from seeds import examples

from .test_rules import FULL

WORDS = ["[A", "[Amount] +", "[Amount] * 2", "1/0", "0x12", "[[", "int64", "true"]
junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.sampled_from([*WORDS, {}, [], [1], {"a": 1}]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value inside."""
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    if isinstance(value, dict | list):
        for key, each in inner:
            found += places(each, (*path, key)) if isinstance(each, dict | list) else [(*path, key)]
    return found


PLACES = places(FULL)


def mangled(changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    document = json.loads(json.dumps(FULL))
    for path, value in changes:
        here = document
        try:
            for key in path[:-1]:
                here = here[key]
            here[path[-1]] = copy.deepcopy(value)  # the next change may go into it
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    return document


@settings(max_examples=examples(1_500), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), junk), min_size=1, max_size=4))
def test_a_mangled_document_is_read_or_refused_with_places(changes: Any) -> None:
    document, problems = read_rule(json.dumps(mangled(changes)))
    if document is None:
        assert any(problem.severity == "error" for problem in problems)
    else:
        assert estimate(document).worst_case >= 10_000
    assert all(problem.position.line == 1 and problem.message for problem in problems)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=30), st.binary(max_size=30)))
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    document, problems = read_rule(text)
    assert (document is None) == any(problem.severity == "error" for problem in problems)
