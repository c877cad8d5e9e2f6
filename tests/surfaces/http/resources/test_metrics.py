"""What `/metrics` says can be read by Prometheus' own parser, by convention and within bounds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from anabranch.errors import StoreError
from anabranch.runtime.metrics.registry import SERIES_MAX, Registry
from anabranch.work.kinds.callables import Toolbox

from ..support import HELLO, Client, playbook, run, serving, step, toolbox

NAME = re.compile(r"(anabranch|process)_[a-z0-9_]+")
UNITS = ("_ms", "_milliseconds", "_minutes", "_hours", "_kb", "_mb", "_kilobytes", "_percent")


async def families(client: Client) -> dict[str, Any]:
    """By name; the parser leaves out the `_total` of counters."""
    text = (await client.get(f"{client.url}/metrics")).text
    found = list(text_string_to_metric_families(text))
    assert len(found) == len({one.name for one in found}), "a metric stands there twice"
    return {one.name: one for one in found}


def value(found: dict[str, Any], sample: str, **labels: str) -> float:
    family = sample.removesuffix("_total").removesuffix("_count").removesuffix("_sum")
    (one,) = [
        each
        for each in found[family].samples
        if each.name == sample and labels.items() <= each.labels.items()
    ]
    return float(one.value)


def check_histogram(samples: Iterable[Sample]) -> None:
    """Buckets grow up to the count, series by series."""
    series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    counts: dict[tuple[tuple[str, str], ...], float] = {}
    for one in samples:
        rest = tuple(sorted((key, text) for key, text in one.labels.items() if key != "le"))
        if one.name.endswith("_bucket"):
            series.setdefault(rest, []).append((float(one.labels["le"]), one.value))
        elif one.name.endswith("_count"):
            counts[rest] = one.value
    assert series.keys() == counts.keys()
    for rest, buckets in series.items():
        assert buckets == sorted(buckets)
        assert [count for _, count in buckets] == sorted(count for _, count in buckets)
        assert buckets[-1] == (float("inf"), counts[rest])


def test_everything_is_what_prometheus_expects_by_its_own_parser() -> None:
    async def work() -> None:
        async with serving() as client:
            await client.ended(await client.start(HELLO))
            text = (await client.get(f"{client.url}/metrics")).text
            found = await families(client)
            types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
            helps = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.M))
            assert helps.keys() == types.keys()
            for name, kind in types.items():
                assert NAME.fullmatch(name), name
                assert (kind == "counter") is name.endswith("_total"), name
                assert not name.removesuffix("_total").endswith(UNITS), name
                assert len(helps[name]) > 5
            for family in found.values():
                assert family.documentation
                if family.type == "histogram":
                    check_histogram(family.samples)
                seen = [(one.name, tuple(sorted(one.labels.items()))) for one in family.samples]
                assert len(seen) == len(set(seen)), family.name
            page = (Path(__file__).parents[4] / "docs" / "operations.md").read_text()
            assert [name for name in types if f"`{name}`" not in page] == []

    run(work())


def test_steps_retries_jobs_and_endings_are_counted_as_they_happen() -> None:
    tools = Toolbox()
    calls: list[int] = []

    @tools.tool("flaky")
    async def flaky() -> int:
        calls.append(1)
        if len(calls) % 3:
            raise ConnectionError("not yet")
        return 1

    again = playbook(
        step("a", "noop", "b"), step("b", "flaky", spec={"retry": {"attempts": 3, "delay": "1ms"}})
    )

    async def work() -> None:
        async with serving(tools=tools) as client:
            for _ in range(4):
                assert await client.ended(await client.start(again)) == "completed"
            found = await families(client)
            assert value(found, "anabranch_runs_started_total") == 4
            assert value(found, "anabranch_runs_ended_total", status="completed") == 4
            assert value(found, "anabranch_steps_ended_total", ending="done") == 8
            assert value(found, "anabranch_jobs_started_total", kind="flaky") == 12
            assert value(found, "anabranch_job_retries_total", kind="flaky") == 8
            assert value(found, "anabranch_job_retries_total", kind="noop") == 0
            assert value(found, "anabranch_jobs_ended_total", kind="flaky", how="error") == 8
            assert value(found, "anabranch_jobs_ended_total", kind="flaky", how="ok") == 4
            assert value(found, "anabranch_job_seconds_count", kind="flaky") == 12
            assert value(found, "anabranch_commits_total") > 0

    run(work())


def test_the_store_the_streams_and_the_process_are_there(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "store.db") as client:
            name = await client.start(playbook(step("ask", "decision", ask="Go on?")))
            await client.stands(name)
            path = f"{client.url}/api/v1/runs/{name}/events/stream"
            async with client.session.get(path) as stream:
                await stream.content.readline()
                found = await families(client)
                assert value(found, "anabranch_event_streams") == 1
            assert value(found, "anabranch_store_bytes") > 4096
            assert value(found, "process_resident_memory_bytes") > 10_000_000
            assert value(found, "process_cpu_seconds_total") > 0
            assert value(found, "process_open_fds") > 3
            while not value(await families(client), "anabranch_event_loop_lag_seconds_count"):
                await asyncio.sleep(0.02)

    run(work())


def test_names_that_users_choose_do_not_make_series() -> None:
    """Hundreds of definitions, labels, pools and paths: the numbers stay as many as they were."""

    async def work() -> None:
        async with serving(tools=toolbox()) as client:
            for number in range(SERIES_MAX + 50):
                far = step("far", "noop", spec={"pool": f"p{number:03}"})
                await client.start(playbook(far, name=f"name-{number}"), labels={"n": str(number)})
                await client.get(f"/runs/nobody-{number}")
                await client.get(f"{client.url}/path-{number}")
            found = await families(client)
            waiting = found["anabranch_pool_queue"].samples
            assert len(waiting) == SERIES_MAX + 1
            assert sum(one.value for one in waiting) == SERIES_MAX + 50
            assert value(found, "anabranch_pool_queue", pool="other") == 50
            series = sum(len(family.samples) for family in found.values())
            assert series < 2 * SERIES_MAX + 1500
            text = (await client.get(f"{client.url}/metrics")).text
            assert "name-7" not in text
            assert "nobody-7" not in text

    run(work())


def test_what_is_too_much_is_one_series_and_nothing_is_left_out() -> None:
    registry = Registry()
    counter = registry.counter("a_total", "counted", ["x"], 3)
    gauge = [((f"v{number:03}",), float(number)) for number in range(SERIES_MAX + 5)]
    registry.gauge("b", "asked", lambda: gauge, ["x"])
    registry.gauge("c", "odd\nhelp", lambda: float("nan"))
    registry.gauge("d", "endless", lambda: float("inf"))
    odd = 'a "quoted"\\ and\nbroken name'
    registry.gauge("e", "by name", lambda: [((odd,), 1)], ["x"])
    for number in range(10):
        counter.add((f"n{number}",))
    found = {one.name: one for one in text_string_to_metric_families(registry.text())}
    assert {one.labels["x"]: one.value for one in found["a"].samples} == {
        "n0": 1, "n1": 1, "n2": 1, "other": 7,
    }  # fmt: skip
    assert sum(one.value for one in found["b"].samples) == sum(value for _, value in gauge)
    assert found["c"].samples[0].value != found["c"].samples[0].value
    assert found["d"].samples[0].value == float("inf")
    assert found["c"].documentation == "odd\nhelp"
    assert found["e"].samples[0].labels == {"x": odd}


def test_a_store_that_is_away_takes_no_metric_of_the_engine_with_it() -> None:
    async def work() -> None:
        async with serving() as client:

            def away() -> Any:
                raise StoreError("the database is away", code="store_away")

            client.parts.store.run_counts = away  # type: ignore[method-assign]
            while value(await families(client), "anabranch_turns_total") < 1:
                await asyncio.sleep(0.01)

    run(work())
