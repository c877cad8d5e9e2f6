"""Tables whose rows are all tried in one test: those that do not hold are named together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


def wrong_rows(rows: Iterable[Any], check: Callable[..., None]) -> list[str]:
    """Which rows do not hold, and why. A row that is a tuple is given in its parts."""
    wrong: list[str] = []
    for row in rows:
        with _noting(row, wrong):
            check(*_parts(row))
    return wrong


async def wrong_answers(rows: Iterable[Any], check: Callable[..., Awaitable[None]]) -> list[str]:
    """The same of rows that are asked of a server."""
    wrong: list[str] = []
    for row in rows:
        with _noting(row, wrong):
            await check(*_parts(row))
    return wrong


def _parts(row: Any) -> tuple[Any, ...]:
    return row if isinstance(row, tuple) else (row,)


@contextmanager
def _noting(row: Any, wrong: list[str]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever it is, the other rows are tried too
        wrong.append(f"{row!r:.300}: {type(error).__name__}: {error}")
