"""Lists of things of which only some are wanted, page by page from the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anabranch.market.node.entities import Entities, Family
from anabranch.store.stream_ports import StreamCard

S = TypeVar("S")
READ_AT_ONCE = 500


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
    while len(found) < limit:
        page = await entities.listed(
            family, group=group, is_open=is_open, before=before, limit=READ_AT_ONCE
        )
        found += [row for row in page if keep(row[1])]
        if len(page) < READ_AT_ONCE:
            break
        before = page[-1][2].created_at, page[-1][2].stream
    return found[:limit]
