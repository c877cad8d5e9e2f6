"""Where participants are: what searches have just seen, else what the host and the catalog know."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

from anabranch.clock import Clock
from anabranch.modules.arca.work.patience import Patience
from anabranch.modules.arca.work.ports import Offers
from anabranch.modules.kit.host import Host

FRESH_MS = 10_000  # a fan-out begins right after its search
SEEN_MAX = 10_000  # participants


class ParticipantNodes:
    def __init__(self, host: Host, offers: Offers, clock: Clock, patience: Patience) -> None:
        self._host = host
        self._offers = offers
        self._clock = clock
        self._patience = patience
        self._seen: dict[str, tuple[int, list[str]]] = {}  # until when, and which

    def saw(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows of the directory, which the host has just answered with."""
        found: dict[str, list[str]] = {}
        for row in rows:
            found.setdefault(str(row["anchor_identity"]), []).append(str(row["node_id"]))
        if len(self._seen) + len(found) > SEEN_MAX:
            self._seen.clear()
        until = self._clock.now() + FRESH_MS
        self._seen.update({name: (until, nodes) for name, nodes in found.items()})

    async def of(self, participant: str, service_type: str) -> AsyncGenerator[str, None]:
        """Each once: those of the last search, those of its offers, then all that it runs."""
        until, seen = self._seen.get(participant, (0, []))
        given = list(seen) if until > self._clock.now() else []
        for node in given:
            yield node
        offers = self._offers.offers(service_type=service_type, provider=participant)
        known = await self._patience.ask(lambda: self._host.nodes_of(participant))
        others = [*(str(one["provider/node-id"]) for one in offers), *known]
        for node in dict.fromkeys(others):
            if node not in given:
                yield node
