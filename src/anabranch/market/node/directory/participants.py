"""The cache of a node as the directory that steps of workflows look for participants in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from anabranch.clock import Clock
from anabranch.market.directory import PassportDirectory
from anabranch.market.node.directory.passport_cache import PassportCache
from anabranch.work.participants.book import Book, Listing
from anabranch.work.participants.port import NotKnown, ParticipantQuery

#: Offers that this node shows now (`service-offer.v1`), its own and those it observed.
VisibleOffers = Callable[[], Iterable[Mapping[str, Any]]]


class NodeParticipants(PassportDirectory):
    """Finds participants as `PassportDirectory` does, in what the node knows: passports of the
    cache that count here, those of trusted nodes first, and the services that offers name. Who has
    no offer may have any."""

    def __init__(
        self,
        passports: PassportCache,
        clock: Clock,
        offers: VisibleOffers,
        unread: Callable[[], str],
    ) -> None:
        super().__init__(Book({"participants": {}, "directory": {}}), clock)
        self._passports = passports
        self._offers = offers
        self._why_unread = unread  # the seed that could not be read, and why; "" for none

    def find(self, query: ParticipantQuery) -> list[str]:
        self._list_offers()
        return super().find(query)

    def why_nobody(self, query: ParticipantQuery) -> str:
        self._list_offers()
        if query.resolve != "capability":
            return super().why_nobody(query)
        wanted, now = query.capability_id, self._clock.now()
        found = [one for _, one in self._passports.every() if one.capability_id == wanted]
        if not found:
            return f"no passport for {wanted!r} is known to this node"
        reasons = Counter(
            self._passports.problem_of(one, now) or "the filter does not fit" for one in found
        )
        listed = ", ".join(f"{count} × {why}" for why, count in reasons.most_common(5))
        return f"{len(found)} passports for {wanted!r} are known: {listed}"

    async def open(self) -> None:
        """The node keeps the cache."""

    def _holders(self, query: ParticipantQuery) -> list[str]:
        found = [
            (holder.trusted, holder.participant_id)
            for holder in self._passports.holders(query.capability_id)
            if self._has(
                holder.participant_id,
                query,
                {**holder.row, "scope": holder.row["passport"]["scope"]},
            )
        ]
        if not found and (why := self._why_unread()):
            raise NotKnown(why)
        return list(dict.fromkeys(name for _, name in sorted(found, key=self._rank)))

    def _rank(self, one: tuple[bool, str]) -> tuple[bool, bytes, str]:
        """Those of trusted nodes by name; no other participant chooses a place."""
        trusted, name = one
        return not trusted, b"" if trusted else self._passports.place_of(name), name

    def _list_offers(self) -> None:
        services: dict[str, set[str]] = {}
        prices: dict[str, int] = {}
        for offer in self._offers():
            provider, price = offer["provider/participant-id"], offer["pricing/amount"]
            services.setdefault(provider, set()).add(offer["service/type"])
            prices[provider] = min(price, prices.get(provider, price))
        self.book.listings = {
            name: Listing(name, service_types=tuple(sorted(found)), price=prices[name])
            for name, found in services.items()
        }
