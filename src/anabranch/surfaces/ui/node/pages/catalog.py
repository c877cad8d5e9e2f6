"""All offers that this node and its modules know, in one list: where from, how far trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from aiohttp import web

from anabranch.surfaces.ui.node.catalog_rows import SHOWN, Row, merged, rows_of
from anabranch.surfaces.ui.node.frame import (
    PAGES,
    Refusal,
    Trouble,
    ask,
    form_of,
    part,
    see,
    show,
    trouble,
)
from anabranch.surfaces.ui.node.pages.offers import LISTED, OFFERS, TRUSTED

#: The catalog of Arca, as the node serves it for the module.
ARCA_CATALOG = "/v1/enact/service-catalog"
FILTERS = ("show", "service_type", "provider")


async def page(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    chosen = {name: request.query.get(name, "").strip() for name in FILTERS}
    shown = chosen["show"] if chosen["show"] in SHOWN else "active"
    trusted = (await ask(request, "GET", TRUSTED))["items"]
    names = frozenset(one["entry/participant-id"] for one in trusted)
    own, counts = await _of_the_node(request, chosen, shown, names)
    others, trouble_there = await _of_arca(request, chosen, shown, names)
    rows = merged([*own, *others], shown)
    return show(
        request,
        "node/catalog.html",
        wrong,
        rows=rows,
        more=counts["local"] + counts["observed"] - counts["shown"],
        hidden=counts["hidden"],
        trouble_there=trouble_there,
        chosen=chosen,
        shown=shown,
        words=SHOWN,
        ways={word: _way({**chosen, "show": word}) for word in SHOWN},
        here=_query(chosen),
        services=sorted({str(row.offer.get("service/type")) for row in rows}),
    )


async def trust(request: web.Request) -> web.StreamResponse:
    return await _changed(request, "trusted")


async def distrust(request: web.Request) -> web.StreamResponse:
    return await _changed(request, "distrusted")


async def _changed(request: web.Request, note: str) -> web.StreamResponse:
    form = await form_of(request)
    name = form.get("participant_id", "")
    try:
        if note == "trusted":
            await ask(request, "POST", TRUSTED, {"participant_id": name})
        else:
            await ask(request, "DELETE", f"{TRUSTED}/{part(name or '-')}")
    except Refusal as refusal:
        return await page(request, trouble(refusal, "rows", form))
    # Only what the page itself could have written: this goes into an address.
    raise see(_way(dict(parse_qsl(form.get("here", "")[:2000]))), note)


def _query(chosen: Mapping[str, str]) -> str:
    return urlencode({name: chosen[name] for name in FILTERS if chosen.get(name)})


def _way(chosen: Mapping[str, str]) -> str:
    query = _query(chosen)
    return f"/catalog?{query}" if query else "/catalog"


def _wanted(chosen: Mapping[str, str], shown: str) -> dict[str, str]:
    query = {"active_only": "true" if shown == "active" else "false", "limit": LISTED}
    if chosen["service_type"]:
        query["service_type"] = chosen["service_type"]
    if chosen["provider"]:
        is_node = chosen["provider"].startswith("node:")
        query["provider_node" if is_node else "provider"] = chosen["provider"]
    return query


async def _of_the_node(
    request: web.Request, chosen: Mapping[str, str], shown: str, trusted: frozenset[str]
) -> tuple[list[Row], dict[str, int]]:
    query = {**_wanted(chosen, shown), "source": "all"}
    if shown == "hidden":
        query["hidden"] = "true"
    found = await ask(request, "GET", OFFERS, query=query)
    listed = [*found["local_offers"], *found["observed_offers"]]
    rows = rows_of(listed, _now(request), trusted, hidden=shown == "hidden")
    return rows, found["counts"]


async def _of_arca(
    request: web.Request, chosen: Mapping[str, str], shown: str, trusted: frozenset[str]
) -> tuple[list[Row], str]:
    """What only the catalog of Arca has, and why that could not be asked, where it could not."""
    if shown == "hidden":
        return [], ""
    try:
        found: Any = await ask(request, "GET", ARCA_CATALOG, query=_wanted(chosen, shown))
    except Refusal as refusal:
        return [], "" if refusal.status == 404 else refusal.message
    listed = found.get("observed_offers") if isinstance(found, dict) else None
    rows = listed if isinstance(listed, list) else []
    return rows_of(rows[: int(LISTED)], _now(request), trusted, "arca", hidden=False), ""


def _now(request: web.Request) -> int:
    return request.app[PAGES].node.context.clock.now()
