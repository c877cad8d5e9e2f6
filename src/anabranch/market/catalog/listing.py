"""Lists of offers: what is asked for, the rows, and the answer as a catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.catalog.routes import Route, Trust, is_active
from anabranch.work.participants.performers import rfc3339

LIMIT, LIMIT_MAX = 100, 500
KEYS_MAX = 100  # of a filter: peers write them, and each is compared with offers
_SPELLINGS = {"service_type": "service/type"}
_encode = msgspec.json.Encoder(order="sorted").encode


class CatalogFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which offers; every other key of a filter is a field that an offer must have as it is."""

    fields: Mapping[str, bytes] = {}  # values as JSON: true is not 1
    active_only: bool = True
    limit: int = LIMIT
    after: str = ""  # the id of an offer: those whose ids follow it

    def fits(self, offer: dict[str, Any], now: int) -> bool:
        if self.after and offer["offer/id"] <= self.after:
            return False
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
    if len(given) > KEYS_MAX:
        raise InputError(f"`filter` has at most {KEYS_MAX} keys", code="bad_query")
    fields = {_SPELLINGS.get(str(key), str(key)): value for key, value in given.items()}
    active, limit = fields.pop("active_only", True), fields.pop("limit", LIMIT)
    after = fields.pop("after", "")
    if not isinstance(active, bool):
        raise InputError("`active_only` is true or false", code="bad_query")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InputError("`limit` is a number from 1 on", code="bad_query")
    if not isinstance(after, str):
        raise InputError("`after` is the `next` of an earlier answer", code="bad_query")
    wanted = {key: _encode(value) for key, value in fields.items()}
    most = min(limit, LIMIT_MAX)
    return CatalogFilter(fields=wanted, active_only=active, limit=most, after=after)


#: Parameters of `GET /v1/service-offers`.
QUERY = ("source", "service_type", "provider_node", "provider", "active_only", "hidden", "limit")


def query_of(query: Mapping[str, str]) -> tuple[str, CatalogFilter]:
    """The source and the filter of a query. Raises `InputError`."""
    source = query.get("source", "local")
    if source not in ("local", "observed", "all"):
        raise InputError("`source` is local, observed or all", code="bad_query")
    if query.get("active_only", "true") not in ("true", "false"):
        raise InputError("`active_only` is true or false", code="bad_query")
    text = query.get("limit", str(LIMIT))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= LIMIT_MAX):
        raise InputError(f"`limit` is a number from 1 to {LIMIT_MAX}", code="bad_query")
    names = {
        "service_type": "service/type",
        "provider_node": "provider/node-id",
        "provider": "provider/participant-id",
    }
    fields = {field: _encode(query[name]) for name, field in names.items() if name in query}
    active = query.get("active_only") != "false"
    return source, CatalogFilter(fields=fields, active_only=active, limit=int(text))


def local_row(offer: dict[str, Any], node_id: str | None) -> dict[str, Any]:
    """An offer of the node itself."""
    return {
        "offer": offer,
        "source": "local",
        "trust_level": "local",
        "source_node_id": node_id,
        "relay_origin_node_id": None,
        "relay_hops": None,
        "observed_at": None,
        "queue": _queue(offer),
    }


def observed_row(offer: dict[str, Any], trust: Trust, route: Route, at: int) -> dict[str, Any]:
    return {
        "offer": offer,
        "source": "observed",
        "trust_level": trust,
        "source_node_id": route.source or None,
        "relay_origin_node_id": route.origin or None,
        "relay_hops": route.hops if route.source else None,
        "observed_at": rfc3339(at),
        "queue": _queue(offer),
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
