"""What a run has no use for costs its steps nothing: counted in calls, which no machine changes.

Large values, secrets, limits and rights to read are looked at where a run has some. Every figure is
what it was when this was written, and MARGIN above it; it may be raised, if somebody says why.

Raised: every attempt of a callable has a log that it prints to (six calls a step, two an item);
what the inputs of a job take is counted (two calls a step).
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anabranch import Engine, Toolbox
from anabranch.operations.definitions.prepare import Prepared, prepare
from anabranch.runtime import writer
from anabranch.work.loops import shards
from costs import calls, calls_of_each

from .support import chain, playbook, run

MARGIN = 1.08

BOX = Toolbox()


@BOX.tool("nothing", blocking=False)
def nothing() -> None: ...


@BOX.tool("nothing_async")
async def nothing_async() -> None: ...


@BOX.tool("give", blocking=False)
def give(value: Any) -> Any:
    return value


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow commits go to a thread, and long shards let others run: not here."""
    monkeypatch.setattr(writer, "SLOW_SECONDS", math.inf)
    monkeypatch.setattr(shards, "BREATHE_SECONDS", math.inf)


def counting(items: int, **fanout: Any) -> str:
    """A fan-out over numbers, which are summed up."""
    rule = {"else": {"then": {"do": "continue", "set_shared": {"total": "{{ outcome.result }}"}}}}
    tool = {"kind": "give", "value": "{{ iter.n }}", "spec": {"policy": {"rules": [rule]}}}
    step = {
        "step": "each",
        "spec": {"loop_mode": "fanout", "fanout": {"reducers": {"total": "sum"}, **fanout}},
        "loop": {"in": {"range": items}, "iterator": "n"},
        "tool": tool,
    }
    return playbook(step)


async def one(engine: Engine, prepared: Prepared) -> None:
    state = await engine.wait(await engine.start(prepared))
    assert state.status == "completed"


async def crowd(engine: Engine, prepared: Prepared) -> None:
    """Many runs started together."""
    await asyncio.gather(*(one(engine, prepared) for _ in range(20)))


Way = Callable[[Engine, Prepared], Awaitable[None]]


def fewest(text: str, way: Way, times: int = 4) -> Counter[str]:
    """The calls of one go; the first one also loads what is loaded once, others read the mail."""
    prepared = prepare(text, [tool.name for tool in BOX])

    async def counted() -> list[Counter[str]]:
        goes = []
        async with Engine(":memory:", toolbox=BOX) as engine:
            for _ in range(times):
                with calls() as found:
                    await way(engine, prepared)
                goes.append(found)
        return goes

    return calls_of_each(run(counted()))


def check(found: Counter[str], units: int, most: int) -> None:
    often = "".join(f"\n{count / units:8.2f} {name}" for name, count in found.most_common(100))
    assert found.total() / units <= most * MARGIN, f"what is called so often for each:{often}"


@pytest.mark.parametrize(
    ("kind", "more", "most"),
    [
        ("noop", {}, 158),
        ("nothing", {}, 158),
        ("nothing_async", {}, 178),
        ("give", {"value": {"rows": [{"n": 1}, {"n": 2}]}}, 168),
    ],
)
def test_a_step_of_a_chain_takes_no_more_calls_than_it_did(
    kind: str, more: dict[str, Any], most: int
) -> None:
    check(fewest(chain(20, kind, **more), one), 20, most)


@pytest.mark.parametrize(("kind", "most"), [("nothing", 164), ("nothing_async", 175)])
def test_a_step_of_many_runs_at_once_takes_no_more_calls_than_it_did(kind: str, most: int) -> None:
    check(fewest(chain(3, kind), crowd), 20 * 3, most)


@pytest.mark.parametrize(
    ("items", "fanout", "most"),
    [
        (1000, {"max_concurrent": 3, "shard_size": 100}, 8),
        (200, {"max_concurrent": 64, "shard_size": 1}, 127),
    ],
)
def test_an_item_of_a_loop_takes_no_more_calls_than_it_did(
    items: int, fanout: dict[str, Any], most: int
) -> None:
    check(fewest(counting(items, **fanout), one, times=2), items, most)
