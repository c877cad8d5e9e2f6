"""A server drives its own runs from memory: what it reads of the store does not grow with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import anabranch
from anabranch.operations.definitions.prepare import prepare
from anabranch.runtime.engine import EngineLoop
from anabranch.settings import Settings
from anabranch.store.postgres.store import STATEMENTS, PostgresStore

from ..support import chain, run, until

MANY = 30
NAMES = {text: name for name, text in STATEMENTS.items()}
#: What a server looks at now and then, whatever its runs do: the mailbox, holds that are over, and
#: schedules that are due, webhooks, what other servers say of their pools.
NOW_AND_THEN = {"news", "unanswered_in", "over", "due_records", "records", "hooks"}


def settings(postgres: str, schema: str) -> Settings:
    joint = "&" if "?" in postgres else "?"
    return Settings(store=f"{postgres}{joint}schema={schema}", store_partitions=8)


@contextmanager
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """The statements that read, by name."""
    counted: Counter[str] = Counter()
    read = PostgresStore._rows

    def counting(store: PostgresStore, statement: str, parameters: Any) -> Any:
        counted[NAMES.get(statement, statement)] += 1
        return read(store, statement, parameters)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresStore, "_rows", counting)
        yield counted
    for name in NOW_AND_THEN:
        del counted[name]


async def whole(engine: EngineLoop) -> None:
    prepared = prepare(chain(3))
    await engine.wait(await engine.start(prepared.definition, prepared.net))


def test_runs_that_begin_and_end_here_are_not_read(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with anabranch.Engine(settings=settings(postgres, "own_runs")) as opened:
            engine = opened._open.engine
            await whole(engine)
            with reads(monkeypatch) as counted:
                await asyncio.gather(*(whole(engine) for _ in range(MANY)))
        assert not +counted

    run(scenario())


def test_whoever_waits_for_the_end_of_runs_here_reads_nothing(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        box, go = anabranch.Toolbox(), asyncio.Event()
        box.add("go", go.wait)
        chosen = settings(postgres, "awaited_runs")
        async with anabranch.Engine(settings=chosen, toolbox=box) as engine:
            runs = [await engine.start(chain(3, "go")) for _ in range(MANY)]
            with reads(monkeypatch) as counted:
                waiting = asyncio.gather(*map(engine.wait, runs))
                waiters = engine._open.engine.subscribers._waiters
                await until(lambda: len(waiters) == MANY)
                go.set()
                ended = await waiting
        assert not +counted
        assert [one.run for one in ended] == runs
        assert {one.status for one in ended} == {"completed"}

    run(scenario())
