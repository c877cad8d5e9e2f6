"""Tables whose rows are all asked of one server: those that do not hold are named together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any


async def wrong_rows(rows: Iterable[Any], check: Callable[..., Awaitable[None]]) -> list[str]:
    """Which rows do not hold, and why. A row that is a tuple is given in its parts."""
    wrong = []
    for row in rows:
        try:
            await check(*(row if isinstance(row, tuple) else (row,)))
        except Exception as error:
            wrong.append(f"{row!r:.300}: {type(error).__name__}: {error}")
    return wrong
