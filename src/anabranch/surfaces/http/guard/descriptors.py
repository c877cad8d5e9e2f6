"""How many connections the limit of open files allows, and what happens when it is reached.

A connection is a file. The store, the work and the readers need some too, so connections get what
is left when those have theirs. As many as come at once are taken in small groups: asyncio accepts
a whole group before it closes the first of those that the limiter turns away.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

log = logging.getLogger("anabranch.http")

NO_LIMIT = 1 << 20
KEPT_LEAST, KEPT_MOST = 40, 256  # files for everything that is no connection
GROUP_MOST = 64
SILENCE_SECONDS = 60.0

_FULL = "socket.accept() out of system resource"


def files_max() -> int:
    """How many files this process may have open."""
    try:
        import resource
    except ImportError:
        return NO_LIMIT
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NO_LIMIT if soft == resource.RLIM_INFINITY else soft


def kept(files: int) -> int:
    """Files that no connection may take."""
    return max(KEPT_LEAST, min(files // 4, KEPT_MOST))


def connections_max(wanted: int, files: int, setting: str = "") -> int:
    """How many connections there may be at once: as many as wanted, or as there are files for."""
    most = max(1, files - kept(files))
    if wanted <= most:
        return wanted
    log.warning(
        "the limit of %s open files leaves room for %s connections at once, not for %s"
        "%s: raise it with `ulimit -n`",
        f"{files:,}",
        f"{most:,}",
        f"{wanted:,}",
        f" (setting {setting})" if setting else "",
    )
    return most


def accepted_at_once(files: int) -> int:
    """How many connections are accepted before the event loop gets its turn."""
    return min(GROUP_MOST, kept(files) // 5)


class AcceptErrors:
    """Says once in a while that there is no file left for a connection; asyncio says it each time,
    with a traceback, and tries again after a second."""

    def __init__(self) -> None:
        self._said_at: float | None = None
        self.count = 0

    def install(self) -> Callable[[], None]:
        """Begin in the running loop; returns how to stop it. Listeners of one loop may end in any
        order: one that is not the last to have begun stays in line, and hands everything on."""
        loop = asyncio.get_running_loop()
        before = loop.get_exception_handler()
        ended = False

        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if not ended and self._ours(context):
                return
            if before is None:
                loop.default_exception_handler(context)
            else:
                before(loop, context)

        def end() -> None:
            nonlocal ended
            ended = True
            if loop.get_exception_handler() is handle:
                loop.set_exception_handler(before)

        loop.set_exception_handler(handle)
        return end

    def _ours(self, context: dict[str, Any]) -> bool:
        message = str(context.get("message", ""))
        if message == _FULL:
            self.count += 1
            self._say(context.get("exception"))
            return True
        # asyncio means to listen again on a socket that was closed meanwhile
        closed = isinstance(context.get("exception"), ValueError)
        return closed and "_start_serving" in message

    def _say(self, error: Any) -> None:
        now = time.monotonic()
        if self._said_at is not None and now - self._said_at < SILENCE_SECONDS:
            return
        self._said_at = now
        why = getattr(error, "strerror", None) or str(error)
        log.error(
            "a connection could not be accepted (%s; the limit is %s files): it waits until one is "
            "free; raise the limit with `ulimit -n`",
            why,
            f"{files_max():,}",
        )
