"""`node`: which action it is, and for which folder."""

from __future__ import annotations

import argparse
import os

from anabranch.market.node.folder import NodeFolder
from anabranch.settings import Settings
from anabranch.surfaces.cli.commands.node import local, market, money, network
from anabranch.surfaces.cli.commands.node.client import NodeClient, started

_ASKED = {**network.ACTIONS, **market.ACTIONS, **money.ACTIONS}


async def node(options: argparse.Namespace, settings: Settings) -> int:
    if options.action == "init":
        return local.init(options)
    folder = NodeFolder(getattr(options, "node", None) or os.environ.get("ANABRANCH_NODE") or ".")
    if options.action in local.ACTIONS:
        return await local.ACTIONS[options.action](options, folder)
    action = (options.action, getattr(options, "do", None) or "")
    wait = options.wait or 0 if options.action == "status" else 0
    client = await started(folder, wait) if wait else NodeClient(folder)
    return await _ASKED[action](options, client)
