"""Every function and operator of CEL is paid for by the length of what it reads and makes."""

import pytest

from anabranch.expressions.cel.cel import EvaluationFrame, compile_cel
from anabranch.expressions.cel.functions import FREE, FUNCTIONS, IMPLEMENTATIONS, METHODS
from anabranch.expressions.cel.values import CelLimitError, plain_of

NAMES = {
    "t": "ab" * 200_000,
    "same": "ab" * 199_999 + "ab",
    "b": b"ab" * 200_000,
    "l": list(range(64)),
    "m": {f"key {n}": n for n in range(50_000)},
    "parts": ["ab" * 10_000 + str(n) for n in range(40)],
    "numbers": [float(n) for n in range(64)],
    "made": [0] * 500,
    "short": "a" * 2_400,
    "part": "a" * 600 + "b" + "a" * 600,
}

#: One call as an expression; 4,096 of them must be too many.
CASES = {
    "avg": "avg(numbers) > 0.0",
    "bytes": "size(bytes(t)) > 0",
    "consensus": "consensus(numbers, 'rel', 'mean', 0.1, 1) >= 0.0",
    "contains": "t.contains('x')",
    "cv": "cv(numbers) > 0.0",
    "dist": "dist('hamming', parts[0], parts[1]) > 0.0",
    "endsWith": "t.endsWith(same)",
    "join": "size(join(parts, '-')) > 0",
    "lowerAscii": "size(t.lowerAscii()) > 0",
    "mad": "mad(numbers) > 0.0",
    "matches": "'x'.matches('(a{30}){30}')",
    "max": "max(numbers) > 0.0",
    "median": "median(numbers) > 0.0",
    "min": "min(numbers) > 0.0",
    "quorum": "quorum(numbers, 'rel', 0.1, 1)",
    "startsWith": "t.startsWith(same)",
    "stdev": "stdev(numbers) > 0.0",
    "string": "size(string(b)) > 0",
    "sum": "sum(numbers) > 0.0",
    "unique": "size(unique(parts)) > 0",
    "upperAscii": "size(t.upperAscii()) > 0",
    "within": "within('eq', t, same, 0.1)",
}
OPERATORS = {
    "+": "size(t + t) > 0",
    "+ of lists": "size(made + made) > 0",
    "==": "t == same",
    "!=": "t != same",
    "<": "t < same",
    ">=": "t >= same",
    "in": "t in [same]",
    "loop over a map": "m.exists(k, true)",
    "short text": "short.contains(part)",
}


def test_every_function_is_free_or_has_a_case() -> None:
    assert set(IMPLEMENTATIONS) == FREE | set(CASES)
    assert set(FUNCTIONS) | set(METHODS) == set(IMPLEMENTATIONS)


@pytest.mark.parametrize("text", [*CASES.values(), *OPERATORS.values()])
def test_many_calls_are_more_than_one_evaluation_may_do(text: str) -> None:
    once = EvaluationFrame(NAMES)
    compile_cel(text).run(once)  # one is no problem
    loops = compile_cel(f"l.all(x, l.all(y, ({text}) || true))")
    with pytest.raises(CelLimitError, match="250,000 steps"):
        loops.evaluate_checked(NAMES)


def test_nested_search_in_a_megabyte_ends_after_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    import anabranch.expressions.cel.functions as functions

    searched: list[int] = []
    whole = functions.IMPLEMENTATIONS["contains"]

    def counted(spend: object, text: str, part: str) -> bool:
        searched.append(len(text))
        return bool(whole(spend, text, part))

    monkeypatch.setitem(functions.IMPLEMENTATIONS, "contains", counted)
    text = "a" * 1_000_000
    nested = compile_cel("l.all(x, l.all(y, !t.contains('ab')))")
    with pytest.raises(CelLimitError):
        nested.evaluate({"l": list(range(64)), "t": text})
    assert len(searched) < 20


def test_a_value_of_many_shared_texts_does_not_leave_an_expression() -> None:
    value = compile_cel("l.map(x, l.map(y, t))").evaluate_checked(NAMES)
    with pytest.raises(CelLimitError, match="too large"):
        plain_of(value)
