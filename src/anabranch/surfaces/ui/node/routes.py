"""The addresses of all pages of a node. They lie beside the endpoints of the node, never above."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from aiohttp import web

from anabranch.market.node.node import Node
from anabranch.market.node.ports import Tokens
from anabranch.surfaces.http.guard.origins import POLICY, OriginPolicy
from anabranch.surfaces.http.io.request_body import LIMITS, PARSED_AT_ONCE, PARSING, Limits
from anabranch.surfaces.ui import rendering
from anabranch.surfaces.ui.node.frame import PAGES, NodePages, Page, framed
from anabranch.surfaces.ui.node.pages import (
    catalog,
    deliveries,
    directory,
    entrance,
    inbox,
    ledger,
    modules,
    notifications,
    offers,
    orders,
    overview,
    peers,
    runs,
    templates,
)
from anabranch.surfaces.ui.node.sessions import OperatorSessions

FORM_BYTES = 4 * 1024 * 1024

_GET: dict[str, Page] = {
    "/": overview.page,
    "/runs": runs.page,
    "/runs/{run}": runs.one,
    "/modules": modules.page,
    "/modules/{module}": modules.one,
    "/peers": peers.page,
    "/directory": directory.page,
    "/offers": offers.page,
    "/offers/{offer}": offers.one,
    "/catalog": catalog.page,
    "/templates": templates.page,
    "/templates/{template}": templates.one,
    "/orders": orders.page,
    "/orders/{execution}": orders.one,
    "/inbox": inbox.page,
    "/deliveries": deliveries.page,
    "/deliveries/{delivery}": deliveries.one,
    "/ledger": ledger.page,
    "/ledger/holds/{hold}": ledger.hold,
    "/notifications": notifications.page,
}
_POST: dict[str, Page] = {
    "/runs/{run}": runs.act,
    "/runs/{run}/steps/{step}": runs.decide,
    "/modules/{module}": modules.act,
    "/peers": peers.open_session,
    "/directory/sync": directory.sync,
    "/directory/passports": directory.issue,
    "/directory/revoke": directory.revoke,
    "/directory/drop": directory.drop,
    "/offers": offers.publish,
    "/offers/fetch": offers.fetch,
    "/offers/trust": offers.trust,
    "/offers/distrust": offers.distrust,
    "/offers/{offer}/withdraw": offers.withdraw,
    "/offers/{offer}/order": offers.order,
    "/catalog/trust": catalog.trust,
    "/catalog/distrust": catalog.distrust,
    "/templates": templates.put,
    "/import-template": templates.bring,
    "/templates/{template}": templates.use,
    "/orders/{execution}": orders.act,
    "/inbox/{request}": inbox.answer,
    "/deliveries/recover": deliveries.recover,
    "/ledger/top-up": ledger.top_up,
}


def mount(app: web.Application, node: Node, tokens: Tokens) -> None:
    """Before the route that hands everything else to the node."""
    app[PAGES] = NodePages(node, OperatorSessions(node, tokens))
    own = urlsplit(node.context.config.url).hostname  # which may be another loopback address
    app[POLICY] = OriginPolicy(tokens_required=True, hosts=frozenset({own} if own else ()))
    app[LIMITS] = Limits(body_bytes=FORM_BYTES)
    app[PARSING] = asyncio.Semaphore(PARSED_AT_ONCE)
    add = app.router.add_route
    add("GET", "/static/{version}/{name}", framed(rendering.serve_static, is_open=True))
    add("GET", "/favicon.ico", framed(_icon, is_open=True))
    add("GET", "/login", framed(entrance.ask_token, is_open=True))
    add("POST", "/login", framed(entrance.enter, is_open=True))
    add("POST", "/logout", framed(entrance.leave, is_open=True))
    for path, page in _GET.items():
        add("GET", path, framed(page))
    for path, page in _POST.items():
        add("POST", path, framed(page))


async def _icon(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPSeeOther(rendering.static_path("icon.svg"))
