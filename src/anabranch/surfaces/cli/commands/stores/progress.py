"""How far long work on a store is, on standard error; also how an interrupt ends it."""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from anabranch.surfaces.cli.output import render

SHOWN_EVERY_SECONDS = 0.2
LINE_EVERY_SECONDS = 5.0

T = TypeVar("T")


class Progress:
    """One line on a terminal that is written over and over. With `lines` a line now and then where
    there is no terminal, and with `--json` the same as objects."""

    def __init__(self, options: argparse.Namespace, *, lines: bool = False) -> None:
        self._json = options.json
        self._live = sys.stderr.isatty() and not options.json
        self._every = SHOWN_EVERY_SECONDS if self._live else LINE_EVERY_SECONDS
        self._shown = self._live or lines
        self._last = 0.0
        self._what = ""
        self._stop = threading.Event()

    def pages(self, done: int, total: int) -> None:
        self(f"of {total:,} pages", done, total)

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        if not self._shown:
            return
        now = time.monotonic()
        if now - self._last >= self._every or (what != self._what and not self._live):
            self._last, self._what = now, what
            self._show(what, done, total)

    async def over(self, work: Callable[[], T]) -> T:
        """Do this in a thread, so that an interrupt is heard."""
        try:
            return await asyncio.to_thread(work)
        finally:
            self._stop.set()
            if self._live and self._last:
                self._say("")

    def _show(self, what: str, done: int, total: int) -> None:
        if self._json:
            told = {"progress": {"what": what, "done": done, "total": total}}
            print(render.json_line(told), file=sys.stderr, flush=True)
            return
        share = f"{100 * done // total:3d} % " if total else ""
        if self._live:
            self._say(f"{share}{what}")
        else:
            print(f"{share}{what}", file=sys.stderr, flush=True)

    @staticmethod
    def _say(text: str) -> None:
        print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)
