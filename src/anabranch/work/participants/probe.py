"""Whether participants are there, without asking them anything.

A participant with a `health` URL is well while that answers with 2xx. Of any other it is looked
whether somebody takes the connection; a function is there once its module could be imported.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from anabranch.work.participants.book import Book
from anabranch.work.participants.health import Condition

if TYPE_CHECKING:
    import aiohttp

AT_ONCE = 32


async def probe(book: Book, seconds: float = 5.0) -> dict[str, Condition]:
    """The condition of everybody in the book, each within so many seconds."""
    import aiohttp

    room = asyncio.Semaphore(AT_ONCE)
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:

        async def one(name: str) -> Condition:
            async with room:
                return await _looked_at(book, name, session, seconds)

        found = await asyncio.gather(*map(one, book.names))
    return dict(zip(book.names, found, strict=True))


async def _looked_at(
    book: Book, name: str, session: aiohttp.ClientSession, seconds: float
) -> Condition:
    import aiohttp

    health = book.listings[name].health
    url = getattr(book.participant(name), "url", "")
    try:
        if health:
            return await _well(session, health)
        if url:
            await asyncio.wait_for(_connected(url), seconds)
    except TimeoutError:
        return Condition(state="down", problem=f"no answer within {seconds:g} s")
    except (OSError, aiohttp.ClientError, ValueError) as error:
        return Condition(state="down", problem=_why(error))
    return Condition(state="up")


def _why(error: Exception) -> str:
    """In the words of the system; asyncio puts addresses there, and some errors have no number."""
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    return str(getattr(error, "strerror", None) or type(error).__name__)


async def _well(session: aiohttp.ClientSession, url: str) -> Condition:
    async with session.get(url, allow_redirects=False) as response:
        if response.ok and response.status < 300:
            return Condition(state="up")
        return Condition(state="odd", problem=f"its health answers with HTTP {response.status}")


async def _connected(url: str) -> None:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    _, writer = await asyncio.open_connection(parts.hostname, port)
    writer.close()
    await writer.wait_closed()
