"""Finding offers in the file: by service, provider or node, in the order of an index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from heapq import merge
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


def found_rows(
    db: sqlite3.Connection, wanted: CatalogFilter, now: int, source: str, cheapest: bool,
    hidden: bool,
) -> list[dict[str, Any]]:  # fmt: skip
    """Rows that fit, at most as many as wanted."""
    sources = ("local", "observed") if source == "all" else (source,)
    found = [list(_of_source(db, wanted, now, one, hidden)) for one in sources]
    ordered = merge(*found, key=_price) if cheapest else (row for part in found for row in part)
    return [row for row, _ in zip(ordered, range(wanted.limit), strict=False)]


def _price(row: dict[str, Any]) -> tuple[int, str]:
    return row["offer"]["pricing/amount"], row["offer"]["offer/id"]


def _of_source(
    db: sqlite3.Connection, wanted: CatalogFilter, now: int, source: str, hidden: bool
) -> Iterator[dict[str, Any]]:
    """The cheapest first, then by id."""
    conditions, values = ["source = ?"], [source]
    if not hidden:
        conditions.append("trust_level <> 'untrusted'")
    for field, column in _COLUMNS.items():
        if field in wanted.fields:
            conditions.append(f"{column} = ?")
            values.append(_text(wanted.fields[field]))
    conditions += _times(wanted, now, values)
    # The columns say most of a filter; what they do not say is read in the offers themselves.
    others = {key: value for key, value in wanted.fields.items() if key not in _COLUMNS}
    limit = "" if others else f" LIMIT {wanted.limit}"
    sql = f"SELECT * FROM offers WHERE {' AND '.join(conditions)} ORDER BY amount, offer_id{limit}"
    rest = msgspec.structs.replace(wanted, fields=others, active_only=False, after="")
    shown = 0
    for one in db.execute(sql, values):
        row = row_of(one)
        if rest.fits(row["offer"], now):
            shown += 1
            yield row
            if shown == wanted.limit:
                return


def _times(wanted: CatalogFilter, now: int, values: list[Any]) -> Sequence[str]:
    conditions = []
    if wanted.active_only:
        conditions.append("withdrawn = 0 AND expires_at > ?")
        values.append(now)
    if wanted.after:
        conditions.append("offer_id > ?")
        values.append(wanted.after)
    return conditions


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
