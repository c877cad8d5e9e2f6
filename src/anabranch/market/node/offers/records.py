"""What the registry of offers keeps: events, states and families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.market.catalog.routes import Route, Trust
from anabranch.market.node.entities import Family

#: What an order agrees to; who orders by a number gets what the offer said under it.
TERMS = ("service/type", "pricing/amount", "pricing/currency", "pricing/unit-kind")
#: How long orders for a version that was replaced may be on their way, and how many versions.
GRACE_MS, EARLIER_KEPT = 900_000, 20


class Superseded(msgspec.Struct, frozen=True, kw_only=True):
    """Terms that an offer of this node had before."""

    since: int  # the first number with them
    until: int  # when others were published
    terms: dict[str, Any]


class LocalPublished(msgspec.Struct, frozen=True, tag="published"):
    """A version of an offer of this node, signed."""

    offer: dict[str, Any]
    by: str  # operator, or the module
    at: int
    since: int = 0  # the first number with its terms
    earlier: tuple[Superseded, ...] = ()


class LocalRetired(msgspec.Struct, frozen=True, tag="retired"):
    """An offer that was not active made room for another. Its number is remembered."""

    at: int


class LocalOffer(msgspec.Struct, frozen=True, kw_only=True):
    offer: dict[str, Any]
    by: str
    at: int
    retired: bool = False  # it is found by its id, and not listed
    since: int = 0
    earlier: tuple[Superseded, ...] = ()

    @property
    def sequence(self) -> int:
        return int(self.offer["sequence/no"])

    def terms_at(self, number: int, now: int) -> Mapping[str, Any] | None:
        """What an order for this number was promised; None where others replaced it long ago."""
        if number >= self.since:
            return self.offer
        found = [one for one in self.earlier if one.since <= number]
        if not found or now > found[-1].until + GRACE_MS:
            return None
        return {**found[-1].terms, "sequence/no": number}


def published(known: LocalOffer | None, offer: dict[str, Any], by: str, now: int) -> LocalPublished:
    """The next version of an offer, with the terms that orders may still name."""
    since = int(offer["sequence/no"])
    earlier: tuple[Superseded, ...] = ()
    if known is not None:
        before, earlier = terms_of(known.offer), known.earlier
        if before == terms_of(offer):
            since = known.since
        else:
            earlier += (Superseded(since=known.since, until=now, terms=before),)
    kept = tuple(one for one in earlier if now <= one.until + GRACE_MS)[-EARLIER_KEPT:]
    return LocalPublished(offer, by, now, since, kept)


def terms_of(offer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: offer[name] for name in TERMS}


def _local(before: LocalOffer | None, event: LocalPublished | LocalRetired) -> LocalOffer:
    if isinstance(event, LocalRetired):
        assert before is not None
        return msgspec.structs.replace(before, retired=True)
    return LocalOffer(
        offer=event.offer, by=event.by, at=event.at, since=event.since, earlier=event.earlier
    )


class OfferObserved(msgspec.Struct, frozen=True, tag="observed"):
    offer: dict[str, Any]
    trust: Trust
    route: Route
    at: int
    drop_at: int


class TrustReviewed(msgspec.Struct, frozen=True, tag="reviewed"):
    """The same version was relayed again, and is trusted otherwise now."""

    trust: Trust
    route: Route
    at: int
    drop_at: int


class OfferDropped(msgspec.Struct, frozen=True, tag="dropped"):
    """It is listed no more; the number of its version is remembered."""

    reason: str  # untrusted, expired, room, local, operator
    at: int


class ObservedOffer(msgspec.Struct, frozen=True, kw_only=True):
    offer: dict[str, Any]
    trust: Trust
    route: Route
    observed_at: int
    drop_at: int
    dropped: str = ""

    @property
    def sequence(self) -> int:
        return int(self.offer["sequence/no"])

    @property
    def provider(self) -> str:
        return str(self.offer["provider/participant-id"])

    @property
    def parties(self) -> tuple[str, ...]:
        """Who provides it, and who told of it."""
        node = str(self.offer["provider/node-id"])
        return self.provider, node, self.route.source, self.route.origin

    @property
    def visible(self) -> bool:
        return not self.dropped and self.trust != "untrusted"


def _observed(
    before: ObservedOffer | None, event: OfferObserved | TrustReviewed | OfferDropped
) -> ObservedOffer:
    match event:
        case OfferObserved():
            return ObservedOffer(
                offer=event.offer,
                trust=event.trust,
                route=event.route,
                observed_at=event.at,
                drop_at=event.drop_at,
            )
        case TrustReviewed():
            assert before is not None
            return msgspec.structs.replace(
                before, trust=event.trust, route=event.route, drop_at=event.drop_at
            )
        case OfferDropped():
            assert before is not None
            return msgspec.structs.replace(before, dropped=event.reason)


class ProviderTrusted(msgspec.Struct, frozen=True, tag="trusted"):
    participant: str
    by: str
    note: str
    at: int


class ProviderDistrusted(msgspec.Struct, frozen=True, tag="distrusted"):
    by: str
    at: int


class TrustedProvider(msgspec.Struct, frozen=True, kw_only=True):
    participant: str
    added_at: int
    added_by: str
    note: str = ""
    removed_at: int | None = None


def _trusted(
    before: TrustedProvider | None, event: ProviderTrusted | ProviderDistrusted
) -> TrustedProvider:
    if isinstance(event, ProviderDistrusted):
        assert before is not None
        return msgspec.structs.replace(before, removed_at=event.at)
    return TrustedProvider(
        participant=event.participant, added_at=event.at, added_by=event.by, note=event.note
    )


#: All of them stay in memory: they are few, and listed often.
LOCAL = Family(
    "local-offer",
    LocalOffer,
    LocalPublished | LocalRetired,
    _local,
    is_open=lambda state: not state.retired,
)
OBSERVED = Family(
    "observed-offer",
    ObservedOffer,
    OfferObserved | TrustReviewed | OfferDropped,
    _observed,
    is_open=lambda state: not state.dropped,
    wake=lambda state: state.drop_at,
    group=lambda state: state.provider,
    begins_anew=lambda event: isinstance(event, OfferObserved),
)
TRUSTED = Family(
    "trusted-provider",
    TrustedProvider,
    ProviderTrusted | ProviderDistrusted,
    _trusted,
    is_open=lambda state: state.removed_at is None,
)
FAMILIES: tuple[Family[Any], ...] = (LOCAL, OBSERVED, TRUSTED)
