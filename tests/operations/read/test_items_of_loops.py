"""The items of a loop are found page by page, whatever became of them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, get_args

import pytest

from anabranch import Engine, Toolbox
from anabranch.errors import InputError, NotFound
from anabranch.literals import ItemState
from anabranch.operations.read.items import Page
from anabranch.operations.read.reader import Reader
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Record
from seeds import seeds

from ..support import run

MODES = ("fanout", "local")
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: it}\n"


def looping(items: int, shard_size: int, more: str = "", tool: str = "{kind: work}") -> str:
    return f"""{HEAD}
workflow:
  - step: each
    spec: {{loop_mode: fanout, fanout: {{shard_size: {shard_size}, max_concurrent: 3, {more}}}}}
    loop: {{in: {{range: [0, {items}]}}, iterator: n}}
    tool: {tool}
"""


WORK = '{kind: work, n: "{{ iter.n }}"}'


def toolbox() -> Toolbox:
    box = Toolbox()

    @box.tool("work", blocking=False)
    def work(n: int) -> int:
        if n % 10 == 3:
            raise TimeoutError("too slow")
        if n % 10 == 7:
            raise ConnectionError("nobody there")
        return n * n

    return box


async def finished(text: str) -> tuple[Engine, str]:
    engine = Engine(":memory:", toolbox=toolbox())
    await engine.__aenter__()
    run_id = await engine.start(text)
    await engine.wait(run_id)
    return engine, run_id


def all_pages(read: Reader, run_id: str, **wanted: Any) -> list[Page]:
    pages = [read.items(run_id, "each", **wanted)]
    while (after := pages[-1].more_after) is not None:
        pages.append(read.items(run_id, "each", after=after, **wanted))
    return pages


def test_every_item_is_on_exactly_one_page_with_its_state_result_and_error() -> None:
    async def scenario() -> list[Page]:
        engine, run_id = await finished(looping(95, 7, "allow_partial: true", WORK))
        try:
            return all_pages(engine.read, run_id, limit=20)
        finally:
            await engine.__aexit__()

    pages = run(scenario())
    items = [item for page in pages for item in page.items]
    assert [item.index for item in items] == list(range(95))
    assert [len(page.items) for page in pages] == [20, 20, 20, 20, 15]
    for item in items:
        if item.index % 10 in (3, 7):
            assert item.state == "failed"
            assert item.error is not None
            assert item.error["kind"] == ("timeout" if item.index % 10 == 3 else "connection")
        else:
            assert (item.state, item.result) == ("succeeded", item.index**2)
            assert item.attempts == 1
    assert (pages[0].total, pages[0].succeeded, pages[0].failed) == (95, 76, 19)


def test_failures_are_listed_by_kind_and_counted() -> None:
    async def scenario() -> tuple[list[Page], Page, Page]:
        engine, run_id = await finished(looping(95, 7, "allow_partial: true", WORK))
        try:
            timeouts = all_pages(engine.read, run_id, error="timeout", limit=4)
            failed = engine.read.items(run_id, "each", state="failed", limit=100)
            good = engine.read.items(run_id, "each", state="succeeded", limit=3, after=1)
            return timeouts, failed, good
        finally:
            await engine.__aexit__()

    timeouts, failed, good = run(scenario())
    indexes = [item.index for page in timeouts for item in page.items]
    assert indexes == [3, 13, 23, 33, 43, 53, 63, 73, 83, 93]
    assert timeouts[0].failures == {"timeout": 10, "connection": 9}
    assert len(failed.items) == 19
    assert [item.index for item in good.items] == [2, 4, 5]


def test_items_tried_again_say_how_often() -> None:
    seen: dict[int, int] = {}
    box = Toolbox()

    @box.tool("work", blocking=False)
    def work(n: int) -> int:
        seen[n] = seen.get(n, 0) + 1
        if n == 4 and seen[n] < 3:
            raise TimeoutError("not yet")
        return n

    async def scenario() -> Page:
        async with Engine(":memory:", toolbox=box) as engine:
            run_id = await engine.start(looping(6, 3, "max_job_retries: 3", WORK))
            await engine.wait(run_id)
            return engine.read.items(run_id, "each")

    page = run(scenario())
    assert [(item.state, item.attempts, item.result) for item in page.items][3:] == [
        ("succeeded", 1, 3),
        ("succeeded", 3, 4),
        ("succeeded", 1, 5),
    ]


def test_items_that_are_out_or_to_come_are_told_from_those_done() -> None:
    gate = asyncio.Event()
    box = Toolbox()

    @box.tool("work")
    async def work(n: int) -> int:
        if n >= 4:
            await gate.wait()
        return n

    async def scenario() -> dict[str, list[int]]:
        text = looping(12, 1, "", WORK).replace("max_concurrent: 3", "max_concurrent: 2")
        async with Engine(":memory:", toolbox=box) as engine:
            run_id = await engine.start(text)
            waiting: list[int] = []
            while waiting != [4, 5]:
                await asyncio.sleep(0)
                page = engine.read.items(run_id, "each", state="running")
                waiting = [item.index for item in page.items]
            states = get_args(ItemState)
            found = {
                state: [item.index for item in engine.read.items(run_id, "each", state=state).items]
                for state in states
            }
            found["all"] = [item.index for item in engine.read.items(run_id, "each").items]
            gate.set()
            await engine.wait(run_id)
            return found

    found = run(scenario())
    assert found == {
        "succeeded": [0, 1, 2, 3],
        "running": [4, 5],
        "pending": [6, 7, 8, 9, 10, 11],
        "failed": [],
        "all": list(range(12)),
    }


def test_results_kept_as_payloads_are_found_item_by_item() -> None:
    box = Toolbox()

    @box.tool("work", blocking=False)
    def work(n: int) -> str:
        return str(n) * 5000

    async def scenario() -> Page:
        async with Engine(":memory:", toolbox=box) as engine:
            run_id = await engine.start(looping(60, 20, "", WORK))
            await engine.wait(run_id)
            return engine.read.items(run_id, "each", after=38, limit=3)

    page = run(scenario())
    assert [item.result for item in page.items] == [str(n) * 5000 for n in (39, 40, 41)]


def test_a_redriven_loop_says_which_run_did_an_item() -> None:
    broken = True
    box = Toolbox()

    @box.tool("work", blocking=False)
    def work(n: int) -> int:
        if broken and n == 5:
            raise ValueError("no")
        return n

    async def scenario() -> tuple[str, Page]:
        nonlocal broken
        async with Engine(":memory:", toolbox=box) as engine:
            first = await engine.start(looping(8, 2, "fail_fast: false", WORK))
            await engine.wait(first)
            broken = False
            second = await engine.redrive(first)
            await engine.wait(second)
            return first, engine.read.items(second, "each")

    first, page = run(scenario())
    assert [item.origin for item in page.items] == [first] * 5 + [None] + [first] * 2
    assert (page.items[5].state, page.items[5].result) == ("succeeded", 5)


class Line:
    """A loop of a random form, in which each item fails in so many runs of a line of redrives."""

    def __init__(self, dice: Random) -> None:
        self.fails = [dice.randint(0, 3) for _ in range(dice.randint(1, 12))]
        self.box, self.runs = Toolbox(), list[str]()
        self.box.tool("work", blocking=False)(self._work)
        self._begun = 0
        policy = "allow_partial: true, fail_fast: false"
        text = looping(len(self.fails), dice.randint(1, 4), policy, WORK)
        self.text = text.replace("loop_mode: fanout", f"loop_mode: {dice.choice(MODES)}")

    def _work(self, n: int) -> int:
        if self.fails[n] >= self._begun:
            raise ValueError("no")
        return n

    async def ended(self, engine: Engine) -> None:
        """Redriven until nothing fails."""
        for _ in range(max(self.fails) + 1):
            self._begun += 1
            begin = engine.redrive(self.runs[-1]) if self.runs else engine.start(self.text)
            self.runs.append(await begin)
            await engine.wait(self.runs[-1])

    def expected(self, at: int) -> list[tuple[str, str | None]]:
        """State and origin of each item of one of the runs."""
        return [
            ("failed", None)
            if fails > at
            else ("succeeded", self.runs[fails] if fails < at else None)
            for fails in self.fails
        ]


@pytest.mark.parametrize("seed", seeds(100))
def test_an_item_of_a_line_of_redrives_is_of_the_run_that_did_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, store = Random(seed), MemoryStore()
    line, limit = Line(dice), dice.randint(1, 5)
    monkeypatch.setattr("anabranch.store.memory.store.MemoryStore", lambda: store)

    async def scenario() -> list[list[Page]]:
        async with Engine(":memory:", toolbox=line.box) as engine:
            await line.ended(engine)
            return [all_pages(engine.read, one, limit=limit) for one in line.runs]

    for at, pages in enumerate(run(scenario())):
        items = [item for page in pages for item in page.items]
        assert [(item.state, item.origin) for item in items] == line.expected(at), line.text


def test_behind_a_run_whose_log_is_gone_nobody_can_tell_who_did_an_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line, store = Line(Random(1)), MemoryStore()
    line.fails[:] = [0, *(2 for _ in line.fails[1:])]
    monkeypatch.setattr("anabranch.store.memory.store.MemoryStore", lambda: store)

    async def scenario() -> Page:
        async with Engine(":memory:", toolbox=line.box) as engine:
            await line.ended(engine)
            store.forget([line.runs[1]])
            return engine.read.items(line.runs[2], "each")

    assert run(scenario()).items[0].origin == line.runs[1]


def test_items_left_alone_after_a_failure_are_pending_and_done_by_a_redrive() -> None:
    broken, tried = True, list[int]()
    box = Toolbox()

    @box.tool("work", blocking=False)
    def work(n: int) -> int:
        tried.append(n)
        if broken and n == 2:
            raise ValueError("no")
        return n

    async def scenario() -> tuple[Page, Page, list[int]]:
        nonlocal broken
        async with Engine(":memory:", toolbox=box) as engine:
            first = await engine.start(looping(6, 6, "fail_fast: true", WORK))
            await engine.wait(first)
            before, broken = len(tried), False
            second = await engine.redrive(first)
            await engine.wait(second)
            pages = engine.read.items(first, "each"), engine.read.items(second, "each")
            pending = engine.read.items(first, "each", state="pending", limit=2)
            assert ([item.index for item in pending.items], pending.more_after) == ([3, 4], 4)
            assert not engine.read.items(second, "each", state="pending").items
            return *pages, tried[before:]

    stopped, whole, again = run(scenario())
    states = [item.state for item in stopped.items]
    assert states == ["succeeded"] * 2 + ["failed"] + ["pending"] * 3
    assert (stopped.succeeded, stopped.failed) == (2, 1)
    assert again == [2, 3, 4, 5]
    assert [item.result for item in whole.items[2:]] == [2, 3, 4, 5]
    assert [item.origin is None for item in whole.items] == [False] * 2 + [True] * 4


class Watched(MemoryStore):
    """Counts the rows of the log that are read in pages."""

    rows = 0

    def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Record]:
        found = super().read(run, after, limit)
        if limit is not None:
            self.rows += len(found)
        return found


@pytest.mark.soak
def test_the_first_page_of_a_long_loop_reads_only_the_beginning_of_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Watched()
    monkeypatch.setattr("anabranch.store.memory.store.MemoryStore", lambda: store)

    async def scenario() -> tuple[int, int]:
        engine, run_id = await finished(looping(4000, 1, "allow_partial: true", WORK))
        try:
            page = engine.read.items(run_id, "each", limit=10)
            assert [item.index for item in page.items] == list(range(10))
            return store.rows, len(MemoryStore.read(store, run_id))
        finally:
            await engine.__aexit__()

    read, there = run(scenario())
    assert read < there / 4


def test_what_cannot_be_asked_is_refused() -> None:
    async def scenario() -> None:
        engine, run_id = await finished(looping(5, 2, "allow_partial: true", WORK))
        try:
            with pytest.raises(NotFound, match="no loop at step 'other'; there are loops at each"):
                engine.read.items(run_id, "other")
            with pytest.raises(InputError, match="1 to 10,000"):
                engine.read.items(run_id, "each", limit=0)
            with pytest.raises(InputError, match="has no error"):
                engine.read.items(run_id, "each", state="running", error="timeout")
        finally:
            await engine.__aexit__()

    run(scenario())
