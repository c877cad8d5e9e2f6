"""`store`: back up, restore, check and compact the file of a store."""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from anabranch.errors import InputError
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.stores import files
from anabranch.operations.stores.check import StoreReport, check_store
from anabranch.settings import Settings
from anabranch.store.sqlite.copy import Copy
from anabranch.store.sqlite.inspect import Inspection
from anabranch.surfaces.cli.backend.identity import who
from anabranch.surfaces.cli.backend.local.audit import note
from anabranch.surfaces.cli.backend.local.store import LocalStore
from anabranch.surfaces.cli.output import render

DAMAGED = 1
SHOWN_EVERY_SECONDS = 0.2

T = TypeVar("T")


class Progress:
    """One line on a terminal that says how far it is; also how an interrupt ends the work."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._shown = sys.stderr.isatty() and not options.json
        self._last = 0.0
        self._stop = threading.Event()

    def pages(self, done: int, total: int) -> None:
        self(f"of {total:,} pages", done, total)

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        now = time.monotonic()
        if self._shown and now - self._last >= SHOWN_EVERY_SECONDS:
            self._last = now
            share = f"{100 * done // total:3d} % " if total else ""
            self._say(f"{share}{what}")

    async def over(self, work: Callable[[], T]) -> T:
        """Do this in a thread, so that an interrupt is heard."""
        try:
            return await asyncio.to_thread(work)
        finally:
            self._stop.set()
            if self._shown and self._last:
                self._say("")

    @staticmethod
    def _say(text: str) -> None:
        print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)


async def store(options: argparse.Namespace, settings: Settings) -> int:
    if settings.server:
        raise InputError(
            f"store {options.action} works on a file of this machine, and ANABRANCH_SERVER names a "
            "server: say which store with --store, or unset it",
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
    _note(options, settings, "store.restore", options.source)
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
        with Inspection(files.file_of(settings)) as inspection:
            return check_store(inspection, compiler(), progress)

    report = await progress.over(work)
    if options.json:
        print(render.json_line({**msgspec.to_builtins(report), "sound": report.sound}))
    else:
        _print_report(report)
    return 0 if report.sound else DAMAGED


async def _compact(options: argparse.Namespace, settings: Settings) -> int:
    progress = Progress(options)
    done = await progress.over(lambda: files.compact(settings))
    _note(options, settings, "store.compact", "")
    given = max(0, done.bytes_before - done.bytes_after)
    said = f"compacted {done.path}: {done.bytes_after:,} bytes, {given:,} given back"
    return render.tell(options, msgspec.to_builtins(done), said)


def _print_report(report: StoreReport) -> None:
    for one in report.problems:
        where = f"run {one.run}" if one.run else "store"
        print(f"{where}: {one.part}: {render.clean(one.message)}")
    if report.problems_not_listed:
        print(f"and {report.problems_not_listed:,} more")
    count = len(report.problems) + report.problems_not_listed
    verdict = "sound" if report.sound else f"{count:,} problems"
    looked = f"{report.runs:,} runs, {report.events:,} events, {report.payloads:,} payloads"
    print(f"{report.store}: {verdict} ({looked}, {report.definitions:,} definitions)")
    _say_notes(report.notes)


def _holds(made: Copy) -> str:
    last = "no change yet"
    if made.last_change_at is not None:
        last = f"last change {render.instant(made.last_change_at)}"
    return f"{made.runs:,} runs, {made.bytes:,} bytes, {last}"


def _say_notes(notes: list[str]) -> None:
    for one in notes:
        print(f"note: {one}", file=sys.stderr)


def _note(options: argparse.Namespace, settings: Settings, action: str, subject: str) -> None:
    """In the audit trail of the store; opening it for that also brings an old one up to date."""
    with LocalStore(settings).writing(new=True) as kept:
        note(kept, who(options), action, subject)


Action = Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, int]]

ACTIONS: dict[str, Action] = {
    "backup": _backup,
    "restore": _restore,
    "check": _check,
    "compact": _compact,
}
