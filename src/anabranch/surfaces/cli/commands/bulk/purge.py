"""`purge`: what is kept, and for how long."""

from __future__ import annotations

import argparse

import msgspec

from anabranch.settings import Settings
from anabranch.store.ports import Space
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.output import render


async def purge(options: argparse.Namespace, settings: Settings) -> int:
    wanted = values.runs_wanted(options)
    async with open_backend(options, settings) as at:
        gone = await at.runs.purge(wanted, options.older_than, dry_run=options.dry_run)
    if options.json:
        fields = msgspec.to_builtins(gone)
        del fields["next"]
        print(render.json_line({**fields, "dry_run": options.dry_run}))
        return 0
    verb = "would delete" if options.dry_run else "deleted"
    what = f"{render.counted(gone.runs, 'run')} and {render.counted(gone.payloads, 'payload')}"
    print(f"{verb} {what} ({gone.bytes:,} bytes)")
    if not options.dry_run:
        _print_space(gone.space)
    return 0


def _print_space(space: Space) -> None:
    if space.given_back:
        print(f"gave {space.given_back:,} bytes of the store back to the file system")
    if not space.unused:
        return
    how = "purge again for more of it"
    if not space.in_steps:
        how = "`anabranch store compact` gives it back, while no engine owns the store"
    print(f"{space.unused:,} bytes of the store are unused and will be used again: {how}")
