"""Counters are exact, bounded in number, and written as Prometheus reads them."""

from __future__ import annotations

import re

import pytest

from anabranch import Engine, Toolbox
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.runtime.metrics.registry import SERIES_MAX, Gauge, Histogram, Registry
from anabranch.work.port import Task

from ..support import Doing, chain, engine, playbook, run, start, step

LINE = re.compile(
    r"^[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-z_]+=\"(\\.|[^\"\\\n])*\"(,[a-z_]+=\"(\\.|[^\"\\\n])*\")*\})?"
    r" (-?[0-9.]+(e[+-]?[0-9]+)?|\+Inf|NaN)$"
)


def test_the_text_is_what_prometheus_reads() -> None:
    registry = Registry()
    counter = registry.counter("a_total", "how\noften", ["kind"])
    counter.add(('qu"ote\\ \n',))
    counter.add(("x",), 2.5)
    registry.gauge("b", "now", lambda: 7)
    registry.gauge("c", "by name", lambda: [(("one",), 1), (("two",), 2)], ["name"])
    registry.histogram("d_seconds", "how long").observe(0.003)
    text = registry.text()
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith("# ") or LINE.match(line), line
    assert "# HELP a_total how\\noften\n# TYPE a_total counter\n" in text
    assert 'a_total{kind="qu\\"ote\\\\ \\n"} 1\n' in text
    assert 'a_total{kind="x"} 2.5\n' in text
    assert "# TYPE b gauge\nb 7\n" in text
    assert 'c{name="two"} 2\n' in text
    assert 'd_seconds_bucket{le="0.0025"} 0\n' in text
    assert 'd_seconds_bucket{le="0.005"} 1\n' in text
    assert 'd_seconds_bucket{le="+Inf"} 1\nd_seconds_sum 0.003\nd_seconds_count 1\n' in text


def test_buckets_count_everything_up_to_their_bound() -> None:
    histogram = Histogram("h", "x", bounds=(1, 2, 4))
    for value in (0, 1, 1.5, 2, 3, 5, 100):
        histogram.observe(value)
    lines = list(histogram.lines())
    assert [line.rpartition(" ")[2] for line in lines] == ["2", "4", "5", "7", "112.5", "7"]
    assert histogram.count() == 7


def test_labels_beyond_the_bound_are_counted_as_others() -> None:
    registry = Registry()
    counter = registry.counter("c", "x", ["kind"])
    histogram = registry.histogram("h", "x", ["kind"])
    for number in range(3 * SERIES_MAX):
        counter.add((str(number),))
        histogram.observe(1, (str(number),))
    assert len(list(counter.lines())) <= SERIES_MAX + 1
    assert counter.value(("other",)) == 2 * SERIES_MAX
    assert histogram.count(("other",)) == 2 * SERIES_MAX
    many = Gauge("g", "x", lambda: [((str(n),), n) for n in range(1000)], ["kind"])
    *named, others = many.lines()
    assert len(named) == SERIES_MAX
    shown = sum(float(line.rpartition(" ")[2]) for line in named)
    assert others == f'g{{kind="other"}} {sum(range(1000)) - shown:g}'


def test_two_metrics_of_one_name_are_a_mistake() -> None:
    registry = Registry()
    registry.counter("a", "x")
    with pytest.raises(ValueError, match="already"):
        registry.gauge("a", "x", lambda: 1)


def test_what_an_engine_does_is_counted() -> None:
    async def fails_once(task: Task) -> Answer:
        return succeeded(1) if task.attempt > 1 else failed("server", "no", retryable=True)

    async def work() -> None:
        async with engine(performers={"doing": Doing(fails_once)}) as made:
            first = await start(made, chain(3))
            retried = step("s", "doing", spec={"retry": {"attempts": 2, "delay": "1ms"}})
            second = await start(made, playbook(retried))
            states = [await made.wait(first), await made.wait(second)]
            engine_metrics = made.engine_metrics
            assert engine_metrics.runs_started.value() == 2
            assert engine_metrics.runs_ended.value(("completed",)) == 2
            assert engine_metrics.events.value() == sum(state.seq for state in states)
            assert engine_metrics.jobs_ended.value(("noop", "ok")) == 3
            assert engine_metrics.jobs_started.value(("doing",)) == 2
            assert engine_metrics.jobs_ended.value(("doing", "error")) == 1
            assert engine_metrics.jobs_ended.value(("doing", "ok")) == 1
            assert engine_metrics.job_seconds.count(("doing",)) == 2
            assert engine_metrics.lateness.count() >= 1  # the pause before the second attempt
            assert engine_metrics.commits.value() == engine_metrics.commit_seconds.count() > 0
            text = engine_metrics.registry.text()
            assert "anabranch_live_runs 0\n" in text
            assert 'anabranch_lane_jobs{lane="noop"} 0\n' in text

    run(work())


def test_items_of_loops_are_counted_by_how_they_ended() -> None:
    async def work() -> None:
        box = Toolbox()

        @box.tool("odd")
        async def refuse(n: int) -> int:
            if n % 2:
                raise ValueError("odd")
            return n

        each = step("each", "odd", n="{{ iter.n }}")
        each["loop"] = {"in": list(range(10)), "iterator": "n", "spec": {"mode": "parallel"}}
        each["spec"] = {"policy": {"failure": {"mode": "best_effort"}}}
        async with Engine(":memory:", toolbox=box) as made:
            await made.wait(await made.start(playbook(each)))
            items = made._open.engine.engine_metrics.items
            assert (items.value(("succeeded",)), items.value(("failed",))) == (5, 5)

    run(work())
