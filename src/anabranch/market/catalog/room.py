"""Which offer of others leaves for a new one: the one rule of the host and of every catalog.

What has ended leaves first, then what is trusted less than the new one, the least trusted before
the others. Of what is trusted as much, whoever has the most gives up the oldest one for somebody
who has fewer: explicit trust is shared by provider, that of the federation by the node that sent
the offer. No stranger makes another one leave: they can be as many as they like.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from anabranch.market.catalog.routes import RANK, Trust


class Kept(NamedTuple):
    """An offer that is kept, by its age."""

    at: int
    offer_id: str
    trust: Trust
    share: str
    ended: bool


def share_of(trust: Trust, provider: str, source: str) -> str:
    """With whom it counts."""
    return provider if trust == "explicit" else source


class Leaving:
    """For the offers of one message, from what is kept when the first of them needs room."""

    def __init__(self, rows: Iterable[Kept]) -> None:
        self._ended: deque[str] = deque()
        self._shares: dict[str, dict[str, deque[str]]] = {trust: {} for trust in RANK}
        for row in sorted(rows):
            if row.ended:
                self._ended.append(row.offer_id)
            else:
                self.add(row.offer_id, row.trust, row.share)

    def add(self, offer_id: str, trust: Trust, share: str) -> None:
        self._shares[trust].setdefault(share, deque()).append(offer_id)

    def first_for(self, trust: Trust, share: str) -> str:
        """The offer that leaves for a new one; "" where none has to."""
        if self._ended:
            return self._ended.popleft()
        for lower in RANK:  # from the lowest on
            most = max(self._shares[lower].values(), key=len, default=deque())
            own = len(self._shares[lower].get(share, ())) + 1 if lower == trust else 0
            if len(most) > own and (lower != trust or trust != "untrusted"):
                return most.popleft()
            if lower == trust:
                break
        return ""
