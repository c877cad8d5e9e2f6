"""Which offers are known, and what becomes of one that is relayed to this node.

The local offer beats the observed one of the same id; what else is decided about a relay stands in
`catalog/rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from anabranch.market.catalog.relays import encoded, problem_of, route_of
from anabranch.market.catalog.room import Kept, Leaving, share_of
from anabranch.market.catalog.routes import Route, Trust, expires_at
from anabranch.market.catalog.rules import Keep, Known, Refuse, decide
from anabranch.market.node.entities import Change, Entities
from anabranch.market.node.offers.config import OffersConfig
from anabranch.market.node.offers.records import (
    LOCAL,
    OBSERVED,
    LocalOffer,
    ObservedOffer,
    OfferDropped,
    OfferObserved,
    TrustReviewed,
)
from anabranch.market.node.offers.trust import Judge

#: The class of what is wrong with a relay, and a sentence; both empty where nothing is.
Problem = tuple[str, str]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a relay."""

    offer_id: str
    outcome: Literal["stored", "stale", "rejected"]
    reason: str = ""  # a class
    message: str = ""

    def row(self) -> dict[str, str]:
        found = {"offer_id": self.offer_id, "outcome": self.outcome}
        return found | {"reason": self.reason, "message": self.message} if self.reason else found


class Registry:
    def __init__(self, entities: Entities, judge: Judge, config: OffersConfig, me: str) -> None:
        self._entities = entities
        self._judge = judge
        self._config = config
        self._me = me
        self._observed_ms = config.observed_seconds * 1000

    # -- reading -----------------------------------------------------------------------------

    def local(self, offer_id: str) -> LocalOffer | None:
        return self._entities.get(LOCAL, offer_id)

    def visible(self, offer_id: str) -> ObservedOffer | None:
        found = self._entities.get(OBSERVED, offer_id)
        return found if found is not None and found.visible else None

    def every_local(self) -> list[LocalOffer]:
        return [one for _, one in sorted(self._entities.each_open(LOCAL), key=_by_id)]

    def every_visible(self) -> list[ObservedOffer]:
        rows = sorted(self._entities.each_open(OBSERVED), key=_by_id)
        return [one for _, one in rows if one.visible]

    def every_hidden(self) -> list[ObservedOffer]:
        """Kept for a while, and shown to the operator alone."""
        rows = sorted(self._entities.each_open(OBSERVED), key=_by_id)
        return [one for _, one in rows if not one.visible]

    def hidden(self) -> int:
        return sum(not one.visible for _, one in self._entities.each_open(OBSERVED))

    # -- relays ------------------------------------------------------------------------------

    def checking(self, relays: Sequence[Any], source: str) -> Callable[[], list[Problem]]:
        """What is wrong with each of these relays of this peer: work for any thread."""
        now, known = self._entities.clock.now(), [self._known_offer(one) for one in relays]

        def check() -> list[Problem]:
            return [
                problem_of(relay, source, self._me, now, known=encoded(offer) if offer else b"")
                for relay, offer in zip(relays, known, strict=True)
            ]

        return check

    def _known_offer(self, relay: Any) -> dict[str, Any] | None:
        """The version of its offer that was checked before."""
        offer = relay.get("offer") if isinstance(relay, dict) else None
        offer_id = offer.get("offer/id") if isinstance(offer, dict) else None
        row = self._entities.get(OBSERVED, offer_id) if isinstance(offer_id, str) else None
        return row.offer if row is not None else None

    def admit(self, relay: Any, source: str, room: Room, problem: Problem) -> Verdict:
        """Decide about one relay of this peer, with what was found wrong with it. The decision is
        one block."""
        wrong, message = problem
        if wrong:
            return _verdict(relay, "rejected", wrong, message)
        with self._entities.change() as change:
            return self._admit(change, relay["offer"], route_of(relay, source), room)

    def _admit(self, change: Change, offer: dict[str, Any], route: Route, room: Room) -> Verdict:
        offer_id = offer["offer/id"]
        if change.get(LOCAL, offer_id) is not None:
            return _refused(offer, "local-offer", "this node has an offer of this id")
        row = change.get(OBSERVED, offer_id)
        decision = decide(
            None if row is None else _known(row),
            offer,
            route,
            lambda provider, way: self._judge.trust(change, provider, way),
        )
        if isinstance(decision, Refuse):
            return _refused(offer, decision.reason, decision.message)
        if isinstance(decision, Keep):
            assert row is not None
            self._review(change, row, decision)
            return _verdict({"offer": offer}, "stale")
        if decision.is_new and not room.make(change, offer, decision.trust, decision.route):
            message = f"this node keeps {self._config.observed_max} offers of others"
            return _refused(offer, "catalog-full", message)
        return self._store(change, offer, decision.route, decision.trust)

    def _review(self, change: Change, row: ObservedOffer, now: Keep) -> None:
        if row.dropped:
            return
        heard = row.observed_at if now.trust == "untrusted" else change.now
        drop_at = self._drop_at(row.offer, now.trust, heard)
        is_old = drop_at - row.drop_at > self._observed_ms // 2  # not written with every word of it
        if (now.trust, now.route) == (row.trust, row.route) and not is_old:
            return
        event = TrustReviewed(trust=now.trust, route=now.route, at=change.now, drop_at=drop_at)
        change.add(OBSERVED, row.offer["offer/id"], event)
        self._drop_late(change, row.offer["offer/id"])

    def _store(self, change: Change, offer: dict[str, Any], route: Route, trust: Trust) -> Verdict:
        drop_at = self._drop_at(offer, trust, change.now)
        event = OfferObserved(offer=offer, trust=trust, route=route, at=change.now, drop_at=drop_at)
        change.add(OBSERVED, offer["offer/id"], event)
        return _verdict({"offer": offer}, "stored")

    def _drop_at(self, offer: dict[str, Any], trust: Trust, observed_at: int) -> int:
        """Its provider alone says when it expires, so it is not kept longer than a while."""
        last = expires_at(offer) + self._config.expired_seconds * 1000
        last = min(last, observed_at + self._observed_ms)
        if trust != "untrusted":
            return last
        return min(last, observed_at + self._config.untrusted_seconds * 1000)

    # -- dropping ----------------------------------------------------------------------------

    def drop_due(self, offer_id: str) -> None:
        with self._entities.change() as change:
            self._drop_late(change, offer_id)

    def _drop_late(self, change: Change, offer_id: str) -> None:
        """Drop a row whose time is over."""
        found = change.get(OBSERVED, offer_id)
        if found is not None and not found.dropped and found.drop_at <= change.now:
            reason = "untrusted" if found.trust == "untrusted" else "expired"
            change.add(OBSERVED, offer_id, OfferDropped(reason=reason, at=change.now))

    def shorten(self) -> None:
        """Those of a version in which they were kept until they had expired."""
        with self._entities.change() as change:
            for offer_id, row in self._entities.each_open(OBSERVED):
                if row.drop_at > (last := change.now + self._observed_ms):
                    event = TrustReviewed(
                        trust=row.trust, route=row.route, at=change.now, drop_at=last
                    )
                    change.add(OBSERVED, offer_id, event)

    def drop(self, fits: Callable[[ObservedOffer], bool]) -> list[str]:
        """Drop those that fit, as the operator says."""
        with self._entities.change() as change:
            gone = [name for name, row in self._entities.each_open(OBSERVED) if fits(row)]
            for offer_id in gone:
                change.add(OBSERVED, offer_id, OfferDropped(reason="operator", at=change.now))
        return sorted(gone)

    def give_way(self, change: Change, offer_id: str) -> None:
        """A local offer of this id is published."""
        found = change.get(OBSERVED, offer_id)
        if found is not None and not found.dropped:
            change.add(OBSERVED, offer_id, OfferDropped(reason="local", at=change.now))


