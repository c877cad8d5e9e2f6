"""`purge`: what is kept, and for how long."""

from __future__ import annotations

import argparse

import msgspec

from anabranch.settings import Settings
from anabranch.surfaces.cli import render, values
from anabranch.surfaces.cli.desk import desk


async def purge(options: argparse.Namespace, settings: Settings) -> int:
    wanted = values.runs_wanted(options)
    async with desk(options, settings) as at:
        gone = await at.purge(wanted, options.older_than, dry_run=options.dry_run)
    if options.json:
        print(render.json_line({**msgspec.to_builtins(gone), "dry_run": options.dry_run}))
        return 0
    verb = "would delete" if options.dry_run else "deleted"
    print(f"{verb} {gone.runs:,} runs and {gone.payloads:,} payloads ({gone.bytes:,} bytes)")
    return 0
