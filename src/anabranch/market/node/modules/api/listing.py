"""Lists of things of which only some are wanted, page by page from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from anabranch.market.node.entities import Entities, Family
from anabranch.store.stream_ports import StreamCard

S = TypeVar("S")
READ_AT_ONCE = 500
#: Things that one question looks at, however few of them are wanted; then the caller asks for more.
READ_MAX = 2000


async def collected(
    entities: Entities,
    family: Family[S],
    limit: int,
    *,
    group: str | None = None,
    is_open: bool | None = None,
    before: tuple[int, str] | None = None,
    keep: Callable[[S], bool] = lambda _state: True,
) -> list[tuple[str, S, StreamCard]]:
    """At most so many of those that `keep` wants, newest first."""
    found: list[tuple[str, S, StreamCard]] = []
    more = True
    while more and len(found) < limit:
        part, left_at = await collected_of_some(
            entities, family, limit - len(found), group=group, is_open=is_open, before=before,
            keep=keep,
        )  # fmt: skip
        found += part
        more = left_at is not None
        before = (left_at.created_at, left_at.stream) if left_at is not None else before
    return found


async def collected_of_some(
    entities: Entities,
    family: Family[S],
    limit: int,
    *,
    group: str | None = None,
    is_open: bool | None = None,
    before: tuple[int, str] | None = None,
    keep: Callable[[S], bool] = lambda _state: True,
) -> tuple[list[tuple[str, S, StreamCard]], StreamCard | None]:
    """The same of the first that are there, and the last that was looked at where more may follow;
    None where there are no more."""
    found: list[tuple[str, S, StreamCard]] = []
    for _ in range(READ_MAX // READ_AT_ONCE):
        page = await entities.listed(
            family, group=group, is_open=is_open, before=before, limit=READ_AT_ONCE
        )
        for row in page:
            if keep(row[1]):
                found.append(row)
                if len(found) == limit:
                    return found, row[2]
        if len(page) < READ_AT_ONCE:
            return found, None
        before = page[-1][2].created_at, page[-1][2].stream
        await asyncio.sleep(0)
    return found, page[-1][2]
