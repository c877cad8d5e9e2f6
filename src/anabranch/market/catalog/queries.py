"""Finding offers in the file: by service, provider or node, in the order of an index."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import Any

import msgspec

from anabranch.market.catalog.admission import stored_route
from anabranch.market.catalog.listing import CatalogFilter, local_row, observed_row

#: Fields of a filter that stand in a column of their own, most selective first.
_COLUMNS = {
    "provider/participant-id": "provider",
    "provider/node-id": "provider_node",
    "service/type": "service_type",
}
_read = msgspec.json.decode


class Query(msgspec.Struct, frozen=True, kw_only=True):
    wanted: CatalogFilter
    now: int
    hidden: bool = False
    fits: Callable[[Mapping[str, Any]], bool] | None = None  # besides the filter

    def rows(self, db: sqlite3.Connection, source: str, *, cheapest: bool) -> list[dict[str, Any]]:
        """Rows that fit, at most as many as wanted: the cheapest, or local ones, first."""
        sources = ("local", "observed") if source == "all" else (source,)
        found = [list(self._of_source(db, one)) for one in sources]
        ordered = merge(*found, key=_price) if cheapest else (row for part in found for row in part)
        return list(islice(ordered, self.wanted.limit))

    def _of_source(self, db: sqlite3.Connection, source: str) -> Iterator[dict[str, Any]]:
        """The cheapest first, then by id."""
        wanted = self.wanted
        # The columns say most of a filter; what they do not say is read in the offers themselves.
        others = {key: value for key, value in wanted.fields.items() if key not in _COLUMNS}
        rest = CatalogFilter(fields=others, active_only=False)
        conditions, values = self._conditions(source)
        every = bool(others) or self.fits is not None
        limit = "" if every else f" LIMIT {wanted.limit}"
        sql = f"SELECT * FROM offers WHERE {conditions} ORDER BY amount, offer_id{limit}"
        shown = 0
        for one in db.execute(sql, values):
            row = row_of(one)
            if not rest.fits(row["offer"], self.now):
                continue
            if self.fits is not None and not self.fits(row["offer"]):
                continue
            shown += 1
            yield row
            if shown == wanted.limit:
                return

    def _conditions(self, source: str) -> tuple[str, list[Any]]:
        conditions = ["source = ?"]
        values: list[Any] = [source]
        if not self.hidden:
            conditions.append("trust_level <> 'untrusted'")
        for field, column in _COLUMNS.items():
            if field in self.wanted.fields:
                conditions.append(f"{column} = ?")
                values.append(_text(self.wanted.fields[field]))
        if self.wanted.active_only:
            conditions.append("withdrawn = 0 AND expires_at > ?")
            values.append(self.now)
        if self.wanted.after:
            conditions.append("offer_id > ?")
            values.append(self.wanted.after)
        return " AND ".join(conditions), values


def _price(row: dict[str, Any]) -> tuple[int, str]:
    return row["offer"]["pricing/amount"], row["offer"]["offer/id"]


def _text(value: bytes) -> Any:
    """What a column can be compared with; anything but a text fits nothing."""
    found = _read(value)
    return found if isinstance(found, str) else None


def found_row(db: sqlite3.Connection, offer_id: str) -> sqlite3.Row | None:
    found: sqlite3.Row | None = db.execute(
        "SELECT * FROM offers WHERE offer_id = ?", (offer_id,)
    ).fetchone()
    return found


def row_of(one: sqlite3.Row) -> dict[str, Any]:
    offer = _read(one["body"])
    if one["source"] == "local":
        return local_row(offer, one["source_node_id"] or None)
    row = observed_row(offer, one["trust_level"], stored_route(one), one["observed_at"])
    return row | {"agora_record_id": one["agora_record_id"] or None}


def counted(db: sqlite3.Connection) -> dict[str, int]:
    counts = {"local": 0, "observed": 0, "hidden": 0}
    for kind, number in db.execute(
        "SELECT CASE WHEN trust_level = 'untrusted' THEN 'hidden' ELSE source END, count(*)"
        " FROM offers GROUP BY 1"
    ):
        counts[kind] = number
    return counts
