"""Engines on a PostgreSQL server, and the work they do while it is disturbed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from anabranch import Engine, Toolbox
from anabranch.runtime.engine import EngineLoop
from anabranch.settings import Settings
from postgres_server import PostgresServer
from runtime.support import playbook, step

_names = count(1)
#: A step of work, a question, another step of work.
ASKING = playbook(
    step("first", "count", "ask"),
    step("ask", "decision", "second", ask="ok?"),
    step("second", "count"),
)
PLAIN = playbook(step("first", "count", "second"), step("second", "count"))


class Tally:
    """How often each step of each run was carried out."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.toolbox = Toolbox()
        self.held = asyncio.Event()
        self.held.set()

        @self.toolbox.tool("count")
        async def count_call(run: str = "") -> int:
            self.calls["count"] += 1
            return self.calls["count"]

        @self.toolbox.tool("hold")
        async def hold() -> str:
            self.calls["hold"] += 1
            await self.held.wait()
            return "held"


def new_schema() -> str:
    return f"s{next(_names)}"


def settings(uri: str, schema: str = "", **more: Any) -> Settings:
    joint = "&" if "?" in uri else "?"
    given: dict[str, Any] = {"store_partitions": 4, "grace_seconds": 0.0, **more}
    return Settings(store=f"{uri}{joint}schema={schema or new_schema()}", **given)


def loop_of(engine: Engine) -> EngineLoop:
    return engine._open.engine


def owned(engine: Engine) -> set[int]:
    """Partitions whose runs are in memory."""
    member = loop_of(engine).member
    assert member is not None
    return set(member._open)


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.02)


async def patiently(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask again while the store is away, as clients do that are told 503."""
    while True:
        try:
            return await ask()
        except Exception as error:
            code = str(getattr(error, "code", ""))
            if not code.startswith("store_"):
                raise
            await asyncio.sleep(0.05)


def log_of(engine: Engine, run: str) -> list[tuple[str, Any]]:
    """What happened to the run, without its instants and ids."""
    return [(one.kind, _plain(one.fields, run)) for one in engine.read.events(run)]


def _plain(data: Any, run: str) -> Any:
    if isinstance(data, dict):
        return {k: _plain(v, run) for k, v in data.items() if not _instant(k)}
    if isinstance(data, list):
        return [_plain(one, run) for one in data]
    return data.replace(run, "RUN") if isinstance(data, str) else data


def _instant(key: str) -> bool:
    return key in ("at", "result", "results") or key.endswith(("_at", "_ms", "until"))


def rows_are_whole(server: PostgresServer, schema: str) -> None:
    """Rows of each partition are numbered without gaps, those of each run follow one another."""
    gaps = server.sql(
        f"SELECT run, last_seq, count FROM (SELECT *, lag(last_seq, 1, 0::bigint) OVER "
        f"(PARTITION BY run ORDER BY last_seq) AS before FROM {schema}.log) AS rows "
        "WHERE last_seq - count <> before"
    )
    assert gaps == []
    ends = server.sql(
        f"SELECT run FROM {schema}.heads WHERE seq <> "
        f"(SELECT max(last_seq) FROM {schema}.log WHERE log.run = heads.run)"
    )
    assert ends == []
