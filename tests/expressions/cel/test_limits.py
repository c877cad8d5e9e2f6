"""However an expression is written, its cost is bounded and its errors are its own."""

from __future__ import annotations

import time

import pytest

from anabranch.expressions.cel.cel import compile_cel
from anabranch.expressions.cel.cost import Prices, cost
from anabranch.expressions.cel.values import (
    CelLimitError,
    CelSyntaxError,
    check_lists,
    from_json,
    plain_of,
)


def test_a_source_of_1024_bytes_is_taken_and_one_more_is_not() -> None:
    at_limit = "1 + " * 100 + "1" + " " * (1024 - 401)
    assert compile_cel(at_limit).evaluate({}) == 101
    with pytest.raises(CelLimitError, match="1025 bytes"):
        compile_cel(at_limit + " ")
    with pytest.raises(CelLimitError, match="bytes"):
        compile_cel("'" + "é" * 512 + "'")


def test_the_number_of_nodes_is_limited() -> None:
    with pytest.raises(CelLimitError, match="more than 10 nodes"):
        compile_cel("1+1+1+1+1+1+1", nodes_max=10)
    assert compile_cel("1+1+1", nodes_max=5).evaluate({}) == 3


@pytest.mark.parametrize(
    "text",
    [
        "(" * 500 + "1" + ")" * 500, "[" * 500, "-" * 1000 + "a", "!" * 1000 + "a",
        "a" + ".a" * 500, "a" + "[0]" * 300, "f(" * 300, "a?" * 300, "a?b:" * 250 + "c",
        "1" + "+1" * 500, "a.map(x," * 100, "{1:" * 300,
    ],
)  # fmt: skip
def test_deep_nesting_is_refused_and_never_ends_in_a_recursion_error(text: str) -> None:
    with pytest.raises((CelLimitError, CelSyntaxError)):
        compile_cel(text)


def test_long_flat_conditions_are_no_problem() -> None:
    assert compile_cel("||".join(["a"] * 340)).evaluate({"a": False}) is False
    assert compile_cel("[0]" + ".map(x,x)" * 110).evaluate({}) == [0]
    assert compile_cel("&&".join(["a"] * 340)).evaluate({"a": True}) is True


@pytest.mark.parametrize(
    "text",
    [
        "l.all(a, l.all(b, l.all(c, l.all(d, true))))",
        "[s].map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a)"
        ".map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a)",
        "[l].map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a)",
        "quorum(t, 'lev', 1, 64)",
        "s.matches('(a|b|c|d|e|f|g|h|aa|ab|ac){1,90}!')",
    ],
)
def test_work_beyond_the_steps_is_cut_off_without_a_clock(text: str) -> None:
    names = {"l": list(range(64)), "s": "ab" * 4000, "t": ["x" * 250] * 64}
    began = time.thread_time()
    with pytest.raises(CelLimitError):
        compile_cel(text).evaluate(names)
    assert time.thread_time() - began < 10


def test_shared_values_nested_many_times_are_not_compared_for_ever() -> None:
    doubling = ".map(a, [a, a])" * 40
    text = f"[[0]]{doubling} == [[1]]{doubling}"
    with pytest.raises(CelLimitError):
        compile_cel(text).evaluate({})


def test_a_limit_is_not_absorbed_by_a_deciding_term() -> None:
    heavy = "l.all(a, l.all(b, l.all(c, l.all(d, true))))"
    with pytest.raises(CelLimitError):
        compile_cel(f"{heavy} || true").evaluate({"l": list(range(64))})


def test_a_list_from_outside_has_at_most_64_elements_however_deep() -> None:
    assert compile_cel("size(l)").evaluate({"l": [0] * 64}) == 64
    for value in ([0] * 65, {"a": {"b": [[0] * 65]}}):
        with pytest.raises(CelLimitError, match="at most 64"):
            compile_cel("size(l)").evaluate({"l": value})
    check_lists({"many": dict.fromkeys(map(str, range(1000)), 1)})  # mappings have no such limit


def test_deep_json_is_refused_on_the_way_in_and_on_the_way_out() -> None:
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    for take in (check_lists, from_json, plain_of):
        with pytest.raises(CelLimitError):
            take(deep)


PRICES = Prices(operator=600, function=800, matches=4000)


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("1", 0),
        ("A", 0),
        ("A + 1", 600),
        ("A > 1 && B > 1 && C", 2 * 600 + 2 * 600),
        ("max([A, B])", 800),
        ("A.matches('x')", 800 + 4000),
        ("matches(A, 'x')", 800 + 4000),
        ("A.matches('x') && A.matches('y')", 600 + 2 * 800 + 4000),  # the surcharge once
        ("[1, 2].map(x, B.matches('x'))", 800 + 2 * (600 + 800) + 4000),
        ("A ? 1 : -B", 600 + 600),
        ("resp.a.b[0]", 600),
        # range + one function + n * (going on + gathering + body) + result
        ("[1, 2, 3].all(x, x > A)", 800 + 3 * (800 + 600 + 600)),
        ("L.all(x, x > 1)", 800 + 64 * (800 + 600 + 600)),
        ("L.map(x, x)", 800 + 64 * 600),
        ("[1].map(x, x > 0, x)", 800 + 600 + 600 + 600),
        ("[1].exists_one(x, x > 0)", 800 + 1200 + 600 + 600),
        ("[1, 2].map(x, [1, 2].map(y, x))", 800 + 2 * (600 + 800 + 2 * 600)),
    ],
)
def test_the_static_cost_follows_the_price_list(text: str, price: int) -> None:
    assert cost(compile_cel(text).tree, PRICES) == price
