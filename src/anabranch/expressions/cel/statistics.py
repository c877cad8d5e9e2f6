"""Numbers of many sources: distances, averages, quorum and consensus.

A list that is empty or holds something that is no number has the statistics 0.0. A distance of
values that a metric cannot measure (a text where a number is needed) is an error; where many
sources are asked whether they agree, such a value agrees with none of the others. Texts that have
no distance (of different length for `hamming`, too long for `lev`) are 1e18 apart: far away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from anabranch.expressions.cel.operators import Spend, as_double, equal
from anabranch.expressions.cel.values import NUMBERS, WHOLE, CelEvalError, kind_of

FAR: Final = 1e18
_LEVENSHTEIN_MAX = 256


def numeric(value: Any) -> bool:
    return type(value) in NUMBERS


def the_list(value: Any, function: str) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    raise CelEvalError(f"{function} takes a list, not {kind_of(value)}")


def _doubles(value: Any, function: str) -> list[float]:
    """The numbers, or nothing when one of them is none."""
    items = the_list(value, function)
    return [as_double(item) for item in items] if all(map(numeric, items)) else []


def _middle(numbers: list[float]) -> float:
    ordered = sorted(numbers)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _mean(numbers: list[float]) -> float:
    return _total(numbers) / len(numbers)


def _total(numbers: list[float]) -> float:
    """The same in whatever order the sources are named, as far as doubles allow."""
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):
        return sum(numbers)


def _deviation(numbers: list[float]) -> float:
    mean = _mean(numbers)
    return math.sqrt(_total([(each - mean) * (each - mean) for each in numbers]) / len(numbers))


def _variation(numbers: list[float]) -> float:
    mean = _mean(numbers)
    return 0.0 if mean == 0 else _deviation(numbers) / abs(mean)


def _median_deviation(numbers: list[float]) -> float:
    middle = _middle(numbers)
    return _middle([abs(each - middle) for each in numbers])


_STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "max": max,
    "min": min,
    "sum": _total,
    "avg": _mean,
    "median": _middle,
    "stdev": _deviation,
    "cv": _variation,
    "mad": _median_deviation,
}


def statistic(name: str) -> Callable[[Spend, Any], float]:
    """One of max min sum avg median stdev cv mad."""
    work = _STATISTICS[name]

    def apply(spend: Spend, values: Any) -> float:
        spend(len(the_list(values, name)))
        numbers = _doubles(values, name)
        return work(numbers) if numbers else 0.0

    return apply


# -- distances -------------------------------------------------------------------------------


def relative(left: float, right: float) -> float:
    mean = abs(left + right) / 2
    if mean == 0:
        return 0.0 if left == right else FAR
    return abs(left - right) / mean


def _hamming(spend: Spend, left: str, right: str) -> float:
    """The share of the characters that differ."""
    if len(left) != len(right):
        return FAR
    spend(len(left))
    return sum(a != b for a, b in zip(left, right, strict=True)) / max(1, len(left))


def _levenshtein(spend: Spend, left: str, right: str) -> float:
    """The edits from one to the other, as a share of the longer one."""
    longer = max(len(left), len(right))
    if longer > _LEVENSHTEIN_MAX:
        return FAR
    spend(1 + len(left) * len(right))
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            cost = min(row[j] + 1, row[j - 1] + 1, before + (a != b))
            before, row[j] = row[j], cost
    return row[-1] / max(1, longer)


def _on_numbers(work: Callable[[float, float], float]) -> Callable[[Spend, Any, Any], float]:
    def apply(spend: Spend, left: Any, right: Any) -> float:
        spend(1)
        return work(as_double(left), as_double(right))

    return apply


def _different(spend: Spend, left: Any, right: Any) -> float:
    return 0.0 if equal(left, right, spend) else 1.0


class Metric(msgspec.Struct, frozen=True):
    work: Callable[[Spend, Any, Any], float]
    measures: Callable[[Any], bool]  # whether it can measure a value
    wants: str  # what it can measure, for messages

    def distance(self, spend: Spend, left: Any, right: Any) -> float:
        for value in (left, right):
            if not self.measures(value):
                raise CelEvalError(f"this metric takes {self.wants}, not {kind_of(value)}")
        return self.work(spend, left, right)

    def apart(self, spend: Spend, left: Any, right: Any) -> float:
        """The distance among many: one source that says nonsense must not silence the others."""
        if self.measures(left) and self.measures(right):
            return self.work(spend, left, right)
        spend(1)
        return FAR


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_RELATIVE: Final = Metric(_on_numbers(relative), numeric, "numbers")
_ABSOLUTE: Final = Metric(_on_numbers(lambda left, right: abs(left - right)), numeric, "numbers")
_EQUAL: Final = Metric(_different, lambda _value: True, "anything")
_HAMMING: Final = Metric(_hamming, _is_text, "texts")
_LEVENSHTEIN: Final = Metric(_levenshtein, _is_text, "texts")
METRICS: Final[dict[str, Metric]] = {
    "": _RELATIVE, "rel": _RELATIVE, "relative": _RELATIVE, "reldiff": _RELATIVE,
    "abs": _ABSOLUTE, "absolute": _ABSOLUTE,
    "eq": _EQUAL, "equal": _EQUAL,
    "hamming": _HAMMING, "ham": _HAMMING,
    "lev": _LEVENSHTEIN, "levenshtein": _LEVENSHTEIN,
}  # fmt: skip


def metric_of(name: Any) -> Metric:
    found = METRICS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise CelEvalError("unknown metric; known are rel, abs, eq, hamming, lev")
    return found


def _tolerance(value: Any) -> float:
    if not numeric(value) or not value >= 0:
        raise CelEvalError("the tolerance must be a number of at least 0")
    return as_double(value)


def dist(spend: Spend, metric: Any, left: Any, right: Any) -> float:
    return metric_of(metric).distance(spend, left, right)


def within(spend: Spend, metric: Any, left: Any, right: Any, tolerance: Any) -> bool:
    return metric_of(metric).distance(spend, left, right) <= _tolerance(tolerance)


def relative_difference(spend: Spend, left: Any, right: Any) -> float:
    if not numeric(left) or not numeric(right):
        raise CelEvalError(f"relDiff takes numbers, not {kind_of(left)} and {kind_of(right)}")
    return _RELATIVE.distance(spend, left, right)


# -- agreement -------------------------------------------------------------------------------

Near = list[list[bool]]


def _largest_ball(near: Near) -> list[int]:
    """Around the element with most others near it; of several the earliest."""
    best: list[int] = []
    for row in near:
        members = [index for index, inside in enumerate(row) if inside]
        if len(members) > len(best):
            best = members
    return best


def _largest_clique(near: Near) -> list[int]:
    """All pairs near each other. Greedy in the order of the list from each element in turn; the
    largest wins, of several the earliest."""
    best: list[int] = []
    for start in range(len(near)):
        members = [start]
        for other in range(len(near)):
            if other != start and all(near[other][member] for member in members):
                members.append(other)
        if len(members) > len(best):
            best = sorted(members)
    return best


_MODES: dict[str, Callable[[Near], list[int]]] = {
    "ball": _largest_ball,
    "pairwise": _largest_clique,
    "clique": _largest_clique,
}


def _agreeing(
    spend: Spend, values: Sequence[Any], metric: Any, mode: Any, tolerance: Any, k: Any
) -> list[Any]:
    """The largest group that agrees, or nothing when it has fewer than k members."""
    distance = metric_of(metric).apart
    limit = _tolerance(tolerance)
    grouped = _MODES.get(mode.lower()) if isinstance(mode, str) else None
    if grouped is None:
        raise CelEvalError("unknown mode; known are ball, pairwise, clique")
    whole = type(k) in WHOLE or (type(k) is float and k.is_integer())
    if not whole or k < 1:
        raise CelEvalError("k must be a whole number of at least 1")
    count = len(values)
    spend(count * count * (count if grouped is _largest_clique else 1) // 4)
    near = [[True] * count for _ in values]
    for i in range(count):
        for j in range(i):
            near[i][j] = near[j][i] = distance(spend, values[i], values[j]) <= limit
    members = grouped(near)
    return [values[index] for index in members] if len(members) >= k else []


def quorum(spend: Spend, values: Any, metric: Any, *rest: Any) -> bool:
    mode, tolerance, k = rest if len(rest) == 3 else ("ball", *rest)
    return bool(_agreeing(spend, the_list(values, "quorum"), metric, mode, tolerance, k))


def consensus(spend: Spend, values: Any, metric: Any, *rest: Any) -> Any:
    mode, aggregate, tolerance, k = rest if len(rest) == 4 else ("ball", *rest)
    known = ("medoid", "mode", "mean", "median")
    chosen = aggregate.lower() if isinstance(aggregate, str) else ""
    if chosen not in known:
        raise CelEvalError(f"unknown aggregate; known are {', '.join(known)}")
    group = _agreeing(spend, the_list(values, "consensus"), metric, mode, tolerance, k)
    if not group:
        return 0.0
    if chosen == "medoid":
        return _medoid(spend, group, metric_of(metric).apart)
    if chosen == "mode":
        return _most_frequent(spend, group)
    numbers = _doubles(group, "consensus")
    if not numbers:
        return 0.0
    return _mean(numbers) if chosen == "mean" else _middle(numbers)


Distance = Callable[[Spend, Any, Any], float]


def _medoid(spend: Spend, group: list[Any], distance: Distance) -> Any:
    sums = [_total([distance(spend, each, other) for other in group]) for each in group]
    return group[sums.index(min(sums))]


def _most_frequent(spend: Spend, group: list[Any]) -> Any:
    counts = [sum(equal(each, other, spend) for other in group) for each in group]
    return group[counts.index(max(counts))]
