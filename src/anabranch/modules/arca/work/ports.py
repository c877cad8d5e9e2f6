"""What the work of a hosted run asks of the other parts of Arca."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Offers(Protocol):
    """Offers that can be ordered from now: those of this node, and those it observed at others."""

    def offers(
        self,
        *,
        service_type: str,
        provider: str = "",
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the word of definitions
    ) -> list[Mapping[str, Any]]:
        """Active and visible ones (`service-offer.v1`), the cheapest first, then by `offer/id`;
        each id once, the local one before an observed one. An empty `service_type` is any; keys
        of the filter may be dotted, and `service_type` there is `service/type`."""

    def offer(self, offer_id: str) -> Mapping[str, Any] | None:
        """The one with this id, as it is known now."""

    async def refresh(self) -> None:
        """Hear what has changed at the providers; raises nothing where that cannot be heard."""
