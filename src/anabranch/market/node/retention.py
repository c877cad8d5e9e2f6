"""What has ended long ago is forgotten, with its history: strangers may have made any number of it.

A family says how long. Parts look for what is due when they are opened and while things happen, and
no more often than once an hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from anabranch.market.node.entities import Family
from anabranch.market.node.peers.envelope import SKEW_MS
from anabranch.market.node.ports import NodeContext

EVERY_MS = 3_600_000
DAY_MS = 24 * 3_600_000
#: What refuses the old by a clock may be asked a little later than what forgets it.
MARGIN_MS = 2 * SKEW_MS


class Rule(NamedTuple):
    """Things of a family, or of a group of it, that have ended and were not written for so long."""

    family: Family[Any]
    keep_ms: int
    group: str | None = None


class Retention:
    def __init__(self, context: NodeContext, rules: Sequence[Rule]) -> None:
        """In this order: what refers to others goes before them."""
        self._context = context
        self._rules = rules
        self._next = 0

    def look(self) -> None:
        """Forget what is due, beside what goes on; nothing where that was done just now."""
        now = self._context.clock.now()
        if now >= self._next:
            self._next = now + EVERY_MS
            self._context.spawn(self.forget(now))

    async def forget(self, now: int) -> None:
        for rule in self._rules:
            before = now - rule.keep_ms - MARGIN_MS
            while await self._context.entities.forget(rule.family, before, group=rule.group):
                pass
