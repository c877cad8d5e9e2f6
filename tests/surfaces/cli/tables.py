"""Tables whose rows are all tried in one test: those that do not hold are named together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def wrong_rows(rows: Iterable[Any], check: Callable[..., None]) -> list[str]:
    """Which rows do not hold, and why. A row that is a tuple is given in its parts."""
    wrong = []
    for row in rows:
        try:
            check(*(row if isinstance(row, tuple) else (row,)))
        except Exception as error:
            wrong.append(f"{row!r:.300}: {type(error).__name__}: {error}")
    return wrong
