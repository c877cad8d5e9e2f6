"""A limit on time that is fair to work which ended while nobody could look.

When the process was stopped for a while, or its event loop held up, the end of the work and the end
of its time are noticed in the same moment. Then what has arrived is heard first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HELD_SECONDS = 1.0  # a timer that rings so late was held up
HEARING_SECONDS = 0.5


@asynccontextmanager
async def time_limit(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """Like `asyncio.timeout`, but a limit that is noticed late leaves a moment more."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        if seconds is None:
            yield limit
            return
        due = loop.time() + seconds

        def ring() -> None:
            held_up = loop.time() - due >= HELD_SECONDS
            limit.reschedule(loop.time() + (HEARING_SECONDS if held_up else 0))

        handle = loop.call_at(due, ring)
        try:
            yield limit
        finally:
            handle.cancel()
