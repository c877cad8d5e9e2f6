"""`store`: back up, restore, check, compact, copy and migrate a store as a whole."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import msgspec

from anabranch.errors import InputError, StoreError
from anabranch.operations.access.secret_key import key_of
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.stores import files
from anabranch.operations.stores.check import StoreReport, check_store
from anabranch.operations.stores.copy import TargetReport, copy_store
from anabranch.operations.stores.migrate import migrate
from anabranch.operations.stores.opening import inspect_store
from anabranch.settings import Settings
from anabranch.store.access_ports import AuditEntry
from anabranch.store.ports import Store
from anabranch.store.sqlite.copy import Copy, Restored
from anabranch.surfaces.cli.backend.identity import who
from anabranch.surfaces.cli.backend.local.audit import AuditLine, entry_of
from anabranch.surfaces.cli.backend.local.store import LocalStore
from anabranch.surfaces.cli.commands.stores.progress import Progress
from anabranch.surfaces.cli.output import render

DAMAGED = 1


async def store(options: argparse.Namespace, settings: Settings) -> int:
    if settings.server and options.action != "copy":  # that names both of its stores
        raise InputError(
            f"store {options.action} works on a store itself, and the setting server "
            "(ANABRANCH_SERVER, anabranch.toml) names a server: say which store with --store, or "
            "unset it",
            code="usage",
        )
    return await ACTIONS[options.action](options, settings)


async def _backup(options: argparse.Namespace, settings: Settings) -> int:
    progress = Progress(options)
    made, notes = await progress.over(
        lambda: files.backup(settings, options.to, progress.pages, force=options.force)
    )
    if options.json:
        print(render.json_line({**msgspec.to_builtins(made), "notes": notes}))
        return 0
    print(f"backed up {settings.store} to {made.path}: {_holds(made)}")
    _say_notes(notes)
    return 0


async def _restore(options: argparse.Namespace, settings: Settings) -> int:
    progress = Progress(options)
    done, means = await progress.over(
        lambda: files.restore(settings, options.source, progress.pages)
    )
    _record_restore(options, settings, done)
    if options.json:
        print(render.json_line({**msgspec.to_builtins(done), "notes": means}))
        return 0
    print(f"restored {done.path} from {options.source}: {_holds(done)}")
    if done.kept_as:
        print(f"the earlier file is kept as {done.kept_as}")
    _say_notes(means)
    return 0


async def _check(options: argparse.Namespace, settings: Settings) -> int:
    progress = Progress(options)

    def work() -> StoreReport:
        with inspect_store(settings) as inspection:
            key = key_of(inspection, settings)
            return check_store(inspection, compiler(), progress, key)

    report = await progress.over(work)
    if options.json:
        print(render.json_line({**msgspec.to_builtins(report), "sound": report.sound}))
    else:
        _print_report(report)
    return 0 if report.sound else DAMAGED


async def _compact(options: argparse.Namespace, settings: Settings) -> int:
    progress = Progress(options)

    def announce(kept: Store) -> AbstractContextManager[None]:
        return AuditLine(kept, who(options), "store.compact").announce()

    done = await progress.over(lambda: files.compact(settings, announce))
    given = max(0, done.bytes_before - done.bytes_after)
    said = f"compacted {done.path}: {done.bytes_after:,} bytes, {given:,} given back"
    return render.tell(options, msgspec.to_builtins(done), said)


async def _copy(options: argparse.Namespace, settings: Settings) -> int:
    progress = Progress(options, lines=True)
    if options.partitions is not None:
        settings = replace(settings, store_partitions=options.partitions)

    def audit(source: str) -> AuditEntry:
        return entry_of(who(options), "store.copy", source)

    done = await progress.over(
        lambda: copy_store(settings, options.source, options.to, progress, audit)
    )
    if options.json:
        print(render.json_line({**msgspec.to_builtins(done), "sound": done.check.sound}))
    else:
        _print_copy(done)
    return 0 if done.check.sound else DAMAGED


async def _migrate(options: argparse.Namespace, settings: Settings) -> int:
    audit = entry_of(who(options), "store.migrate")
    done = await Progress(options).over(lambda: migrate(settings, audit))
    said = f"{done.store} has schema {done.version} already"
    if done.changed:
        before = f"from schema {done.version_before}" if done.version_before else "newly made"
        said = f"{done.store} has schema {done.version} now, {before}"
    return render.tell(options, msgspec.to_builtins(done), said)


def _print_copy(done: TargetReport) -> None:
    rows = sum(one.rows for one in done.tables)
    how = "went on with the copy of" if done.resumed else "copied"
    print(f"{how} {done.source} to {done.target}: {rows:,} rows, the same on both sides")
    if done.notifications:
        print(f"{done.notifications:,} notifications were found for webhooks, and wait there")
    _print_report(msgspec.structs.replace(done.check, notes=done.notes))


def _print_report(report: StoreReport) -> None:
    for one in report.problems:
        where = f"run {one.run}" if one.run else "store"
        print(f"{where}: {one.part}: {render.clean(one.message)}")
    if report.problems_not_listed:
        print(f"and {report.problems_not_listed:,} more")
    count = len(report.problems) + report.problems_not_listed
    verdict = "sound" if report.sound else render.counted(count, "problem")
    looked = [
        render.counted(report.runs, "run"),
        render.counted(report.events, "event"),
        render.counted(report.payloads, "payload"),
        render.counted(report.streams, "stream") if report.streams else "",
        render.counted(report.records, "record") if report.records else "",
        render.counted(report.definitions, "definition"),
    ]
    print(f"{report.store}: {verdict} ({', '.join(filter(None, looked))})")
    _say_notes(report.notes)


def _holds(made: Copy) -> str:
    last = "no change yet"
    if made.last_change_at is not None:
        last = f"last change {render.instant(made.last_change_at)}"
    return f"{render.counted(made.runs, 'run')}, {made.bytes:,} bytes, {last}"


def _say_notes(notes: list[str]) -> None:
    for one in notes:
        print(f"note: {one}", file=sys.stderr)


def _record_restore(options: argparse.Namespace, settings: Settings, done: Restored) -> None:
    """A backup can be older than the schema with an audit trail, so the line follows what it is
    about: opening the store for it brings that up to date."""
    try:
        with LocalStore(settings).writing() as store:
            store.add_audit([entry_of(who(options), "store.restore", options.source)])
    except StoreError as error:
        earlier = f"; the earlier file is {done.kept_as}" if done.kept_as else ""
        raise StoreError(
            f"{done.path} is restored from {options.source}, and that is not in its audit trail, "
            f"which cannot be written: {error.message}{earlier}",
            code=error.code,
        ) from error


Action = Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, int]]

ACTIONS: dict[str, Action] = {
    "backup": _backup,
    "restore": _restore,
    "check": _check,
    "compact": _compact,
    "copy": _copy,
    "migrate": _migrate,
}
