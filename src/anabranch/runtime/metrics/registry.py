"""Counters, gauges and histograms, and how they are written for Prometheus.

Counting is a dictionary lookup and an addition; nothing is locked, because everything that counts
does so on the thread of the engine (the writer thread only counts what it alone counts). Values
that are there anyway are gauges: a function that is asked when somebody looks.

A metric has a bounded number of series. Labels beyond the bound are counted under `other`, so that
whoever names kinds or paths cannot fill the memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite

SERIES_MAX = 200  # of one metric
OTHER = "other"
#: Seconds: from a quick commit to a job that takes minutes.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600)

Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, float]]


class _Metric:
    kind = ""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.text = text
        self.labels = tuple(labels)

    def lines(self) -> Iterable[str]:
        raise NotImplementedError

    def _line(self, value: float, labels: Labels, suffix: str = "", bound: str = "") -> str:
        pairs = [f'{key}="{_escaped(each)}"' for key, each in zip(self.labels, labels, strict=True)]
        if bound:
            pairs.append(f'le="{bound}"')
        inside = f"{{{','.join(pairs)}}}" if pairs else ""
        return f"{self.name}{suffix}{inside} {_number(value)}"


class Counter(_Metric):
    """Only ever grows."""

    kind = "counter"

    def __init__(
        self, name: str, text: str, labels: Sequence[str] = (), most: int = SERIES_MAX
    ) -> None:
        super().__init__(name, text, labels)
        self._most = most
        self._values: dict[Labels, list[float]] = {} if labels else {(): [0]}
        self._other = (OTHER,) * len(self.labels)

    def cell(self, labels: Labels = ()) -> list[float]:
        """Where these labels are counted; whoever counts often keeps it and adds to its item."""
        found = self._values.get(labels)
        if found is None:
            if len(self._values) >= self._most:
                labels = self._other
            found = self._values.setdefault(labels, [0])
        return found

    def add(self, labels: Labels = (), by: float = 1) -> None:
        self.cell(labels)[0] += by

    def value(self, labels: Labels = ()) -> float:
        found = self._values.get(labels)
        return found[0] if found else 0

    def lines(self) -> Iterable[str]:
        for labels, cell in sorted(self._values.items()):
            yield self._line(cell[0], labels)


class Gauge(_Metric):
    """Asked for when somebody looks: a number, or numbers by labels."""

    kind = "gauge"  # or "counter", where somebody else does the counting

    def __init__(
        self,
        name: str,
        text: str,
        ask: Callable[[], float | Values],
        labels: Sequence[str] = (),
    ) -> None:
        super().__init__(name, text, labels)
        self._ask = ask

    def lines(self) -> Iterable[str]:
        found = self._ask()
        if isinstance(found, int | float):
            yield self._line(found, ())
            return
        values = sorted(found)
        for labels, value in values[:SERIES_MAX]:
            yield self._line(value, labels)
        if len(values) > SERIES_MAX:
            rest = sum(value for _, value in values[SERIES_MAX:])
            yield self._line(rest, (OTHER,) * len(self.labels))


class Histogram(_Metric):
    """How often a value was at most so large."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        bounds: Sequence[float] = SECONDS,
    ) -> None:
        super().__init__(name, text, labels)
        self.bounds = tuple(bounds)
        self._series: dict[Labels, list[float]] = {}
        self._other = (OTHER,) * len(self.labels)
        if not labels:
            self.series(())

    def series(self, labels: Labels = ()) -> list[float]:
        """One count for each bound, one for what is larger than all of them, and the sum."""
        found = self._series.get(labels)
        if found is None:
            if len(self._series) >= SERIES_MAX:
                labels = self._other
            found = self._series.setdefault(labels, [0] * (len(self.bounds) + 2))
        return found

    def observe(self, value: float, labels: Labels = ()) -> None:
        series = self.series(labels)
        series[bisect_left(self.bounds, value)] += 1
        series[-1] += value

    def count(self, labels: Labels = ()) -> float:
        series = self._series.get(labels)
        return sum(series[:-1]) if series else 0

    def lines(self) -> Iterable[str]:
        for labels, series in sorted(self._series.items()):
            total = 0.0
            for bound, count in zip((*self.bounds, None), series, strict=False):
                total += count
                name = "+Inf" if bound is None else _number(bound)
                yield self._line(total, labels, "_bucket", name)
            yield self._line(series[-1], labels, "_sum")
            yield self._line(total, labels, "_count")


class Registry:
    """The metrics of a process, in the order in which they were added."""

    def __init__(self) -> None:
        self._metrics: dict[str, _Metric] = {}

    def add(self, metric: Counter | Gauge | Histogram) -> None:
        """One that somebody else keeps."""
        self._put(metric)

    def counter(
        self, name: str, text: str, labels: Sequence[str] = (), most: int = SERIES_MAX
    ) -> Counter:
        metric = Counter(name, text, labels, most)
        self._put(metric)
        return metric

    def histogram(self, name: str, text: str, labels: Sequence[str] = ()) -> Histogram:
        metric = Histogram(name, text, labels)
        self._put(metric)
        return metric

    def gauge(
        self,
        name: str,
        text: str,
        ask: Callable[[], float | Values],
        labels: Sequence[str] = (),
        kind: str = "gauge",
    ) -> None:
        made = Gauge(name, text, ask, labels)
        made.kind = kind
        self._put(made)

    def _put(self, metric: _Metric) -> None:
        if metric.name in self._metrics:
            raise ValueError(f"there is a metric {metric.name} already")
        self._metrics[metric.name] = metric

    def text(self) -> str:
        """The exposition format 0.0.4 of Prometheus."""
        lines: list[str] = []
        for metric in self._metrics.values():
            lines.append(f"# HELP {metric.name} {_one_line(metric.text)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines.extend(metric.lines())
        return "\n".join(lines) + "\n"


def by_label(values: Mapping[str, float]) -> Values:
    return [((label,), value) for label, value in values.items()]


def _number(value: float) -> str:
    if not isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
