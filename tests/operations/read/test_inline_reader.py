"""Reading in passing gives what reading at leisure gives, and leaves what is large to others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.kernel import stimuli as s
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.read import inline_reader
from anabranch.operations.read.event_pages import Follower
from anabranch.operations.read.inline_reader import (
    NEAR_BYTES,
    NEAR_ROWS,
    InlineReader,
    TooLargeInline,
)
from anabranch.operations.read.reader import Reader
from anabranch.operations.runs.verbs import patches
from anabranch.parts import Parts
from anabranch.runtime.effects import DurableEvents
from anabranch.runtime.nets import Nets
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Record
from anabranch.work.kinds.callables import Toolbox

from ..support import playbook, run, step


class Watched(MemoryStore):
    """Counts the rows of logs that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Record]:
        found = super().read(run, after, limit)
        self.rows += len(found)
        return found

    def weight(self, run: str, after: int, limit: int) -> tuple[int, int]:
        rows = self.rows
        try:
            return super().weight(run, after, limit)
        finally:
            self.rows = rows  # a look at the lengths reads nothing


def held() -> str:
    rules = [{"when": "{{ ctx.go }}", "then": {"allow": True}}]
    gate = {"spec": {"policy": {"admit": {"rules": rules}}}}
    return playbook({**step("held", "noop", "after"), **gate}, step("after", "noop", result="done"))


class World:
    def __init__(self, parts: Parts, store: Watched) -> None:
        self.parts, self.store = parts, store
        self.read_inline = InlineReader(store, parts.nets)
        self.reader = Reader(store, parts.nets)

    async def start(self, text: str) -> str:
        name = await self.parts.verbs.start(text)
        await self.parts.engine.wait(name, standing=True)
        return name

    async def patch(self, name: str, **values: Any) -> None:
        await self.parts.verbs.send(name, s.PatchContext(patches(values), "ann"))


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    store = Watched()
    parts = Parts(store, Settings(store=":memory:"), Toolbox())
    await parts.engine.open()
    try:
        yield World(parts, store)
    finally:
        await parts.close(grace_seconds=0)


def test_a_run_seen_in_passing_is_the_run_as_it_is_whenever_one_looks() -> None:
    async def go() -> None:
        async with world() as here:
            name = await here.start(held())
            for number in range(5):
                assert here.read_inline.show(name) == here.reader.show(name)
                assert here.read_inline.explain(name) == here.reader.explain(name)
                await here.patch(name, n=number)
            await here.patch(name, go=True)
            await here.parts.engine.wait(name)
            assert here.read_inline.show(name) == here.reader.show(name)
            assert here.read_inline.show(name)["status"] == "completed"

    run(go())


def test_whoever_looks_again_reads_only_what_is_new() -> None:
    async def go() -> None:
        async with world() as here:
            name = await here.start(held())
            here.read_inline.show(name)
            here.store.rows = 0
            here.read_inline.show(name)
            assert here.store.rows == 0
            await here.patch(name, n=1)
            here.store.rows = 0
            here.read_inline.show(name)
            assert here.store.rows == 1

    run(go())


def test_a_log_that_is_long_or_large_is_not_read_in_passing() -> None:
    async def go() -> None:
        async with world() as here:
            long, large = await here.start(held()), await here.start(held())
            for number in range(NEAR_ROWS + 1):
                await here.patch(long, n=number)
            for number in range(NEAR_BYTES // 50_000 + 1):  # each is small enough for the log
                await here.patch(large, **{f"text{number}": "x" * 50_000})
            here.store.rows = 0
            for name in (long, large):
                for look in (
                    here.read_inline.show,
                    here.read_inline.explain,
                    here.read_inline.state,
                ):
                    with pytest.raises(TooLargeInline):
                        look(name)
            assert here.store.rows == 0

    run(go())


def test_a_result_that_is_kept_beside_the_log_is_not_fetched_in_passing() -> None:
    async def go() -> None:
        async with world() as here:
            code = "result = 'x' * 100_000"
            name = await here.parts.verbs.start(playbook(step("big", "python", code=code)))
            await here.parts.engine.wait(name)
            assert len(here.reader.show(name)["result"]) == 100_000
            with pytest.raises(TooLargeInline):
                here.read_inline.show(name)

    run(go())


def test_a_definition_that_would_have_to_be_compiled_is_not_compiled_in_passing() -> None:
    async def go() -> None:
        async with world() as here:
            name = await here.start(held())
            fresh = Nets(here.store, compiler())
            with pytest.raises(TooLargeInline):
                InlineReader(here.store, fresh).show(name)
            Reader(here.store, fresh).show(name)
            assert InlineReader(here.store, fresh).show(name) == here.reader.show(name)

    run(go())


def test_a_run_that_has_the_id_of_a_purged_one_is_not_taken_for_it() -> None:
    async def go() -> None:
        async with world() as here:
            for result in ("one", "two"):
                text = playbook(step("only", "noop", result=result))
                await here.parts.verbs.start(text, run="same")
                await here.parts.engine.wait("same")
                assert here.read_inline.show("same")["result"] == result
                here.store.forget(["same"])
                here.parts.engine._core._ended.clear()
                await asyncio.sleep(0.002)  # runs begin at different milliseconds

    run(go())


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_reader, "KEPT_BYTES", 4000)

    async def go() -> None:
        async with world() as here:
            names = [await here.start(held()) for _ in range(30)]
            for name in names:
                here.read_inline.show(name)
            here.store.rows = 0
            here.read_inline.show(names[-1])
            assert here.store.rows == 0
            here.read_inline.show(names[0])
            assert here.store.rows > 0

    run(go())


# -- followers that are told -----------------------------------------------------------------------


def test_a_follower_that_is_told_shows_what_one_that_reads_the_log_shows() -> None:
    async def go() -> None:
        async with world() as here:
            heard: list[DurableEvents] = []
            here.parts.engine.listen(heard.append)
            name = await here.start(held())
            await here.patch(name, go=True)
            await here.parts.engine.wait(name)
            told, reads = Follower(name), Follower(name)
            records = [one for news in heard for one in told.hear(news) or ()]
            assert records == reads.page(here.store, 1000)
            assert records[-1].kind == "run.finished"
            assert [one for news in heard for one in told.hear(news) or ()] == [], "told twice"

    run(go())


def test_a_follower_that_missed_something_says_so_and_goes_on_from_the_log() -> None:
    async def go() -> None:
        async with world() as here:
            heard: list[DurableEvents] = []
            here.parts.engine.listen(heard.append)
            name = await here.start(held())
            await here.patch(name, go=True)
            await here.parts.engine.wait(name)
            follower = Follower(name)
            assert follower.hear(heard[-1]) is None
            assert follower.seq == 0
            first = follower.page(here.store, 2)
            rest = [one for news in heard for one in follower.hear(news) or ()]
            assert [one.seq for one in first + rest] == list(range(1, follower.seq + 1))

    run(go())
