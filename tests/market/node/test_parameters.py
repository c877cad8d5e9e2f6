"""Names in paths and parameters of queries: what is taken, and what is refused by its name."""

from __future__ import annotations

import pytest

from anabranch.market.node.errors import NodeError
from anabranch.market.node.parameters import ID_MAX, TEXT_MAX, read_names, require_query

PATH = "/v1/executions"
KNOWN = ("open", "limit", "run_id", "source")


@pytest.mark.parametrize(
    ("part", "text"),
    [("a", "a"), ("a%2Fb", "a/b"), ("%C3%A9", "é"), ("a%20b", "a b"), ("x" * ID_MAX, "x" * ID_MAX)],
)
def test_a_name_in_a_path_is_read_as_it_was_meant(part: str, text: str) -> None:
    assert read_names({"execution": part}) == {"execution": text}


@pytest.mark.parametrize("part", ["%FF", "%00", "a%0Ab", "%E2%80%AE", "x" * (ID_MAX + 1)])
def test_what_can_be_no_id_is_refused(part: str) -> None:
    with pytest.raises(NodeError, match="`execution`") as caught:
        read_names({"execution": part})
    assert (caught.value.status, caught.value.code) == (400, "bad_path")


@pytest.mark.parametrize(
    ("name", "text"),
    [("open", "true"), ("limit", "1"), ("limit", "500"), ("run_id", ""), ("source", "all")],
)
def test_parameters_that_are_known_are_taken(name: str, text: str) -> None:
    require_query(PATH, KNOWN, {name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("opne", "true"), ("before", "x")),  # misspelt; known, but not here
        *(("open", "True"), ("open", ""), ("source", "mine")),
        *(("limit", "0"), ("limit", "501"), ("limit", "-1"), ("limit", "١"), ("limit", "9" * 5000)),
        *(("run_id", "x" * (TEXT_MAX + 1)), ("run_id", "a\x00")),
    ],
)
def test_other_parameters_are_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(NodeError, match=f"`{name}`") as caught:
        require_query(PATH, KNOWN, {name: text})
    assert (caught.value.status, caught.value.code) == (400, "bad_query")
