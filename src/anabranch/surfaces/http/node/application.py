"""The web application of a node: its pages, and its table of endpoints for every other path."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from aiohttp import web

from anabranch.market.node.api import BODY_BYTES
from anabranch.market.node.node import Node
from anabranch.market.node.ports import Tokens
from anabranch.surfaces.http.guard.connection_limits import until_answered
from anabranch.surfaces.http.node.openapi import openapi_endpoint
from anabranch.surfaces.http.table import add_table

logger = logging.getLogger("anabranch.node")

#: Adds what else is served at the address of a node: its pages.
Mount = Callable[[web.Application, Node, Tokens], None]


def node_application(node: Node, tokens: Tokens, mounts: Sequence[Mount] = ()) -> web.Application:
    app = web.Application(client_max_size=BODY_BYTES + 1, middlewares=(until_answered,))
    node.api.add(openapi_endpoint(node.api))
    for mount in mounts:  # before the route that takes every path
        mount(app, node, tokens)
    add_table(
        app, node.api, lambda _path, headers: tokens.caller(headers), name="node", logger=logger
    )
    return app
