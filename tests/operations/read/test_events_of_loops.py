"""Events of loops are shown with the names and ids of the fan-out profile, wherever one reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

import anabranch
from anabranch.expressions.port import Constant
from anabranch.net.net import Loop
from anabranch.operations.read.event_view import EventRecord, EventView
from kernel.test_loops import Worker, looping

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: spread}}
workflow:
  - step: each
    spec: {{loop_mode: {mode}, fanout: {{shard_size: 3, max_concurrent: 2, max_job_retries: 1,
            allow_partial: true, fail_fast: false, iter_key: "key-{{{{ iter.n }}}}"}}}}
    loop: {{in: [10, 11, 12, 13], iterator: n}}
    tool: {{kind: python, args: {{n: "{{{{ iter.n }}}}"}}, code: "result = 1 // (n - 12)"}}
"""


class Read(NamedTuple):
    """A run, its events as they came, and as they are read from everywhere in the log."""

    run: str
    live: list[EventRecord]
    tails: list[list[EventRecord]]


async def run_and_read(engine: anabranch.Engine, mode: str) -> Read:
    run = await engine.start(PLAYBOOK.format(mode=mode))
    live = [event async for event in engine.events(run)]
    return Read(run, live, [engine.read.events(run, after) for after in range(len(live))])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Read]:
    """A fan-out, and two local loops after it."""

    async def whole() -> list[Read]:
        async with anabranch.Engine(tmp_path_factory.mktemp("store") / "s.db") as engine:
            return [await run_and_read(engine, mode) for mode in ("fanout", "local", "local")]

    return asyncio.run(whole())


def test_a_fan_out_is_told_in_the_words_of_its_profile(runs: list[Read]) -> None:
    run, live, _ = runs[0]
    told = [event for event in live if event.kind.startswith("loop.")]
    assert [event.kind for event in told[:3]] == [
        "loop.fanout.started", "loop.shard.enqueued", "loop.shard.enqueued",
    ]  # fmt: skip
    kinds = [event.kind for event in told]
    assert kinds.count("loop.shard.started") == kinds.count("loop.shard.enqueued") == 3
    assert (kinds.count("loop.shard.failed"), kinds.count("loop.shard.done")) == (2, 1)
    assert kinds[-1] == "loop.fanin.completed"
    assert told[0].fields["shards"] == 2
    assert {event.fields["loop_id"] for event in told} == {f"{run}/l1"}
    end = told[-1].fields
    assert (end["status"], end["succeeded"], end["failed"]) == ("partial", 3, 1)


def test_every_event_of_a_shard_says_which_items_it_is_about(runs: list[Read]) -> None:
    run, live, _ = runs[0]
    of_shards = [event.fields for event in live if event.fields.get("job", "")]
    assert {fields["shard_id"] for fields in of_shards} == {f"{run}/l1/0+3", f"{run}/l1/3+1"}
    assert {"first": 0, "count": 3}.items() <= of_shards[0].items()
    assert {fields.get("iter_index") for fields in of_shards} == {None, 2, 3}
    failures = [event.fields["failures"] for event in live if event.kind == "loop.shard.failed"]
    assert [failure["iter_key"] for [failure] in failures] == ["key-12", "key-12"]
    assert [failure["iter_index"] for [failure] in failures] == [2, 2]


def test_the_log_shows_the_same_from_wherever_it_is_read(runs: list[Read]) -> None:
    _, live, tails = runs[0]
    for after, tail in enumerate(tails):
        assert tail == live[after:]


def test_a_local_loop_starts_and_is_done(runs: list[Read]) -> None:
    _, live, _ = runs[1]
    kinds = [event.kind for event in live]
    assert ("loop.started" in kinds, "loop.done" in kinds) == (True, True)
    assert not {"loop.fanout.started", "loop.fanin.completed"} & set(kinds)


def test_loop_ids_differ_between_runs_and_between_activations(runs: list[Read]) -> None:
    (first, one, _), (second, two, _) = runs[1:]
    assert first != second
    ids = [event.fields["loop_id"] for event in (*one, *two) if event.kind == "loop.started"]
    assert len(set(ids)) == 2


def test_following_a_run_remembers_only_what_is_out(tmp_path: Path) -> None:
    async def whole() -> None:
        text = PLAYBOOK.format(mode="fanout").replace("[10, 11, 12, 13]", "{range: 600}")
        text = text.replace("1 // (n - 12)", "n")
        async with anabranch.Engine(tmp_path / "s.db") as engine:
            run = await engine.start(text)
            shown, most = engine.read.shown(run), 0
            async for _, at, event in engine._open.engine.events(run):
                shown.record(at, event)
                most = max(most, len(shown._shards) + len(shown._reports))
            assert shown.seq > 600
            assert most <= 2 * 2
            assert isinstance(shown, EventView)

    asyncio.run(whole())


def test_a_shard_that_goes_out_in_halves_is_counted_once() -> None:
    loop = Loop(
        Constant(list(range(8))), mode="fanout", shard_size=8, fail_fast=False, allow_partial=True
    )
    worker, view = Worker(looping(loop), 1, deadly={5}), EventView("r")
    worker.run()
    told = [view.record(at, event) for at, event in worker.history]
    (end,) = [one.fields for one in told if one.kind == "loop.fanin.completed"]
    assert (end["shards"], end["succeeded"], end["failed"]) == (1, 7, 1)
    assert [one.kind for one in told].count("loop.shard.enqueued") == 7
