"""Engines with orchestrations: rules in short, sessions on any store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anabranch
from hangs import HANG_SECONDS

T = TypeVar("T")

OWNER, FRIEND, OTHER = ("0x" + digit * 40 for digit in "abc")


def run(work: Coroutine[Any, Any, T], seconds: float = HANG_SECONDS) -> T:
    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(limited())


def rule(
    inputs: Mapping[str, str] | None = None,
    *,
    rules: list[Any] | None = None,
    valid: Mapping[str, Any] | None = None,
    invalid: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A rule document: inputs by type (`int64=3` has a default), payloads of its branches."""
    declared: dict[str, Any] = {}
    for name, kind in (inputs or {}).items():
        kind, _, default = kind.partition("=")
        declared[name] = {"type": kind, **({"default": default} if default else {})}
    made: dict[str, Any] = {"payload": declared, **more}
    if rules is not None:
        made["rules"] = rules
    if valid is not None:
        made["onValid"] = {"payload": dict(valid), **made.get("onValid", {})}
    if invalid is not None:
        made["onInvalid"] = {"payload": dict(invalid), **made.get("onInvalid", {})}
    return made


NOTHING = rule()


def waits(seconds: int, **branch: Any) -> dict[str, Any]:
    """A rule that is valid and lets what follows wait."""
    return rule(onValid={"waitSec": seconds, **branch})


def bundle(document: Mapping[str, Any], rules: Mapping[str, Any]) -> str:
    return json.dumps({"orchestration": document, "rules": rules}, indent=1) + "\n"


@asynccontextmanager
async def engine(
    store: str | Path = ":memory:", **settings: Any
) -> AsyncIterator[anabranch.Engine]:
    chosen = anabranch.Settings(poll_seconds=0.01, grace_seconds=2, **settings)
    async with anabranch.Engine(store, settings=chosen) as made:
        yield made


async def until_waiting(made: anabranch.Engine, session: str, step: str) -> str:
    """The pid of a process that sleeps at that step."""
    while True:
        for row in made.sessions.list_sessions(run=session):
            if row["step"] == step and row["status"] == "waiting":
                return str(row["pid"])
        await asyncio.sleep(0.005)
