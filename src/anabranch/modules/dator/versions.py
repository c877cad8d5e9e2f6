"""Versions of an offer: which terms an order gets that names one of its numbers.

An offer gets a greater number whenever it is published, also where only its queue has changed or
it is valid for longer. A version here is a change of what it says; it counts from its first number
until the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.market.documents.shapes import moment
from anabranch.market.node.orders.agreement import terms_problem
from anabranch.modules.dator.config import OfferConfig
from anabranch.modules.dator.drafts import content_of
from anabranch.modules.dator.requests import SKEW_MS, Unacceptable

VERSIONS_KEPT = 20
Origin = Literal["config", "participant"]


class Version(msgspec.Struct, frozen=True, kw_only=True):
    sequence: int  # the first number
    at: int
    offer: OfferConfig | None = None  # None: withdrawn


class KeptOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An offer that this module has published, over all its versions."""

    offer_id: str
    origin: Origin
    versions: tuple[Version, ...] = ()

    @property
    def offer(self) -> OfferConfig | None:
        """What is offered now."""
        return self.versions[-1].offer if self.versions else None

    def followed_by(self, version: Version) -> KeptOffer:
        """A version that was written down and never published gives way."""
        kept = [one for one in self.versions if one.sequence < version.sequence]
        return msgspec.structs.replace(self, versions=(*kept, version)[-VERSIONS_KEPT:])

    def at_number(self, sequence: int) -> tuple[Version | None, Version | None]:
        """The version that has this number, and the one that replaced it."""
        found = None
        for version in self.versions:
            if version.sequence > sequence:
                return found, version
            found = version
        return found, None


def terms_of(
    kept: KeptOffer,
    published: Mapping[str, Any],
    order: Mapping[str, Any],
    now: int,
    grace_ms: int,
) -> OfferConfig:
    """What was ordered. Raises `Unacceptable` with the class that says why not."""
    number, created = order["offer/seq"], moment(order["created-at"]) or 0
    version, following = kept.at_number(number)
    if version is None or number > published["sequence/no"]:
        raise Unacceptable("no such version is known", code="offer-seq-mismatch")
    offer = version.offer
    if offer is None or created >= (moment(published["expires-at"]) or 0):
        raise Unacceptable("the offer had ended", code="offer-expired")
    if following is not None:
        _require_in_time(following, created, now, grace_ms)
    said = {**content_of(offer, order["provider/node-id"]), "sequence/no": number}
    code, message = terms_problem(order, said)
    if code:
        raise Unacceptable(message, code=code)
    return offer


def _require_in_time(following: Version, created: int, now: int, grace_ms: int) -> None:
    """An order for an older version was on its way when that was replaced."""
    if following.offer is None and created > following.at + SKEW_MS:
        raise Unacceptable("the offer was withdrawn", code="offer-expired")
    if now > following.at + grace_ms:
        code = "offer-seq-mismatch" if following.offer else "offer-expired"
        raise Unacceptable("the version was replaced", code=code)
