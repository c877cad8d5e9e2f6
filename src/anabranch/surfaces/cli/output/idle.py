"""What a verb says when it has recorded something that only an engine begins, and none runs."""

from __future__ import annotations

import argparse
import sys

from anabranch.surfaces.cli.backend.port import Backend


async def tell_if_idle(options: argparse.Namespace, at: Backend, what: str) -> None:
    if options.json or await at.runs.has_engine():
        return
    said = f"no engine is running: {what} when one does (`anabranch serve` starts one)"
    print(said, file=sys.stderr)
