"""What becomes of an offer that is relayed: the one rule of the host and of every catalog.

An offer replaces the version before it only with a greater number. An id belongs to the participant
who was first with it, unless the other one is trusted more. A newer version stays as trusted as the
way on which the older one came, so that no stranger can hide an offer by relaying it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from anabranch.market.catalog.routes import RANK, Route, Trust

#: What an offer of a provider is worth that came this way, as things are now.
Judge = Callable[[str, Route], Trust]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The version that is kept under the id of an offer."""

    provider: str
    sequence: int
    trust: Trust
    route: Route
    dropped: bool = False  # only its number is remembered


class Refuse(msgspec.Struct, frozen=True):
    reason: str  # a class
    message: str


class Keep(msgspec.Struct, frozen=True):
    """The known version stays; its trust and its way as they are judged now."""

    trust: Trust
    route: Route


class Store(msgspec.Struct, frozen=True):
    trust: Trust
    route: Route
    is_new: bool  # one more row


def decide(
    known: Known | None, offer: dict[str, Any], route: Route, judge: Judge
) -> Refuse | Keep | Store:
    """About an offer that was checked. `known` is what is kept under its id."""
    provider = offer["provider/participant-id"]
    if known is not None and known.dropped and known.trust == "untrusted":
        known = None  # forgotten, as if it had never come
    if known is None:
        return Store(judge(provider, route), route, True)
    if known.provider != provider:
        return _contest(known, judge(provider, route), route)
    if offer["sequence/no"] <= known.sequence:
        if known.dropped:
            return Keep(known.trust, known.route)
        return Keep(*_best(judge, provider, known.route, route))
    routes = (route,) if known.dropped else (route, known.route)
    trust, way = _best(judge, provider, *routes)
    way = msgspec.structs.replace(way, do_not_forward=route.do_not_forward)
    return Store(trust, way, known.dropped)


def _contest(known: Known, trust: Trust, route: Route) -> Refuse | Store:
    """Another participant uses an id that is taken."""
    if known.dropped or RANK[trust] > RANK[known.trust]:
        return Store(trust, route, known.dropped)
    return Refuse("provider-mismatch", "another participant has an offer of this id")


def _best(judge: Judge, provider: str, *routes: Route) -> tuple[Trust, Route]:
    """Of several ways the one that is trusted most; of equal ones the first."""
    judged = [(judge(provider, route), route) for route in routes]
    return max(judged, key=lambda one: RANK[one[0]])
