"""Offers from all catalogs of a node as rows of one list. PURE.

The node has checked the offers it lists; those that a module lists are taken for what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from anabranch.surfaces.ui.node.views import milliseconds

#: Which offers are shown, and what the word of the list says.
SHOWN: Mapping[str, str] = {
    "active": "Active",
    "withdrawn": "Withdrawn",
    "expired": "Expired",
    "hidden": "Hidden",
    "all": "All",
}


class Row(NamedTuple):
    offer: Mapping[str, Any]
    source: str  # local, observed, or the module that lists it
    trust: str
    hops: int | None
    seen_at: str  # the node it came from
    status: str  # active, withdrawn, expired
    is_trusted: bool  # its provider is
    can_order: bool

    @property
    def provider(self) -> str:
        found = self.offer.get("provider/participant-id")
        return found if isinstance(found, str) else ""


def status_of(offer: Mapping[str, Any], now: int) -> str:
    if offer.get("offer/status") == "withdrawn":
        return "withdrawn"
    ends = milliseconds(offer.get("expires-at"))
    return "expired" if ends is None or ends <= now else "active"


def rows_of(
    found: Iterable[Any], now: int, trusted: frozenset[str], source: str = "", *, hidden: bool
) -> list[Row]:
    """Of what a catalog answers; `source` stands in the place of what it says."""
    return [
        _row(one, now, trusted, source, hidden=hidden)
        for one in found
        if isinstance(one, dict) and _is_offer(one.get("offer"))
    ]


def _is_offer(offer: Any) -> bool:
    return isinstance(offer, dict) and isinstance(offer.get("offer/id"), str)


def _row(
    given: Mapping[str, Any], now: int, trusted: frozenset[str], source: str, *, hidden: bool
) -> Row:
    offer, hops = given["offer"], given.get("relay_hops")
    status = status_of(offer, now)
    return Row(
        offer=offer,
        source=source or str(given.get("source") or "observed"),
        trust=str(given.get("trust_level") or "unknown"),
        hops=hops if isinstance(hops, int) else None,
        seen_at=str(given.get("source_node_id") or ""),
        status=status,
        is_trusted=offer.get("provider/participant-id") in trusted,
        can_order=status == "active" and not source and not hidden,
    )


def merged(rows: Iterable[Row], shown: str) -> list[Row]:
    """One row for an offer, the first: local before observed before what modules list."""
    by_id: dict[str, Row] = {}
    for row in rows:
        by_id.setdefault(row.offer["offer/id"], row)
    kept = [row for row in by_id.values() if shown in ("all", "hidden", row.status)]
    return sorted(kept, key=_order)


def _order(row: Row) -> tuple[bool, str, int, str]:
    amount = row.offer.get("pricing/amount")
    price = amount if isinstance(amount, int) else 0
    return row.source != "local", str(row.offer.get("service/type")), price, row.offer["offer/id"]
