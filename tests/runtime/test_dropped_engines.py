"""An engine that a program drops without closing it keeps nothing: no thread, no store."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from anabranch import Engine, Toolbox
from anabranch.runtime.engine import EngineLoop
from hangs import HANG_SECONDS, collect_until_no_thread_is_left, engine_threads

from .support import playbook, step


def say() -> str:
    print("hello")  # which begins the thread that writes it down
    return "said"


async def run_once(store: Path) -> Engine:
    toolbox = Toolbox()
    toolbox.tool("say")(say)
    engine = Engine(store, toolbox=toolbox)
    await engine.__aenter__()
    result = await engine.wait(await engine.start(playbook(step("only", "say"))))
    assert result.result == "said"
    assert engine_threads()
    return engine


def require_nothing_left() -> None:
    collect_until_no_thread_is_left()
    assert not [one for one in gc.get_objects() if type(one) is EngineLoop]


def test_with_its_event_loop_an_engine_lets_go_of_threads_and_store(tmp_path: Path) -> None:
    async def program() -> None:
        await run_once(tmp_path / "store.db")

    for _ in range(3):  # the file would be in use
        with pytest.warns(ResourceWarning, match="dropped without being closed"):
            asyncio.run(program())
        require_nothing_left()


def test_in_a_loop_that_goes_on_an_engine_is_closed_in_order(tmp_path: Path) -> None:
    async def program() -> None:
        for _ in range(2):
            with pytest.warns(ResourceWarning, match="dropped without being closed"):
                await run_once(tmp_path / "store.db")
            async with asyncio.timeout(HANG_SECONDS):
                while engine_threads():
                    await asyncio.sleep(0.01)

    asyncio.run(program())
    require_nothing_left()


def test_after_its_event_loop_an_engine_can_still_be_dropped(tmp_path: Path) -> None:
    kept = [asyncio.run(run_once(tmp_path / "store.db"))]
    with pytest.warns(ResourceWarning, match="dropped without being closed"):
        kept.clear()
    require_nothing_left()
