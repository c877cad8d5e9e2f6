"""A pipeline or an item that waits for a child run holds no worker, and goes on after it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import AnabranchError, StoreError
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import explain
from anabranch.kernel.state import State
from anabranch.operations.definitions.prepare import prepare
from anabranch.parts import Parts
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, HeadFilter, Store
from anabranch.work.kinds.callables import Toolbox

from .support import Fragile, asking, log_of, playbook, run, until

TEN_TIMES = {"step": "one", "tool": {"kind": "noop", "result": "{{ workload.n * 10 }}"}}


@asynccontextmanager
async def parts(store: Store, **settings: Any) -> AsyncIterator[Parts]:
    """The whole composition, on any store; work that runs at the end is dropped."""
    made = Parts(store, Settings(**settings), Toolbox())
    await made.engine.open()
    try:
        yield made
    finally:
        await made.close(0)


def saved(folder: Path, text: str) -> str:
    path = folder / "child.json"
    path.write_text(text)
    return str(path)


def waiting(path: str, **more: Any) -> dict[str, Any]:
    return {"name": "ask", "kind": "playbook", "path": path, "return_result": True, **more}


def parent(path: str, **more: Any) -> str:
    tasks = [
        {"name": "first", "kind": "noop", "result": 4},
        waiting(path, args={"n": "{{ first }}"}, **more),
        {"name": "last", "kind": "noop", "result": ["{{ first }}", "{{ ask.result }}"]},
    ]
    return playbook({"step": "s", "tool": tasks}, name="parent")


def looping(path: str, count: int, **loop: Any) -> str:
    tasks = [
        waiting(path, args={"n": "{{ n }}"}),
        {"name": "show", "kind": "noop", "result": "{{ n }}:{{ ask.result }}"},
    ]
    over = {"in": {"range": count}, "iterator": "n", **loop}
    return playbook({"step": "s", "loop": over, "tool": tasks}, name="parent")


async def begin(made: Parts, text: str) -> str:
    prepared = prepare(text, ())
    return await made.verbs.start(prepared)


def children(store: Store) -> list[str]:
    return [head.run for head in store.heads(HeadFilter()) if head.name == "child"]


def parked(state: State) -> bool:
    return any(job.phase == "parked" for job in state.jobs.values())


def test_a_pipeline_goes_on_after_its_child(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = saved(tmp_path, playbook(TEN_TIMES, name="child"))
        async with parts(MemoryStore()) as made:
            state = await made.engine.wait(await begin(made, parent(path)))
            assert state.results["s"] == [4, 40]
            log = log_of(made.store, state.run)
            (continued,) = [event for event in log if isinstance(event, e.JobContinued)]
            assert (continued.job, continued.attempt) == ("1.0", 2)
            starts = [event for event in log if isinstance(event, e.JobStarted)]
            assert [event.attempt for event in starts] == [1, 2]

    run(scenario())


def test_while_it_waits_it_holds_no_worker_and_explain_says_for_whom(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = saved(tmp_path, asking())
        async with parts(MemoryStore(), jobs_max=1) as made:
            name = await begin(made, parent(path))
            await until(lambda: parked(made.engine.state(name)))
            state = made.engine.state(name)
            assert made.engine._core.job_queues.at_work == 0
            (job,) = state.jobs.values()
            (waits,) = [w for w in explain(made.nets.get(state.definition), state) if w.id == "1.0"]
            assert job.ticket in waits.waits_for
            assert made.engine._core.evict(made.engine.clock.now(), 0) == 2
            await made.engine.send(job.ticket, s.Decide("ask", "fulfil"))
            assert (await made.engine.wait(name)).results["s"] == [4, "went on"]

    run(scenario())


@pytest.mark.parametrize(
    ("loop", "at_once"),
    [
        ({}, 1),
        ({"spec": {"mode": "parallel", "max_in_flight": 20}}, 20),
        ({"spec": {"mode": "parallel", "max_in_flight": "{{ 3 }}"}}, 3),
        ({"spec": {"loop_mode": "fanout", "fanout": {"max_concurrent": 5, "shard_size": 9}}}, 5),
    ],
)
def test_items_wait_without_a_worker_each_in_a_shard_of_its_own(
    tmp_path: Path, loop: dict[str, Any], at_once: int
) -> None:
    async def scenario() -> None:
        path = saved(tmp_path, playbook(TEN_TIMES, name="child"))
        async with parts(MemoryStore(), jobs_max=2) as made:
            state = await made.engine.wait(await begin(made, looping(path, 30, **loop)))
            assert state.status == "completed"
            if "loop_mode" not in loop.get("spec", {}):
                expected = [f"{n}:{n * 10}" for n in range(30)]
                assert state.results["s"]["results"] == expected
            log = log_of(made.store, state.run)
            shards = [event for event in log if isinstance(event, e.ShardScheduled)]
            assert [event.shard.count for event in shards] == [1] * 30
            assert most_at_once(log) <= at_once
            assert len(children(made.store)) == 30

    run(scenario())


def most_at_once(log: list[e.Event]) -> int:
    most = now = 0
    for event in log:
        now += isinstance(event, e.ShardScheduled) - isinstance(event, e.ShardClosed)
        most = max(most, now)
    return most


@pytest.mark.parametrize("lost", range(1, 12))
@pytest.mark.parametrize("looped", [False, True], ids=["pipeline", "loop"])
def test_a_crash_at_any_commit_loses_nothing_and_starts_no_child_twice(
    tmp_path: Path, lost: int, looped: bool
) -> None:
    async def scenario() -> None:
        store = Fragile()
        path = saved(tmp_path, playbook(TEN_TIMES, name="child"))
        text = looping(path, 2) if looped else parent(path)

        def before(_batch: Batch) -> None:
            if len(store.batches) >= lost:
                raise StoreError("the power is gone")

        store.before = before
        async with parts(store) as made:
            with suppress(AnabranchError):
                await made.engine.wait(await begin(made, text))
        store.before = lambda _batch: None
        (name,) = [head.run for head in store.heads(HeadFilter(name="parent"))]
        async with parts(store) as made:
            state = await made.engine.wait(name)
            assert state.status == "completed"
            result = state.results["s"]
            assert (result["results"] if looped else result) == (
                ["0:0", "1:10"] if looped else [4, 40]
            )
        assert len(children(store)) == (2 if looped else 1)

    run(scenario())


def test_cancelling_cancels_the_children_of_all_items(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = saved(tmp_path, asking())
        text = looping(path, 5, spec={"mode": "parallel"})
        async with parts(MemoryStore()) as made:
            name = await begin(made, text)
            await until(lambda: sum(j.phase == "parked" for j in jobs(made, name)) == 5)
            tickets = [job.ticket for job in jobs(made, name)]
            await made.engine.send(name, s.Cancel("ann", "enough"))
            assert (await made.engine.wait(name)).status == "cancelled"
            for child in tickets:
                assert (await made.engine.wait(child)).status == "cancelled"

    run(scenario())


def jobs(made: Parts, name: str) -> list[Any]:
    return list(made.engine.state(name).jobs.values())


def test_a_child_that_takes_too_long_is_cancelled_and_the_rules_hear_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = saved(tmp_path, asking())
        rules = [{"when": "{{ outcome.error.kind == 'timeout' }}", "then": {"do": "continue"}}]
        text = playbook(
            {
                "step": "s",
                "tool": [
                    {"name": "first", "kind": "noop", "result": 4},
                    waiting(path, timeout="1s", spec={"policy": {"rules": rules}}),
                    {"name": "last", "kind": "noop", "result": "late, {{ _prev }}"},
                ],
            },
            name="parent",
        )
        store = MemoryStore()
        async with parts(store) as made:
            name = await begin(made, text)
            state = await made.engine.wait(name)
            assert state.results["s"] == "late, 4"
            (child,) = (one.ticket for one in log_of(store, name) if isinstance(one, e.JobParked))
            assert (await made.engine.wait(child)).status == "cancelled"

    run(scenario())


def test_a_retry_after_a_failed_child_starts_another_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = saved(tmp_path, asking())
        again = {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "delay": 0}}
        more = {"spec": {"policy": {"rules": [again]}}}
        async with parts(MemoryStore()) as made:
            name = await begin(made, parent(path, **more))
            await until(lambda: parked(made.engine.state(name)))
            first = jobs(made, name)[0].ticket
            await made.engine.send(first, s.Decide("ask", "reject"))
            await until(lambda: parked(made.engine.state(name)) and ticket(made, name) != first)
            await made.engine.send(ticket(made, name), s.Decide("ask", "fulfil"))
            assert (await made.engine.wait(name)).results["s"] == [4, "went on"]

    run(scenario())


def ticket(made: Parts, name: str) -> str:
    return str(jobs(made, name)[0].ticket)


def test_a_large_memory_is_kept_beside_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = saved(tmp_path, playbook(TEN_TIMES, name="child"))
        code = "result = {'text': 'x' * 50_000}"
        tasks = [
            {"name": "big", "kind": "python", "code": code},
            waiting(path, args={"n": 1}),
            {"name": "last", "kind": "noop", "result": "{{ big.text | length }}"},
        ]
        text = playbook({"step": "s", "tool": tasks}, name="parent")
        async with parts(MemoryStore(), inline_bytes_max=1_000) as made:
            state = await made.engine.wait(await begin(made, text))
            assert state.results["s"] == 50_000
            log = log_of(made.store, state.run)
            (event,) = [event for event in log if isinstance(event, e.JobParked)]
            assert len(e.encode_events([event])) < 5_000

    run(scenario())


def test_without_a_word_about_waiting_a_child_is_only_started(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = saved(tmp_path, asking())
        tasks = [
            {"name": "go", "kind": "playbook", "path": path},
            {"name": "last", "kind": "noop", "result": "{{ go.status }}"},
        ]
        async with parts(MemoryStore()) as made:
            name = await begin(made, playbook({"step": "s", "tool": tasks}, name="parent"))
            assert (await made.engine.wait(name)).results["s"] == "started"

    run(scenario())
