"""`export` and `import`: runs that have ended, from one store to another as a file."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import msgspec

from anabranch.errors import InputError
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.read.reader import Reader
from anabranch.operations.stores.exports import Exported, export_runs, new_file
from anabranch.operations.stores.imports import Imported, Limits, import_runs
from anabranch.runtime.nets import Nets
from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.identity import who
from anabranch.surfaces.cli.backend.local.store import LocalStore
from anabranch.surfaces.cli.commands.stores.progress import Progress
from anabranch.surfaces.cli.output import render


async def export(options: argparse.Namespace, settings: Settings) -> int:
    _require_local(options, settings)
    if options.file is None and (options.json or os.isatty(sys.stdout.fileno())):
        raise InputError("an export is no text: name a file with --file", code="usage")

    def work() -> Exported:
        with LocalStore(settings, who(options)).reading() as store:
            read = Reader(store, Nets(store, compiler()))
            runs = [read.find(run).run for run in options.run]
            with _target(options.file) as file:
                return export_runs(store, runs, file, _now())

    done = await Progress(options).over(work)
    if options.json:
        print(render.json_line({"file": options.file, **msgspec.to_builtins(done)}))
        return 0
    counted = render.counted
    counts = f"{counted(done.runs, 'run')}, {counted(done.events, 'event')}"
    counts += f", {counted(done.payloads, 'payload')}"
    place = options.file or "standard output"
    print(f"exported {counts} to {place}", file=sys.stderr if options.file is None else None)
    if done.missing:
        gone = f"{done.missing:,} payloads that these runs name were deleted before"
        print(f"anabranch: {gone}", file=sys.stderr)
    return 0


async def import_(options: argparse.Namespace, settings: Settings) -> int:
    _require_local(options, settings)
    limits = Limits(settings.payload_bytes_max, settings.run_log_bytes_max)

    def work() -> Imported:
        local, path, dry = LocalStore(settings, who(options)), Path(options.file), options.dry_run
        with local.writing(new=True) as store:
            line = local.audit_line(store, "runs.import", str(path))
            with nullcontext() if dry else line.announce():
                return import_runs(store, path, compiler(), _now(), limits, dry_run=dry)

    if not os.path.exists(options.file):
        raise InputError(f"there is no file {options.file}", code="no_file")
    done = await Progress(options).over(work)
    if options.json:
        print(render.json_line({**msgspec.to_builtins(done), "dry_run": options.dry_run}))
        return 0
    verb = "would import" if options.dry_run else "imported"
    runs, payloads = render.counted(done.runs, "run"), render.counted(done.payloads, "payload")
    print(f"{verb} {runs} and {payloads}", end="")
    print(f"; {done.there:,} were there already" if done.there else "")
    return 0


def _target(file: str | None) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdout.buffer) if file is None else new_file(Path(file))


def _require_local(options: argparse.Namespace, settings: Settings) -> None:
    if settings.server:
        raise InputError(
            f"{options.verb} works on a store itself, and the setting server "
            "(ANABRANCH_SERVER, anabranch.toml) names a server: say which store with --store, or "
            "unset it",
            code="usage",
        )


def _now() -> int:
    return int(time.time() * 1000)
