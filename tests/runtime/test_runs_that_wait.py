"""Waits and signals in an engine: nothing in memory, restarts, redrives, secrets, many at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import Engine, Settings
from anabranch.kernel import events as e
from anabranch.runtime import housekeeping
from anabranch.runtime.live_run import history

from .support import file_of, playbook, run, step

PAID = playbook(
    step("wait", "wait", "done", event="paid", filter="{{ signal.payload.n >= workload.n }}"),
    step("done", result="{{ wait.payload.n }}"),
    name="paid",
    workload={"n": 3},
)


def kinds(engine: Engine, name: str) -> list[str]:
    return [e.kind_of(event) for _, event in history(engine._open.store.read(name))]


def evicted(engine: Engine) -> bool:
    core = engine._open.engine._core
    now = engine._open.engine.clock.now() + 3_600_000
    core.evict(now, 0)
    core.evict(now + 1, 0)
    return not core.live


def test_a_run_that_waits_is_not_in_memory_and_goes_on_when_its_signal_comes(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with Engine(file_of(tmp_path)) as engine:
            begun = await engine.start(PAID)
            await engine.wait(begun, standing=True)
            assert evicted(engine)
            kept = await engine.signal(begun, "paid", {"n": 1})
            assert (kept.signal, kept.status) == ("kept", "waiting")
            assert evicted(engine)
            sent = await engine.signal(begun, "paid", {"n": 5}, actor="ann")
            assert sent.signal == "taken"
            assert (await engine.wait(begun)).result == 5

    run(scenario())


@pytest.mark.parametrize(("many", "left"), [(1, 0), (2, 2)])
def test_runs_that_wait_leave_memory_sooner_where_there_are_many(
    many: int, left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "MANY_RUNS", many)

    async def scenario() -> None:
        async with Engine(file_of(tmp_path)) as engine:
            for _ in range(2):
                await engine.wait(await engine.start(PAID), standing=True)
            core, later = engine._open.engine._core, engine._open.engine.clock.now() + 3_600_000
            keeper = housekeeping.Housekeeping(core, 30_000)
            for seconds in (0, 6):
                keeper.look(later + seconds * 1000)
            assert len(core.live) == left

    run(scenario())


@pytest.mark.parametrize(
    ("waits", "timers"),
    [({"event": "paid"}, 0), ({"for": "30d"}, 1), ({"event": "paid", "timeout": "30d"}, 1)],
)
def test_a_waiting_run_leaves_a_timer_in_memory_and_nothing_else(
    waits: dict[str, Any], timers: int, tmp_path: Path
) -> None:
    """Counted, not timed: E4 in `bench/` measures the bytes."""

    async def scenario() -> None:
        async with Engine(file_of(tmp_path)) as engine:
            text = playbook(step("w", "wait", **waits))
            runs = [await engine.start(text) for _ in range(30)]
            for one in runs:
                await engine.wait(one, standing=True)
            assert evicted(engine)
            core = engine._open.engine._core
            assert core.job_queues.at_work == 0, "no worker is occupied"
            assert len(core.wake_times) == timers * len(runs)

    run(scenario())


def test_an_engine_that_opens_later_ends_the_waits_that_are_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = file_of(tmp_path)
        async with Engine(store) as engine:
            text = playbook(step("w", "wait", "x", **{"for": "0.3s"}), step("x", result="later"))
            begun = await engine.start(text)
        await asyncio.sleep(0)
        async with Engine(store) as engine:
            assert (await engine.wait(begun)).result == "later"
            assert kinds(engine, begun).count("job.parked") == 1

    run(scenario())


def test_a_redriven_run_keeps_the_signal_that_was_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        box = anabranch.Toolbox()
        fails, both_sent = [True], asyncio.Event()

        @box.tool("flaky")
        async def flaky(n: int) -> int:
            await both_sent.wait()
            if fails[0]:
                raise ValueError("not yet")
            return n

        text = playbook(
            step("wait", "wait", "do", event="paid"),
            step("do", "flaky", n="{{ wait.payload.n }}"),
        )
        settings = Settings(store=file_of(tmp_path))
        async with Engine(settings=settings, toolbox=box) as engine:
            begun = await engine.start(text)
            await engine.signal(begun, "paid", {"n": 4})
            await engine.signal(begun, "paid", {"n": 9})
            both_sent.set()
            assert (await engine.wait(begun)).status == "failed"
            fails[0] = False
            again = await engine.redrive(begun)
            assert (await engine.wait(again)).result == 4
            assert "signal.received" not in kinds(engine, again), "kept ones are not copied"
            shown = engine.read.signals(begun)["items"]
            assert sorted(one["status"] for one in shown) == ["dropped", "taken"]

    run(scenario())


def test_a_paused_run_takes_its_signal_and_goes_on_when_it_is_resumed() -> None:
    async def scenario() -> None:
        async with Engine(":memory:") as engine:
            text = playbook(
                {
                    "step": "p",
                    "tool": [
                        {"name": "w", "kind": "wait", "event": "go"},
                        {"name": "r", "kind": "noop", "result": "{{ w.payload }}"},
                    ],
                }
            )
            begun = await engine.start(text)
            await engine.wait(begun, standing=True)
            await engine.pause(begun)
            sent = await engine.signal(begun, "go", 7)
            assert (sent.signal, sent.status) == ("taken", "paused")
            assert "job.continued" in kinds(engine, begun)
            await engine.resume(begun)
            assert (await engine.wait(begun)).result == 7

    run(scenario())


def test_many_signals_at_once_are_each_taken_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        text = playbook(
            {
                "step": "each",
                "loop": {
                    "in": list(range(40)),
                    "iterator": "n",
                    "spec": {"mode": "parallel", "max_in_flight": 40},
                },
                "tool": {
                    "kind": "wait",
                    "event": "item",
                    "filter": "{{ signal.payload == iter.n }}",
                },
            }
        )
        async with Engine(file_of(tmp_path)) as engine:
            begun = await engine.start(text)
            sends = [
                engine.signal(begun, "item", n, id=f"i{n}") for n in range(40) for _ in range(3)
            ]
            await asyncio.gather(*sends)
            result = (await engine.wait(begun)).result
            assert [one["payload"] for one in result["results"]] == list(range(40))
            assert kinds(engine, begun).count("signal.taken") == 40
            assert kinds(engine, begun).count("signal.received") == 40

    run(scenario())


def test_secrets_that_a_filter_would_keep_are_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAIT_SECRET", "hush-hush-hush")

    async def scenario() -> None:
        text = playbook(
            {
                "step": "p",
                "tool": [
                    {"name": "a", "kind": "noop", "result": {"k": "{{ keychain.one.value }}"}},
                    {
                        "name": "w",
                        "kind": "wait",
                        "event": "go",
                        "filter": "{{ signal.payload == a.k or signal.payload == 1 }}",
                    },
                ],
            },
            keychain=[{"name": "one", "kind": "env", "map": {"value": "WAIT_SECRET"}}],
        )
        async with Engine(file_of(tmp_path)) as engine:
            begun = await engine.start(text)
            await engine.wait(begun, standing=True)
            await engine.signal(begun, "go", 1)
            assert (await engine.wait(begun)).status == "completed"

    run(scenario())
    found = [path for path in tmp_path.iterdir() if b"hush-hush" in path.read_bytes()]
    assert found == []


def test_a_child_that_waits_answers_its_parent_when_its_signal_has_come(tmp_path: Path) -> None:
    async def scenario() -> None:
        child = tmp_path / "child.yaml"
        child.write_text(PAID)
        text = playbook(step("ask", "playbook", path=str(child), return_result=True))
        async with Engine(file_of(tmp_path)) as engine:
            begun = await engine.start(text)
            async for event in engine.events(begun):
                if event.kind == "job.parked":
                    sent = await engine.signal(event.fields["ticket"], "paid", {"n": 8})
                    assert sent.signal in ("taken", "kept")
            assert (await engine.wait(begun)).result["result"] == 8

    run(scenario())
