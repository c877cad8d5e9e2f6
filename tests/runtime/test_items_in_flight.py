"""`max_in_flight` counts items, however they are cut into shards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import anabranch
from anabranch import Toolbox
from hangs import HANG_SECONDS

LOOP = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: many}
workflow:
  - step: each
    spec: {fanout: {shard_size: SIZE}}
    loop: {in: {range: 60}, iterator: n, spec: {mode: parallel, max_in_flight: 10}}
    tool: {kind: visit, n: "{{ iter.n }}"}
"""


class Visitors:
    """Some stay until everybody else has been there."""

    def __init__(self, slow: set[int]) -> None:
        self.slow = slow
        self.inside = 0
        self.most = 0
        self.left: list[int] = []
        self.others_left = asyncio.Event()

    async def visit(self, n: int) -> int:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if n in self.slow:
            await self.others_left.wait()
        else:
            await asyncio.sleep(0.001)
        self.inside -= 1
        self.left.append(n)
        if len(self.left) == 60 - len(self.slow):
            self.others_left.set()
        return n


def visited(slow: set[int], size: Any) -> Visitors:
    async def scenario() -> Visitors:
        box, visitors = Toolbox(), Visitors(slow)
        box.tool("visit")(visitors.visit)
        async with (
            asyncio.timeout(HANG_SECONDS),
            anabranch.Engine(":memory:", toolbox=box) as engine,
        ):
            run = await engine.start(LOOP.replace("SIZE", str(size)))
            result = await engine.wait(run)
        assert result.status == "completed", result.problem
        return visitors

    return asyncio.run(scenario())


@pytest.mark.parametrize("size", ["auto", 1, 6, 60])
def test_so_many_items_are_at_work_and_never_more(size: Any) -> None:
    visitors = visited(set(), size)
    assert visitors.most == 10
    assert sorted(visitors.left) == list(range(60))


@pytest.mark.parametrize("size", ["auto", 1, 6, 60])
def test_an_item_that_is_slow_holds_only_its_own_place(size: Any) -> None:
    slow = {0, 1, 7, 13, 20, 21, 22, 40, 59}  # one place is left for the others, and that is enough
    visitors = visited(slow, size)
    assert set(visitors.left[-len(slow) :]) == slow
    assert visitors.most == 10
