"""`purge`: what is kept, and for how long."""

from __future__ import annotations

import argparse
import time

import msgspec

from anabranch import app
from anabranch.operations.purging import age_ms
from anabranch.operations.purging import purge as purge_runs
from anabranch.settings import Settings
from anabranch.surfaces.cli import render, values
from anabranch.surfaces.cli.desk import require_no_server


async def purge(options: argparse.Namespace, settings: Settings) -> int:
    require_no_server(settings, "purge")
    values.require_store(settings)
    older_than = age_ms(options.older_than)
    store = app.open_store(settings)
    try:
        now = int(time.time() * 1000)
        gone = purge_runs(store, older_than, now, dry_run=options.dry_run)
        if not options.dry_run:
            store.expire(now)
    finally:
        store.close()
    if options.json:
        print(render.json_line({**msgspec.to_builtins(gone), "dry_run": options.dry_run}))
        return 0
    verb = "would delete" if options.dry_run else "deleted"
    print(f"{verb} {gone.runs:,} runs and {gone.payloads:,} payloads ({gone.bytes:,} bytes)")
    return 0
