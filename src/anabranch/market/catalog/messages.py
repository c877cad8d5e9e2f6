"""Offers on their way between nodes: the messages, what is in them, and how much.

`offer-catalog.fetch.request` asks for offers, `offer-catalog.fetch.response` brings them, and
`offer-catalog.push` brings them unasked. An answer that leaves offers out has `next`, the id of its
last one: the filter of the next request has it as `after`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.catalog.listing import CatalogFilter
from anabranch.work.participants.performers import rfc3339

REQUEST = "offer-catalog.fetch.request"
RESPONSE = "offer-catalog.fetch.response"
PUSH = "offer-catalog.push"
OFFERS_MAX = 500  # in one message
MESSAGE_BYTES = 4 * 1024 * 1024  # of the offers in one message; peers take 8 MiB with all the rest
_QUERY_ID_MAX = 256


def relays_in(payload: Mapping[str, Any]) -> list[Any]:
    """The relays of a message: a list, one, or the message itself. Raises `InputError`."""
    if "offers" in payload:
        offers = payload["offers"]
        if not isinstance(offers, list):
            raise InputError("`offers` is a list of relays", code="schema")
        return offers
    if "relay" in payload:
        return [payload["relay"]]
    return [payload] if "relay/id" in payload else []


def pages(relays: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The relays in as many messages as they need; one without any where there are none."""
    found: list[list[dict[str, Any]]] = [[]]
    size = 0
    for relay in relays:
        length = len(msgspec.json.encode(relay))
        if found[-1] and (len(found[-1]) == OFFERS_MAX or size + length > MESSAGE_BYTES):
            found.append([])
            size = 0
        found[-1].append(relay)
        size += length
    return found


def query_id_of(payload: Any, correlation_id: str) -> str:
    """What the answer to a request repeats."""
    query_id = payload.get("query_id") if isinstance(payload, Mapping) else None
    known = isinstance(query_id, str) and 0 < len(query_id) <= _QUERY_ID_MAX
    return str(query_id) if known else correlation_id


def answer(
    relays: list[dict[str, Any]], wanted: CatalogFilter, *, node_id: str, query_id: str, now: int
) -> dict[str, Any]:
    """`offer-catalog.fetch.response` with relays that fit the filter, in the order of their ids."""
    shown = pages(relays[: wanted.limit])[0]
    found: dict[str, Any] = {
        "offers": shown,
        "node_id": node_id,
        "responded_at": rfc3339(now),
        "query_id": query_id,
        "error": None,
    }
    if len(shown) < len(relays):
        found["next"] = shown[-1]["offer"]["offer/id"]
    return found


def refusal(code: str, message: str, *, node_id: str, query_id: str, now: int) -> dict[str, Any]:
    """`offer-catalog.fetch.response` to a request that cannot be answered."""
    found = answer([], CatalogFilter(), node_id=node_id, query_id=query_id, now=now)
    return found | {"error": {"code": code, "message": message}}
