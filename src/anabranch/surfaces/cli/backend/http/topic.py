"""What the topics of a server share. Its lists come in pages: this is the one place that asks for
the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.client import Client

PAGE = 500  # the most that one page of a list has


class HttpTopic:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def _all(
        self,
        *path: str,
        most: int | None = None,
        by: str = "cursor",
        first: Any = None,
        **query: Any,
    ) -> list[Row]:
        """The items of every page. `by` is what the API calls the place where a page begins."""

        async def ask(after: Any, limit: int) -> Row:
            return await self._client.get(*path, **query, **{by: after}, limit=limit)

        return [row async for page in pages(ask, first, most) for row in page["items"]]


async def pages(
    ask: Callable[[Any, int], Awaitable[Row]],
    after: Any = None,
    most: int | None = None,
    size: int = PAGE,
) -> AsyncIterator[Row]:
    """Page after page, until there is no next or `most` entries were asked for. `ask` is given
    where to go on and how many to ask for."""
    while most is None or most > 0:
        limit = size if most is None else min(size, most)
        page = await ask(after, limit)
        yield page
        after = page["next"]
        if after is None:
            return
        most = None if most is None else most - limit
