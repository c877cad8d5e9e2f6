"""Messages to peers: so many at once to each node; what waits meanwhile goes together.

A delivery that is alone leaves at once. Under load many are there together, and one message, one
signature and one round carry up to `MANY_MAX` of them. The other side answers for those that
it has decided; the others are sent alone, so that a slow acceptor delays nothing but its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple

from anabranch.market.node.delivery.plan import Outcome
from anabranch.market.node.delivery.transport import (
    MANY,
    MANY_MAX,
    MANY_SCHEMA,
    MESSAGE,
    ask,
    outcome_of,
    timed_out,
)
from anabranch.market.node.ports import NodeContext

TEXT_MAX = 1024 * 1024  # characters of bytes that go together


class _Waiting(NamedTuple):
    message: dict[str, Any]
    answered: asyncio.Future[Outcome]
    until: float  # by the time of the loop
    alone: bool = False

    @property
    def size(self) -> int:
        return len(self.message["artifact"]["bytes/base64"])


class _Line:
    """What is on its way to one node, and what waits for it."""

    def __init__(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.active = 0
        self.due = False  # to be looked at in a moment


class Outbox:
    def __init__(self, context: NodeContext, at_once: int) -> None:
        self._context = context
        self._at_once = at_once
        self._lines: dict[str, _Line] = {}

    async def deliver(self, node_id: str, message: dict[str, Any], seconds: float) -> Outcome:
        """Never raises for what the peer or the network does."""
        loop = asyncio.get_running_loop()
        one = _Waiting(message, loop.create_future(), loop.time() + seconds)
        line = self._lines.setdefault(node_id, _Line())
        line.waiting.append(one)
        if not line.due:  # after what else is ready now: a group commit lets many go at once
            line.due = True
            loop.call_soon(self._pump, node_id, line)
        try:
            async with asyncio.timeout(seconds):
                return await one.answered
        except TimeoutError:
            return timed_out(node_id, seconds)

    def _pump(self, node_id: str, line: _Line) -> None:
        """Send what waits, as far as there are places."""
        line.due = False
        while line.active < self._at_once and (chosen := _take(line.waiting)):
            line.active += 1
            self._context.spawn(self._send(node_id, line, chosen))
        if not line.active and not line.waiting:
            self._lines.pop(node_id, None)

    async def _send(self, node_id: str, line: _Line, chosen: list[_Waiting]) -> None:
        try:
            seconds = max(one.until for one in chosen) - asyncio.get_running_loop().time()
            seconds = max(seconds, 0.001)
            if len(chosen) == 1:
                message = chosen[0].message
                found = await ask(self._context.peers, node_id, MESSAGE, message, seconds)
                _settle(chosen[0], outcome_of(node_id, found))
            else:
                await self._send_many(node_id, line, chosen, seconds)
        finally:
            line.active -= 1
            self._pump(node_id, line)

    async def _send_many(
        self, node_id: str, line: _Line, chosen: list[_Waiting], seconds: float
    ) -> None:
        message = {"schema": MANY_SCHEMA, "deliveries": [one.message for one in chosen]}
        found = await ask(self._context.peers, node_id, MANY, message, seconds)
        if isinstance(found, Outcome) and found.status == "transient":
            for one in chosen:
                _settle(one, found)
            return
        answers = found.get("admissions") if isinstance(found, dict) else None
        if not isinstance(answers, list) or len(answers) != len(chosen):
            answers = [None] * len(chosen)  # the node takes them one by one
        for one, answer in zip(chosen, answers, strict=True):
            if answer is None:
                line.waiting.appendleft(one._replace(alone=True))
            else:
                _settle(one, outcome_of(node_id, answer))


def _take(waiting: deque[_Waiting]) -> list[_Waiting]:
    """The next ones that go together; those that are given up meanwhile are left out."""
    chosen: list[_Waiting] = []
    size = 0
    while waiting and len(chosen) < MANY_MAX:
        one = waiting[0]
        if one.answered.done():
            waiting.popleft()
            continue
        size += one.size
        if chosen and (one.alone or size > TEXT_MAX):
            break
        chosen.append(waiting.popleft())
        if one.alone:
            break
    return chosen


def _settle(one: _Waiting, outcome: Outcome) -> None:
    if not one.answered.done():
        one.answered.set_result(outcome)
