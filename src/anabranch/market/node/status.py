"""What the node says of itself: who it is, whether it is well, what is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ports import NodeContext
from anabranch.version import __version__


class StatusPart:
    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._opened_at = 0

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path="/healthz",
                scopes=("open",),
                handler=self._health,
                summary="Whether the node can write its state.",
                errors=(503,),
            ),
            Endpoint(
                method="GET",
                path="/readyz",
                scopes=("open",),
                handler=self._ready,
                summary="Whether every part of the node is open.",
                errors=(503,),
            ),
            Endpoint(
                method="GET",
                path="/v1/status",
                scopes=("operator", "module"),
                handler=self._status,
                summary="Who this node is, since when it runs, and how much is open.",
            ),
        ]

    async def _health(self, _call: Call) -> Answer:
        if self._context.entities.failure is not None:
            raise NodeError(503, "failed", "the node could not write its state; start it again")
        return Answer(body={"status": "ok"})

    async def _ready(self, _call: Call) -> Answer:
        if not self._opened_at:
            retry = {"Retry-After": "1"}
            raise NodeError(503, "starting", "not every part of the node is open", headers=retry)
        return Answer(body={"status": "ready"})

    async def _status(self, _call: Call) -> Answer:
        context = self._context
        body = {
            "name": context.config.name,
            "url": context.config.url,
            "version": __version__,
            "node_id": context.signer.node_id,
            "participant_id": context.signer.participant_id,
            "org_id": context.signer.org_id or None,
            "opened_at": self._opened_at,
            "now": context.clock.now(),
            "open": context.entities.open_counts(),
        }
        return Answer(body=body)

    async def open(self) -> None:
        """Opened last: the others are."""
        self._opened_at = self._context.clock.now()

    async def close(self) -> None:
        self._opened_at = 0

    async def wake(self, family: Family[Any], thing: str) -> None:
        """It has nothing that waits."""


def make(context: NodeContext) -> StatusPart:
    return StatusPart(context)
