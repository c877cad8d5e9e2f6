"""A page far into a loop costs what the first one does, and shows what reading it all would."""

from __future__ import annotations

import pytest

from anabranch import Engine, Toolbox
from anabranch.operations.read import items as items_module
from anabranch.operations.read import shard_log
from anabranch.operations.read.items import Page
from anabranch.operations.read.shard_log import Begin
from anabranch.store.memory.store import MemoryStore

from ..support import run
from .test_items_of_loops import HEAD, WORK, Watched, all_pages, finished, looping

ITEMS = 6_000


@pytest.mark.soak
def test_a_page_far_into_a_loop_of_single_items_reads_as_many_rows_as_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Watched()
    monkeypatch.setattr("anabranch.store.memory.store.MemoryStore", lambda: store)

    async def scenario() -> tuple[dict[int, int], int]:
        engine, run_id = await finished(looping(ITEMS, 1, "allow_partial: true", WORK))
        try:
            read: dict[int, int] = {}
            for start in (0, ITEMS // 3, ITEMS // 2, ITEMS - 10):
                store.rows = 0
                page = engine.read.items(run_id, "each", after=start - 1, limit=10)
                assert [item.index for item in page.items] == list(range(start, start + 10))
                assert [item.result for item in page.items if item.state == "succeeded"] == [
                    n * n for n in range(start, start + 10) if n % 10 not in (3, 7)
                ]
                read[start] = store.rows
            return read, len(MemoryStore.read(store, run_id))
        finally:
            await engine.__aexit__()

    read, there = run(scenario())
    assert there > 2_000
    glances = 2 * there.bit_length() * shard_log.GLANCE_ROWS  # the bisection, with room to spare
    assert max(read.values()) <= read[0] + glances, (read, there)
    assert glances < there / 20


# -- the same as reading all of it -----------------------------------------------------------


def compared(engine: Engine, run_id: str, monkeypatch: pytest.MonkeyPatch, limit: int = 7) -> None:
    """Every page, found by bisection down to the last event, and by reading from the start."""

    def pages() -> list[Page]:
        found = all_pages(engine.read, run_id, limit=limit)
        return found + all_pages(engine.read, run_id, limit=limit, state="succeeded")

    with monkeypatch.context() as patch:
        patch.setattr(shard_log, "NEAR_EVENTS", 1)
        quick = pages()
        patch.setattr(items_module, "seek", lambda *_args: Begin(0))
        assert quick == pages()
    assert len(quick) > 2


def test_the_pages_of_loops_that_follow_one_another_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = looping(40, 3, "allow_partial: true", WORK).replace("step: each", "step: before")
    text += text.partition("workflow:")[2].replace("step: before", "step: each")
    text = text.replace(
        f"tool: {WORK}\n\n  - step: each",
        f"tool: {WORK}\n    next: {{arcs: [{{step: each}}]}}\n  - step: each",
    )

    async def scenario() -> None:
        engine, run_id = await finished(text)
        try:
            assert engine.read.items(run_id, "before").total == 40
            compared(engine, run_id, monkeypatch)
        finally:
            await engine.__aexit__()

    run(scenario())


@pytest.mark.parametrize("shard_size", [1, 4])
def test_the_pages_of_a_loop_with_retries_are_the_same(
    shard_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, int] = {}
    box = Toolbox()

    @box.tool("work", blocking=False)
    def work(n: int) -> int:
        seen[n] = seen.get(n, 0) + 1
        if n % 9 == 4 and seen[n] < 3:
            raise TimeoutError("not yet")
        return n

    async def scenario() -> None:
        async with Engine(":memory:", toolbox=box) as engine:
            run_id = await engine.start(looping(60, shard_size, "max_job_retries: 3", WORK))
            await engine.wait(run_id)
            compared(engine, run_id, monkeypatch)

    run(scenario())


@pytest.mark.parametrize("first_failure", [5, 38])
@pytest.mark.parametrize("fail_fast", ["true", "false"])
def test_the_pages_of_a_redriven_loop_are_the_same(
    first_failure: int, fail_fast: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True
    box = Toolbox()

    @box.tool("work", blocking=False)
    def work(n: int) -> int:
        if broken and n >= first_failure and n % 3 == 0:
            raise ValueError("no")
        return n

    async def scenario() -> None:
        nonlocal broken
        async with Engine(":memory:", toolbox=box) as engine:
            first = await engine.start(looping(60, 2, f"fail_fast: {fail_fast}", WORK))
            await engine.wait(first)
            broken = False
            second = await engine.redrive(first)
            await engine.wait(second)
            compared(engine, first, monkeypatch)
            compared(engine, second, monkeypatch)

    run(scenario())


def test_the_pages_of_a_loop_over_a_file_are_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    with open(f"{tmp_path}/rows.jsonl", "w", encoding="utf-8") as file:
        file.writelines(f'{{"n": {n}}}\n' for n in range(70))
    text = f"""{HEAD}
workflow:
  - step: each
    spec: {{loop_mode: fanout, fanout: {{shard_size: 2, max_concurrent: 3, allow_partial: true}}}}
    loop: {{in: {{jsonl: "{tmp_path}/rows.jsonl"}}, iterator: row}}
    tool: {{kind: work, n: "{{{{ iter.row.n }}}}"}}
"""

    async def scenario() -> None:
        engine, run_id = await finished(text)
        try:
            compared(engine, run_id, monkeypatch)
        finally:
            await engine.__aexit__()

    run(scenario())
