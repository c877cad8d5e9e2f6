"""Where the nodes of a directory are reached, as its rows say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

ENDPOINTS_MAX = 8  # of one row

#: How an endpoint and a row are written in a directory.
Row = tuple[Any, tuple[str, ...], tuple[str, ...]]


def rows_in(value: Any) -> Iterator[Row]:
    """The passport of each row with its endpoints: those that can be asked, and all others.

    A row is a passport itself, or holds one under `passport`."""
    if isinstance(value, Mapping):
        value = value.get("items", value.get("passports", []))
    for row in value if isinstance(value, list) else []:
        if isinstance(row, Mapping) and "passport" in row:
            urls = _urls(row.get("endpoints"))
            yield row["passport"], *_by_transport(urls)
        else:
            yield row, (), ()


def _by_transport(urls: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Requests are sent by HTTP; peer sessions are not spoken."""
    spoken = tuple(url for url in urls if url.startswith(("http://", "https://")))
    return spoken, tuple(url for url in urls if url not in spoken)


def _urls(value: Any) -> list[str]:
    """The URLs of a row, the one with the lowest priority number first."""
    found: list[tuple[float, int, str]] = []
    rows = value if isinstance(value, list) else []
    for position, row in enumerate(rows):
        url = row.get("endpoint/url") if isinstance(row, Mapping) else None
        if not isinstance(url, str) or not url.isprintable() or " " in url or len(url) > 2048:
            continue
        priority = row.get("endpoint/priority")
        counts = isinstance(priority, int | float) and not isinstance(priority, bool)
        found.append((priority if counts else float("inf"), position, url))
    return [url for _, _, url in sorted(found)[:ENDPOINTS_MAX]]
