"""How the pages of a node say things: instants from documents, short ids, and looks of states."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote

import jinja2

from anabranch.surfaces.ui import rendering
from anabranch.surfaces.ui.views import formatting

ID_SHOWN = 26  # characters of an id in a list; the whole of it is one step away
_TAIL = 6

_LOOKS: Mapping[str, str] = {
    # executions
    "opened": "plain",
    "dispatch_prepared": "active",
    "dispatched": "active",
    "awaiting_acceptance": "waiting",
    "awaiting_manual_release": "waiting",
    "disputed": "failed",
    "released": "done",
    "rejected": "failed",
    "expired": "failed",
    # deliveries and admissions
    "accepted": "active",
    "admitted": "done",
    "failed-retryable": "waiting",
    "failed-permanent": "failed",
    "already-present": "done",
    "retryable": "waiting",
    # runs and their steps
    "resolving": "active",
    "awaiting_fan_out": "active",
    "awaiting_execution": "active",
    "awaiting_fulfillment": "waiting",
    "retry_wait": "waiting",
    "fulfilled": "done",
    "not fulfilled": "failed",
    "responded": "done",
    "timeout": "failed",
    "usable": "done",
    "negative": "waiting",
    "chosen": "done",
    "ordered": "active",
    # modules
    "configured": "plain",
    "starting": "active",
    "ready": "done",
    "degraded": "waiting",
    "stopping": "waiting",
    "stopped": "quiet",
    # peers
    "reachable": "done",
    "unreachable": "failed",
    # the rest
    "settled": "done",
    "frozen": "failed",
    "refunded": "quiet",
    "withdrawn": "quiet",
    "revoked": "failed",
    "held": "done",
    "issued": "plain",
    "explicit": "done",
    "local": "done",
    "observed": "plain",
    "federation": "active",
    "untrusted": "failed",
    "valid": "done",
    "invalid": "failed",
    "missing": "failed",
    "public": "active",
    "answered": "done",
    "info": "plain",
}


def look(state: str) -> str:
    return _LOOKS.get(state) or formatting.look(state)


def short_id(text: str) -> str:
    """Its kind, and enough of its beginning and end to tell it from others."""
    kept = text.replace("did:key:", "") if text.count(":") > 1 else text
    if len(kept) <= ID_SHOWN:
        return kept
    return f"{kept[: ID_SHOWN - _TAIL - 1]}…{kept[-_TAIL:]}"


def milliseconds(text: Any) -> int | None:
    """Of an instant as documents have it; None for what is none."""
    if isinstance(text, int):
        return text
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    moment = found if found.tzinfo else found.replace(tzinfo=UTC)
    try:
        return round(moment.timestamp() * 1000)
    except (OverflowError, OSError, ValueError):
        return None


def money(amount: Any, unit: str = "") -> str:
    shown = f"{amount:,}" if isinstance(amount, int) else str(amount)
    return f"{shown} {unit}".strip()


def plain_text(value: Any) -> str:
    """Of a document that nobody has checked."""
    return value if isinstance(value, str) and value else "–"


def price(offer: Mapping[str, Any]) -> str:
    """Of an offer that nobody has checked, too."""
    amount, unit = offer.get("pricing/amount"), offer.get("pricing/currency")
    if not isinstance(amount, int) or isinstance(amount, bool):
        return "–"
    return money(amount, unit if isinstance(unit, str) else "")


@cache
def templates() -> jinja2.Environment:
    """The templates of all pages, and those of a node under `node/`."""
    base = rendering.templates()
    assert base.loader is not None
    own = jinja2.PackageLoader("anabranch.surfaces.ui.node", "templates")
    made = base.overlay(
        loader=jinja2.ChoiceLoader([jinja2.PrefixLoader({"node": own}), base.loader])
    )
    made.filters = {
        **base.filters,
        "look": look,
        "short_id": short_id,
        "milliseconds": milliseconds,
        "money": money,
        "plain_text": plain_text,
        "price": price,
        "part": lambda text: quote(text, safe=":"),  # of a path, or of a query
    }
    return made


def rendered(template: str, values: Mapping[str, Any]) -> str:
    return templates().get_template(template).render(values)
