"""Where the nodes of a directory are reached, as its rows say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.errors import InputError

ENDPOINTS_MAX = 8  # of one row

#: How an endpoint and a row are written in a directory.
Row = tuple[Any, tuple[str, ...], tuple[str, ...]]


def rows_in(value: Any) -> Iterator[Row]:
    """The passport of each row with its endpoints: those that can be asked, and all others.

    A row is a passport itself, or holds one under `passport`."""
    for row in documents_in(value, "passports"):
        if isinstance(row, Mapping) and "passport" in row:
            urls = _urls(row.get("endpoints"))
            yield row["passport"], *_by_transport(urls)
        else:
            yield row, (), ()


def documents_in(value: Any, part: str) -> list[Any]:
    """What a source of the directory holds: a list, one under `items` or its own name, or one
    document alone. Anything else is an error: a revocation that is overlooked lets somebody in."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        under = next((key for key in ("items", part) if key in value), None)
        if under is None and any(key in value for key in ("schema", "passport", "artifact")):
            return [value]
        value = value.get(under)
    if isinstance(value, list):
        return value
    raise InputError(
        f"`{part}` of the directory is a list of documents, a mapping with one under `items` or "
        f"`{part}`, or one document"
    )


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
