"""Relays: an offer on its way from node to node, and how far it may go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.market.catalog.routes import Route, expires_at
from anabranch.market.documents import DocumentProblem, check
from anabranch.market.documents.limits import is_within_limits
from anabranch.market.documents.offers import HOPS_MAX, RELAY_ALONE
from anabranch.market.documents.problems import Found
from anabranch.market.documents.shapes import moment
from anabranch.market.node.ids import derived
from anabranch.work.participants.performers import rfc3339

KIND = "service-offer-relay.v1"
SKEW_MS = 5 * 60 * 1000  # by which clocks may differ
#: Of one offer: thousands of them stay in memory, and whoever reaches this node may send them.
OFFER_BYTES = 64 * 1024
AROUND_BYTES = 4 * 1024  # of a relay without its offer
#: An offer as it is kept and compared.
encoded = msgspec.json.Encoder(order="sorted").encode
_BEGINS = {"/relay~1relayed-at": "relay/relayed-at", "/offer/published-at": "published-at"}


def relay_of(offer: Mapping[str, Any], node_id: str, now: int) -> dict[str, Any]:
    """The relay with which an offer of this node begins its way."""
    return _relay(offer, node_id, 0, now)


def forwarded(offer: Mapping[str, Any], route: Route, now: int) -> dict[str, Any] | None:
    """The relay that passes an observed offer on: one hop more, the same origin. None where it
    would go too far, or is not to be passed on."""
    if route.do_not_forward or route.hops >= HOPS_MAX:
        return None
    return _relay(offer, route.origin, route.hops + 1, now)


def _relay(offer: Mapping[str, Any], origin: str, hops: int, now: int) -> dict[str, Any]:
    parts = origin, offer["offer/id"], str(offer["sequence/no"]), str(hops)
    return {
        "schema/v": 1,
        "relay/id": f"offer-relay:{derived('offer-relay', *parts)}",
        "relay/origin-node-id": origin,
        "relay/hops": hops,
        "relay/relayed-at": rfc3339(now),
        "offer": dict(offer),
    }


def route_of(relay: Mapping[str, Any], source: str) -> Route:
    return Route(
        source=source,
        origin=relay["relay/origin-node-id"],
        hops=relay["relay/hops"],
        do_not_forward=relay.get("relay/do-not-forward", False),
    )


def problem_of(
    relay: Any,
    source: str,
    me: str,
    now: int,
    *,
    by_peer: bool = True,
    offer_bytes: int = OFFER_BYTES,
    known: bytes = b"",
) -> tuple[str, str]:
    """The class of what is wrong with a relay, and a sentence; ("", "") where it can be taken.
    Its bytes are looked at before any of its values.

    `by_peer` says that `source` has signed the envelope with the relay. `known` is a version of the
    offer, as JSON with sorted keys, that was checked before: the same again is not checked again.
    """
    if message := _size_problem(relay, offer_bytes):
        return "too-large", message
    if known and _is_same(relay, known, now):
        found = Found(now)
        if is_within_limits({**relay, "offer": None}, found, KIND):
            RELAY_ALONE.check(relay, "", found)
        problems = found.problems()
    else:
        problems = check(relay, kind=KIND, at=now)
    problems = [one for one in problems if not _is_skew(one, relay, now)]
    if problems:
        return problems[0].code, str(problems[0])
    if by_peer and relay["relay/hops"] == 0 and relay["relay/origin-node-id"] != source:
        return "origin-mismatch", "a relay without a hop is sent by its origin"
    if relay.get("relay/intended-node-id", me) != me:
        return "not-intended", "the relay is for another node"
    if relay["offer"]["provider/node-id"] == me:
        return "local-offer", "offers of this node are published here, not observed"
    return "", ""


def _is_same(relay: Any, known: bytes, now: int) -> bool:
    """Whether the offer is the known one, and still valid."""
    offer = relay.get("offer") if isinstance(relay, dict) else None
    if not isinstance(offer, dict):
        return False
    try:
        return encoded(offer) == known and expires_at(offer) > now
    except (RecursionError, TypeError, ValueError):  # the known one is JSON, so this is another
        return False


def size_problem(offer: Any, most: int, what: str = "the offer") -> str:
    """Why the offer is too large, or "". What is no JSON has no size, and is told as that."""
    try:
        size = len(msgspec.json.encode(offer))
    except (RecursionError, TypeError, ValueError, OverflowError):
        return ""
    return "" if size <= most else f"{what} has {size:,} bytes; {most:,} are the most"


def _size_problem(relay: Any, offer_bytes: int) -> str:
    offer = relay.get("offer") if isinstance(relay, dict) else None
    message = size_problem(offer, offer_bytes)
    return message or size_problem(relay, offer_bytes + AROUND_BYTES, "the relay")


def _is_skew(problem: DocumentProblem, relay: Any, now: int) -> bool:
    """A time that has not come yet, by no more than clocks may differ."""
    if problem.code != "not-yet-valid" or problem.path not in _BEGINS:
        return False
    document = relay["offer"] if problem.path.startswith("/offer/") else relay
    begins = moment(document[_BEGINS[problem.path]])
    return begins is not None and begins <= now + SKEW_MS
