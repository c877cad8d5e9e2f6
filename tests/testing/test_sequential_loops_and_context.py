"""In a sequential loop each item sees the context as the item before it left it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.operations.definitions.prepare import check
from anabranch.testing.scripted.definitions import compiled

from .support import AFTER, AMID, BEFORE, play_and_die

COUNT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: count}
workload: {n: 0}
workflow:
  - step: each
    spec: {fanout: {shard_size: SIZE}}
    loop: {in: {range: 40}, iterator: k}
    tool: TOOL
    next: {arcs: [{step: show}]}
  - step: show
    tool: {kind: noop, result: ["{{ ctx.n }}", "{{ ctx.seen }}"]}
"""
WRITES = """
      set_ctx:
        n: "{{ ctx.n + 1 }}"
        seen: {reduce: append, value: "{{ ctx.n }}"}
"""
QUICK = "\n      kind: noop" + WRITES
SLOW = "\n      kind: count_slowly\n      k: '{{ iter.k }}'" + WRITES
EXPECTED = [40, list(range(1, 41))]  # `seen` is written after `n`


@anabranch.tool("count_slowly")
async def count_slowly(k: int) -> int:
    await asyncio.sleep(0.001 * (k % 3))
    return k


@pytest.mark.parametrize("size", ["auto", 1, 7, 40])
@pytest.mark.parametrize("tool", [QUICK, SLOW], ids=["quick", "slow"])
def test_whatever_the_size_of_its_shards(tool: str, size: Any) -> None:
    text = COUNT.replace("SIZE", str(size)).replace(" TOOL", tool)
    result = anabranch.run(text)
    assert result.result == EXPECTED, result.problem


def test_a_loop_on_a_task_does_the_same() -> None:
    text = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: count}
workload: {n: 0}
workflow:
  - step: once
    tool:
      - name: each
        loop: {in: {range: 10}, iterator: k}
        tool:
          - {kind: noop, set_ctx: {n: "{{ ctx.n + iter.k }}"}}
    next: {arcs: [{step: show}]}
  - step: show
    tool: {kind: noop, result: "{{ ctx.n }}"}
"""
    assert anabranch.run(text).result == 45


@pytest.mark.parametrize("place", [BEFORE, AFTER, AMID])
def test_wherever_the_engine_dies(place: str) -> None:
    net = compiled(COUNT.replace("SIZE", "15").replace(" TOOL", QUICK))
    whole, commits = play_and_die(net, {}, 0, place)
    assert whole.result == EXPECTED
    for dies_at in range(1, commits + 1):
        played, _ = play_and_die(net, {}, dies_at, place)
        assert played.result == EXPECTED, f"died at commit {dies_at}"


TRIED_AGAIN = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: balance}
workload: {balance: 100}
workflow:
  - step: each
    spec: SPEC
    loop: {in: [10, -5, 20, -15, 20], iterator: amount}
    tool: TOOL
    next: {arcs: [{step: show}]}
  - step: show
    tool: {kind: noop, result: ["{{ ctx.balance }}", "{{ ctx.seen }}"]}
"""
BALANCE = """
      set_ctx:
        balance: "{{ ctx.balance + iter.amount }}"
        seen: {reduce: append, value: "{{ iter.amount }}"}
"""
WAYS = {
    "callable": "\n      kind: fails_once\n      amount: '{{ iter.amount }}'",
    "inline": """
      kind: python
      input: {place: PLACE, amount: "{{ iter.amount }}"}
      code: |
        import pathlib
        seen = pathlib.Path(place) / str(amount)
        if amount == 20 and not seen.exists():
            seen.touch()
            raise RuntimeError('once more')
        return amount
""",
}


@pytest.mark.parametrize("spec", ["{retry: {attempts: 3}}", "{fanout: {max_job_retries: 2}}"])
@pytest.mark.parametrize("way", WAYS)
def test_an_item_is_tried_again_before_the_next_one_begins(
    tmp_path: Path, way: str, spec: str
) -> None:
    failed: set[int] = set()

    @anabranch.tool("fails_once")
    def fails_once(amount: int) -> int:
        if amount == 20 and amount not in failed:
            failed.add(amount)
            raise RuntimeError("once more")
        return amount

    tool = WAYS[way].replace("PLACE", str(tmp_path)) + BALANCE
    text = TRIED_AGAIN.replace(" TOOL", tool).replace("SPEC", spec)
    result = anabranch.run(text)
    assert result.result == [130, [10, -5, 20, -15, 20]], result.problem


def test_check_warns_where_items_that_run_at_once_write_what_they_read(tmp_path: Path) -> None:
    text = COUNT.replace("SIZE", "auto").replace(" TOOL", QUICK)
    path = tmp_path / "count.yaml"
    path.write_text(text.replace("iterator: k", "iterator: k, spec: {mode: parallel}"))
    assert "shared-write" in [problem.code for problem in check(path).problems]
