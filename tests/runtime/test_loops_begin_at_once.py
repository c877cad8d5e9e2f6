"""A loop begins with its first items, however many there are, and lets others have their turn."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from anabranch import Engine, Toolbox

from .support import run

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: it}\n"
MILLION = f"""{HEAD}
workflow:
  - step: each
    spec: {{loop_mode: fanout}}
    loop: {{in: {{range: [0, 1000000]}}, iterator: n}}
    tool: {{kind: mark, n: "{{{{ iter.n }}}}"}}
"""


def test_the_first_of_a_million_items_begins_at_once(tmp_path: Path) -> None:
    began: list[float] = []
    box = Toolbox()

    @box.tool("mark", blocking=False)
    def mark(n: int) -> int:
        if not began:
            began.append(time.process_time())
        return n

    async def scenario() -> float:
        async with Engine(tmp_path / "it.db", toolbox=box) as engine:
            begin = time.process_time()
            name = await engine.start(MILLION)
            while not began:
                await asyncio.sleep(0)
            await engine.cancel(name)
            await engine.wait(name)
            return began[0] - begin

    assert run(scenario()) < 2  # seconds of our own work: all of them would take minutes


def test_items_done_in_place_do_not_keep_the_others_waiting(tmp_path: Path) -> None:
    box = Toolbox()

    @box.tool("mark", blocking=False)
    def mark(n: int) -> int:
        return n

    async def scenario() -> tuple[str, int]:
        async with Engine(tmp_path / "it.db", toolbox=box) as engine:
            name = await engine.start(MILLION)
            turns = 0
            while engine.read.items(name, "each", limit=1).succeeded < 100:
                turns += 1
                await asyncio.sleep(0)
            await engine.cancel(name)
            return (await engine.wait(name)).status, turns

    status, turns = run(scenario())
    assert status == "cancelled"
    assert turns > 1
