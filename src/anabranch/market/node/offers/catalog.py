"""Lists of offers: what is asked for, the rows, and the answer as a catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.node.errors import NodeError
from anabranch.market.node.offers.records import LocalOffer, ObservedOffer, is_active
from anabranch.work.participants.performers import rfc3339

LIMIT, LIMIT_MAX = 100, 500
_SPELLINGS = {"service_type": "service/type"}
_encode = msgspec.json.Encoder(order="sorted").encode


class CatalogFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which offers; every other key of a filter is a field that an offer must have as it is."""

    fields: Mapping[str, bytes] = {}  # values as JSON: true is not 1
    active_only: bool = True
    limit: int = LIMIT

    def fits(self, offer: dict[str, Any], now: int) -> bool:
        if self.active_only and not is_active(offer, now):
            return False
        return all(
            key in offer and _encode(offer[key]) == value for key, value in self.fields.items()
        )


def filter_of(given: Any) -> CatalogFilter:
    """The filter of a message or of a call. Raises `InputError`."""
    if given is None:
        return CatalogFilter()
    if not isinstance(given, dict):
        raise InputError("`filter` is an object", code="bad_query")
    fields = {_SPELLINGS.get(str(key), str(key)): value for key, value in given.items()}
    active, limit = fields.pop("active_only", True), fields.pop("limit", LIMIT)
    if not isinstance(active, bool):
        raise InputError("`active_only` is true or false", code="bad_query")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InputError("`limit` is a number from 1 on", code="bad_query")
    wanted = {key: _encode(value) for key, value in fields.items()}
    return CatalogFilter(fields=wanted, active_only=active, limit=min(limit, LIMIT_MAX))


#: Parameters of `GET /v1/service-offers`.
QUERY = ("source", "service_type", "provider_node", "provider", "active_only", "hidden", "limit")


def query_of(query: Mapping[str, str]) -> tuple[str, CatalogFilter]:
    """The source and the filter of a query. Raises `NodeError`."""
    source = query.get("source", "local")
    if source not in ("local", "observed", "all"):
        raise NodeError(400, "bad_query", "`source` is local, observed or all")
    if query.get("active_only", "true") not in ("true", "false"):
        raise NodeError(400, "bad_query", "`active_only` is true or false")
    text = query.get("limit", str(LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= LIMIT_MAX):
        raise NodeError(400, "bad_query", f"`limit` is a number from 1 to {LIMIT_MAX}")
    names = {
        "service_type": "service/type",
        "provider_node": "provider/node-id",
        "provider": "provider/participant-id",
    }
    fields = {field: _encode(query[name]) for name, field in names.items() if name in query}
    active = query.get("active_only") != "false"
    return source, CatalogFilter(fields=fields, active_only=active, limit=int(text))


def local_row(one: LocalOffer, node_id: str) -> dict[str, Any]:
    return {
        "offer": one.offer,
        "source": "local",
        "trust_level": "local",
        "source_node_id": node_id,
        "relay_origin_node_id": None,
        "relay_hops": None,
        "observed_at": None,
        "queue": _queue(one.offer),
    }


def observed_row(one: ObservedOffer) -> dict[str, Any]:
    return {
        "offer": one.offer,
        "source": "observed",
        "trust_level": one.trust,
        "source_node_id": one.route.source,
        "relay_origin_node_id": one.route.origin,
        "relay_hops": one.route.hops,
        "observed_at": rfc3339(one.observed_at),
        "queue": _queue(one.offer),
    }


def _queue(offer: dict[str, Any]) -> dict[str, Any]:
    """What the offer says of its queue: a depth of 0 takes no orders."""
    most, current = offer["queue/max-depth"], offer.get("queue/current-depth", 0)
    return {"max_depth": most, "current_depth": current, "saturated": current >= most}


def answer(
    local: Iterable[dict[str, Any]], observed: Iterable[dict[str, Any]], limit: int,
    capability_id: str,
) -> dict[str, Any]:  # fmt: skip
    """`offer-catalog-query-response.v1`: the offers alone, and the rows by where they are from."""
    own, others = list(local), list(observed)
    shown = (own + others)[:limit]
    return {
        "schema_version": "v1",
        "capability_id": capability_id,
        "offers": [row["offer"] for row in shown],
        "local_offers": [row for row in shown if row["source"] == "local"],
        "observed_offers": [row for row in shown if row["source"] == "observed"],
        "counts": {"local": len(own), "observed": len(others), "shown": len(shown)},
    }
