"""How an offer came here, and what that is worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from anabranch.market.documents.shapes import moment

Trust = Literal["explicit", "federation", "untrusted"]
#: The more trusted, the higher.
RANK: dict[str, int] = {"untrusted": 0, "federation": 1, "explicit": 2}


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`source` is the peer that signed the envelope; no peer sent what has an empty one."""

    source: str
    origin: str
    hops: int
    do_not_forward: bool = False


def trust_of(route: Route, *, is_trusted: bool, is_known: Callable[[str], bool]) -> Trust:
    """explicit     the operator trusts the participant who provides
    federation   the relay began at a peer that is known, and a peer that is known brought it: a
                 relay is not signed, so what a stranger says about its origin does not count
    untrusted    everything else; kept for a while, unseen
    """
    if is_trusted:
        return "explicit"
    return "federation" if is_known(route.source) and is_known(route.origin) else "untrusted"


def expires_at(offer: dict[str, Any]) -> int:
    return moment(offer["expires-at"]) or 0


def is_active(offer: dict[str, Any], now: int) -> bool:
    """Not withdrawn, and not expired at that instant."""
    return offer.get("offer/status") != "withdrawn" and expires_at(offer) > now
