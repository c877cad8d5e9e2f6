"""`arca`: which action it is, and for which folder."""

from __future__ import annotations

import argparse
import os

from anabranch.market.node.folder import NodeFolder
from anabranch.settings import Settings
from anabranch.surfaces.cli.commands.arca import runs
from anabranch.surfaces.cli.commands.arca.client import ArcaClient


async def arca(options: argparse.Namespace, settings: Settings) -> int:
    if options.action == "serve":
        from anabranch.surfaces.cli.commands.arca.serve import serve

        return await serve(options)
    folder = NodeFolder(getattr(options, "node", None) or os.environ.get("ANABRANCH_NODE") or ".")
    return await runs.ACTIONS[options.action](options, await ArcaClient.of(folder))