class Room:
    """Room for more observed offers, for the relays of one message."""

    def __init__(self, entities: Entities, most: int) -> None:
        self._entities = entities
        self._most = most
        self._leaving: Leaving | None = None

    def make(self, change: Change, offer: dict[str, Any], trust: Trust, route: Route) -> bool:
        """Whether there is room for this one more."""
        share = share_of(trust, offer["provider/participant-id"], route.source)
        if self._entities.count_open(OBSERVED) >= self._most:
            if self._leaving is None:
                self._leaving = Leaving(self._kept(change.now))
            if not self._leave(change, self._leaving, trust, share):
                return False
        if self._leaving is not None:
            self._leaving.add(offer["offer/id"], trust, share)
        return True

    def _leave(self, change: Change, leaving: Leaving, trust: Trust, share: str) -> bool:
        while offer_id := leaving.first_for(trust, share):
            found = change.get(OBSERVED, offer_id)
            if found is not None and not found.dropped:  # it may have gone meanwhile
                change.add(OBSERVED, offer_id, OfferDropped(reason="room", at=change.now))
                return True
        return False

    def _kept(self, now: int) -> Iterator[Kept]:
        for offer_id, one in self._entities.each_open(OBSERVED):
            share = share_of(one.trust, one.provider, one.route.source)
            ended = expires_at(one.offer) <= now
            yield Kept(one.observed_at, offer_id, one.trust, share, ended)


def _known(row: ObservedOffer) -> Known:
    """What had to leave may come again as it was; no version before it does."""
    returns = row.dropped in ("room", "expired")
    return Known(
        provider=row.provider,
        sequence=row.sequence - returns,
        trust=row.trust,
        route=row.route,
        dropped=bool(row.dropped),
    )


def _by_id(one: tuple[str, Any]) -> str:
    return one[0]


def _refused(offer: dict[str, Any], reason: str, message: str) -> Verdict:
    return _verdict({"offer": offer}, "rejected", reason, message)


def _verdict(
    relay: Any, outcome: Literal["stored", "stale", "rejected"], reason: str = "", message: str = ""
) -> Verdict:
    offer = relay.get("offer") if isinstance(relay, dict) else None
    offer_id = offer.get("offer/id") if isinstance(offer, dict) else None
    named = offer_id[:200] if isinstance(offer_id, str) else ""
    return Verdict(offer_id=named, outcome=outcome, reason=reason, message=message)
