"""What a loop has done survives a cancel, a timeout and a crash; a redrive does only the rest."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import pytest

from anabranch import Engine
from anabranch.testing import Played, after, error, ok, play
from anabranch.work.kinds.callables import Toolbox
from seeds import seeds

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: loop}\n"


def playbook(items: int, *, mode: str = "local", spec: str = "", policy: str = "") -> str:
    return HEAD + (
        "workflow:\n"
        "  - step: each\n"
        f"    spec: {{loop_mode: {mode}, "
        f"fanout: {{shard_size: 2, fail_fast: false{policy}}}{spec}}}\n"
        f"    loop: {{in: {{range: {items}}}, iterator: x}}\n"
        "    tool: {kind: touch, args: {x: '{{ iter.x }}'}}\n"
    )


def _results(played: Played) -> list[Any]:
    results: list[Any] = played.step("each").result["results"]
    return results


@pytest.mark.parametrize("seed", seeds(25))
@pytest.mark.parametrize("how", ["cancel", "timeout", "deadline"])
def test_results_up_to_the_end_are_kept_and_counted(how: str, seed: int) -> None:
    """Each item takes a second: whatever was back by then is there, and nothing else."""
    dice = Random(f"{how} {seed}")
    items, end = dice.randint(3, 12), dice.randint(1, 11) + 0.5
    spec = f", timeout: {end}s" if how == "timeout" else ""
    text = playbook(items, spec=spec)
    if how == "deadline":
        text = text.replace("workflow:", f"executor: {{spec: {{deadline: {end}s}}}}\nworkflow:")
    cancel_at = end if how == "cancel" else None
    answers = [after(1, ok(number)) for number in range(items)]
    played = play(text, script={"each": answers}, tools=["touch"], cancel_at=cancel_at)
    shards = min(int(end) // 2, (items + 1) // 2)
    done = min(2 * shards, items) if end < items else items
    (record,) = played.state.looped.values()
    assert record.succeeded == done
    if done < items:
        assert played.status in ("cancelled", "failed", "deadline_exceeded")
        assert record.status == "failed"
    assert _results(played) == list(range(done))


def test_an_orderly_stop_and_a_new_engine_do_nothing_twice(tmp_path: Path) -> None:
    """Shards that were back are not done again; the others are, under the same keys."""
    calls: list[int] = []
    toolbox = Toolbox()

    @toolbox.tool(name="touch")
    async def touch(x: int) -> int:
        calls.append(x)
        if len(calls) == 31:
            reached.set()
            await asyncio.sleep(3600)
        return x

    async def first() -> str:
        async with Engine(tmp_path / "s.db", toolbox=toolbox) as engine:
            run = await engine.start(playbook(60))
            await reached.wait()
            return run

    async def second(run: str) -> Any:
        async with Engine(tmp_path / "s.db", toolbox=toolbox) as engine:
            return await engine.wait(run)

    reached = asyncio.Event()
    run = asyncio.run(first())
    result = asyncio.run(second(run))
    assert result.status == "completed"
    assert result.result["results"] == list(range(60))
    assert len(calls) <= 60 + 2, "at most the shard that was out is done again"


@pytest.mark.parametrize("mode", ["local", "fanout"])
@pytest.mark.parametrize("seed", range(4))
def test_a_redrive_works_only_on_the_items_that_failed(
    tmp_path: Path, mode: str, seed: int
) -> None:
    dice = Random(f"{mode} {seed}")
    bad = {item for item in range(40) if dice.random() < 0.2} | {7}
    calls: list[int] = []
    toolbox = Toolbox()

    @toolbox.tool(name="touch")
    async def touch(x: int) -> int:
        calls.append(x)
        if x in bad:
            raise ValueError("not yet")
        return x

    async def whole() -> None:
        async with Engine(tmp_path / "s.db", toolbox=toolbox) as engine:
            run = await engine.start(playbook(40, mode=mode))
            assert (await engine.wait(run)).status == "failed"
            assert sorted(calls) == list(range(40))
            mended = set(dice.sample(sorted(bad), len(bad) // 2))
            calls.clear()
            bad.difference_update(mended)
            run = await engine.redrive(run)
            ended = await engine.wait(run)
            assert sorted(calls) == sorted(mended | bad)
            assert ended.status == ("failed" if bad else "completed")
        calls.clear()
        left = sorted(bad)
        bad.clear()
        async with Engine(tmp_path / "s.db", toolbox=toolbox) as engine:
            run = await engine.redrive(run)
            assert (await engine.wait(run)).status == "completed"
            assert sorted(calls) == left
            (loop,) = engine.read.show(run)["loops"]
            assert (loop["succeeded"], loop["failed"]) == (40, 0)

    asyncio.run(whole())


def test_a_loop_over_a_billion_starts_and_is_cancelled_within_a_second(tmp_path: Path) -> None:
    async def whole() -> tuple[float, dict[str, Any]]:
        async with Engine(tmp_path / "s.db") as engine:
            text = playbook(10**9, mode="fanout", policy=", max_concurrent: 4")
            text = text.replace("kind: touch", "kind: noop")
            begun = time.process_time()  # whatever else this machine does meanwhile
            run = await engine.start(text)
            async for event in engine.events(run):
                if event.kind == "loop.shard.done":
                    break
            await engine.cancel(run)
            ended = await engine.wait(run)
            seconds = time.process_time() - begun
            assert ended.status == "cancelled"
            return seconds, engine.read.show(run)

    asyncio.run(_warm(tmp_path))
    tracemalloc.start()
    try:
        seconds, shown = asyncio.run(whole())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    (loop,) = shown["loops"]
    assert loop["total"] == 10**9
    assert 0 < loop["succeeded"] < 10**9
    assert seconds < 1.0
    assert peak < 20_000_000


async def _warm(tmp_path: Path) -> None:
    """What is imported and compiled at first use is not the loop's."""
    async with Engine(tmp_path / "warm.db") as engine:
        await engine.wait(await engine.start(playbook(3).replace("kind: touch", "kind: noop")))


def test_failed_items_do_not_hide_those_that_worked() -> None:
    script = {"each": [ok(0), error("boom"), ok(2), error("boom")]}
    played = play(playbook(4), script=script, tools=["touch"])
    assert played.status == "failed"
    assert _results(played) == [0, None, 2, None]
