"""What workers are given and when: the highest priority first, and never faster than the rate of
the pool, however many workers ask."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from anabranch.errors import StoreError
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.rates import Rate
from anabranch.runtime.live_run import history
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.rate_limits import RateLimit
from seeds import seeds
from surfaces.worker.support import Server, playbook, run, serving, until, working

FAR = playbook("  - {step: far, spec: {pool: gpu}, tool: {kind: noop, result: far}}\n")
MANY = playbook("""
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 1, keep_results: false}}
    loop: {in: {range: 6}, iterator: n}
    tool: {kind: noop}
""")


def given_out(server: Server, *names: str) -> int:
    """How many jobs of these runs were given to workers, as the log has it."""
    found = [
        event
        for name in names
        for _, event in history(server.parts.store.read(name))
        if isinstance(event, e.JobStarted)
    ]
    return sum(event.worker in ("one", "two") for event in found)


def noted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """When each slot was used. A start is in the log a moment later, on a busy machine several."""
    taken: list[int] = []
    consume = RateLimit.consume

    def note(self: RateLimit, count: int) -> None:
        taken.extend([self._now()] * count)
        consume(self, count)

    monkeypatch.setattr(RateLimit, "consume", note)
    return taken


def never_faster(taken: list[int], rate: Rate) -> None:
    """Within any time no more than the slots in it, the burst, and one that came late."""
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            slots = (taken[last] - taken[first] + 1) * 1000 / rate.interval_us
            assert last - first + 1 <= slots + rate.burst + 1, (first, last, taken)


@pytest.mark.parametrize(
    ("text", "rate"), [("pool:gpu=20/s", Rate(50_000)), ("pool:gpu=10/s+3", Rate(100_000, 3))]
)
def test_two_workers_together_are_given_jobs_no_faster_than_the_rate_of_the_pool(
    text: str, rate: Rate, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = noted(monkeypatch)

    async def scenario() -> None:
        async with serving(rate_limits=text) as server:
            runs = [await server.start(MANY), *[await server.start(FAR) for _ in range(6)]]
            async with (
                working(server.url, name="one", concurrency=4),
                working(server.url, name="two", concurrency=4),
            ):
                for name in runs:
                    state = await server.parts.engine.wait(name)
                    assert state.status == "completed"
            assert given_out(server, *runs) == 12

    run(scenario())
    assert len(taken) >= 12
    never_faster(taken, rate)


def test_the_rate_of_one_pool_does_not_hold_up_another() -> None:
    async def scenario() -> None:
        async with serving(rate_limits="pool:gpu=1/d") as server:
            near = playbook("  - {step: a, spec: {pool: cpu}, tool: {kind: noop}}\n")
            slow = [await server.start(FAR) for _ in range(2)]
            quick = [await server.start(near) for _ in range(5)]
            async with working(server.url, pool="cpu", concurrency=1, name="c"):
                for name in quick:
                    assert (await server.parts.engine.wait(name)).status == "completed"
            given = [await server.claim() for _ in range(3)]
            assert [len(one["tasks"]) for one in given] == [1, 0, 0], "one a day"
            assert {server.state(name).finished_at for name in slow} == {0}

    run(scenario())


def test_a_server_that_is_started_again_gives_no_second_slot(tmp_path: Path) -> None:
    async def scenario(first: bool) -> None:
        async with serving(tmp_path / "a.db", rate_limits="pool:gpu=1/d") as server:
            if first:
                await server.start(FAR)
                await server.start(FAR)
            assert len((await server.claim())["tasks"]) == (1 if first else 0)

    run(scenario(True))
    run(scenario(False))


def are_waiting(server: Server, count: int) -> bool:
    return server.parts.engine.pools.waiting("gpu") == count


async def start(server: Server, priority: int, text: str = FAR) -> str:
    return await server.parts.verbs.start(text, {}, priority=priority)


@pytest.mark.parametrize("seed", seeds(20))
def test_claims_go_by_priority_and_then_by_turns(seed: int) -> None:
    """The oracle: of the jobs that wait, one of the highest priority, and of its runs the one that
    was served longest ago."""

    async def scenario() -> None:
        dice = Random(seed)
        async with serving() as server:
            waiting: dict[str, tuple[int, int]] = {}  # run → its priority, jobs that wait
            line: list[str] = []  # runs, the one whose turn it is first
            for _ in range(30):
                if dice.random() < 0.5 and len(waiting) < 8:
                    priority, many = dice.choice((-5, 0, 0, 3)), dice.random() < 0.3
                    name = await start(server, priority, MANY if many else FAR)
                    size = 6 if many else 1
                    before = sum(count for _, count in waiting.values())
                    await until(partial(are_waiting, server, before + size))
                    waiting[name] = (priority, size)
                    line.append(name)
                    continue
                claimed = (await server.claim(max=1))["tasks"]
                if not waiting:
                    assert claimed == []
                    continue
                best = max(priority for priority, _ in waiting.values())
                wanted = next(name for name in line if waiting[name][0] == best)
                assert [task["run"] for task in claimed] == [wanted]
                line.remove(wanted)
                priority, count = waiting.pop(wanted)
                if count > 1:
                    waiting[wanted] = (priority, count - 1)
                    line.append(wanted)

    run(scenario())


def test_a_worker_does_the_most_urgent_job_first() -> None:
    async def scenario() -> None:
        box, order = Toolbox(), list[str]()

        @box.tool("note")
        def note(called: str) -> None:
            order.append(called)

        text = playbook(
            "  - {step: a, spec: {pool: gpu}, tool: {kind: note, called: '{{ workload.name }}'}}\n",
            workload="{name: ''}",
        )
        async with serving(toolbox=box) as server:
            runs = [
                await server.parts.verbs.start(text, {"name": str(one)}, priority=one)
                for one in (-3, 0, 9, 4)
            ]
            await until(lambda: server.parts.engine.pools.waiting("gpu") == 4)
            async with working(server.url, toolbox=box, concurrency=1):
                for name in runs:
                    await server.parts.engine.wait(name)
        assert order == ["9", "4", "0", "-3"]

    run(scenario())


def test_a_job_that_could_not_be_started_keeps_its_priority() -> None:
    """The store was away: the job goes back, ahead of those that are less urgent."""

    async def scenario(monkeypatch: pytest.MonkeyPatch) -> None:
        async with serving() as server:
            engine = server.parts.engine
            urgent = await start(server, 5)
            await server.start(FAR)
            await until(lambda: engine.pools.waiting("gpu") == 2)
            real = engine.send

            async def away(name: str, stimulus: Any) -> Any:
                raise StoreError("the store is away", code="store_away")

            monkeypatch.setattr(engine, "send", away)
            status, _ = await server.ask("POST", "/pools/gpu/claim", {"worker": "w1", "max": 1})
            assert status >= 500
            monkeypatch.setattr(engine, "send", real)
            assert engine.pools.waiting("gpu") == 2
            (task,) = (await server.claim(max=1))["tasks"]
            assert task["run"] == urgent
            await server.good(task, "release")
            await until(lambda: engine.pools.waiting("gpu") == 2)
            await server.parts.verbs.send(urgent, s.Cancel("ann"))
            assert engine.pools.waiting("gpu") == 1

    with pytest.MonkeyPatch.context() as patch:
        run(scenario(patch))
