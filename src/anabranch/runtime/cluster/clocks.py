"""The clock of this server beside that of the store.

Leases are counted by the clock of the store alone. Timers go by that of the server that owns the
run: one whose clock is an hour ahead would let every timer of its partitions ring an hour early,
and nothing could take that back. So such a server does not join.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from anabranch.errors import StoreError
from anabranch.store.cluster_ports import Cluster

WARN_SECONDS = 2.0
REFUSE_SECONDS = 30.0

log = logging.getLogger("anabranch.cluster")


class ServerClock:
    def __init__(self, cluster: Cluster, now: Callable[[], int]) -> None:
        self._cluster = cluster
        self._now = now
        self.ahead_seconds = 0.0  # of the clock of the store, at least, at the last look

    def look(self) -> str:
        """What is wrong with it, with both instants; empty where nothing is. Asks the store."""
        before = self._now()
        there = self._cluster.clock()
        after = self._now()
        here = min(max(there, before), after)  # it was asked some time in between
        self.ahead_seconds = (here - there) / 1000
        if abs(self.ahead_seconds) <= WARN_SECONDS:
            return ""
        return (
            f"the clock of this server says {_instant(here)}, that of the store {_instant(there)}: "
            f"they are {abs(self.ahead_seconds):,.1f} s apart, and timers ring by that of the "
            "server. Set it right"
        )

    @property
    def usable(self) -> bool:
        return abs(self.ahead_seconds) <= REFUSE_SECONDS

    def require_usable(self) -> None:
        """Before this server joins."""
        wrong = self.look()
        if not self.usable:
            raise StoreError(f"{wrong}, and start again", code="clock_off")
        if wrong:
            log.warning("%s", wrong)


def _instant(milliseconds: int) -> str:
    found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
