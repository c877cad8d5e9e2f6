"""`arca`: which action it is, and for which folder."""

from __future__ import annotations

import argparse
import os

from anabranch.market.node.folder import NodeFolder
from anabranch.settings import Settings
from anabranch.surfaces.cli.commands.arca import runs, templates
from anabranch.surfaces.cli.commands.arca.client import ArcaClient


async def arca(options: argparse.Namespace, settings: Settings) -> int:
    if options.action == "serve":
        from anabranch.surfaces.cli.commands.arca.serve import serve

        return await serve(options)
    folder = NodeFolder(getattr(options, "node", None) or os.environ.get("ANABRANCH_NODE") or ".")
    if options.action == "templates":
        act = templates.ACTIONS[getattr(options, "do", None) or ""]
    else:
        act = runs.ACTIONS[options.action]
    return await act(options, await ArcaClient.of(folder))
