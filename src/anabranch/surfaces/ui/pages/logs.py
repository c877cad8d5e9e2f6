"""The page with what the work of a run printed: the newest lines, searched, and live."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from anabranch.errors import InputError
from anabranch.operations.logs.log_lines import (
    LEVELS,
    LogLines,
    LogQuery,
    LogReader,
    open_log,
    read_level,
)
from anabranch.store.ports import Head
from anabranch.surfaces.http.io.readers import ReadHandle
from anabranch.surfaces.ui.context import Ui, run_of, show
from anabranch.surfaces.ui.pages.run import frame, run_path
from anabranch.surfaces.ui.rendering import rendered

LINES = 1000
SEARCH_MAX = 1000


def query_of(request: web.Request) -> LogQuery:
    """What the form of the page asks for; empty fields ask for nothing."""
    names = ("step", "token", "attempt", "level")
    given = {name: request.query.get(name, "").strip() for name in names}
    search = request.query.get("search", "")
    if len(search) > SEARCH_MAX:
        raise InputError(f"search for less than {SEARCH_MAX} characters")
    return LogQuery(
        step=given["step"] or None,
        token=_number("token", given["token"]),
        attempt=_number("attempt", given["attempt"]),
        level=read_level(given["level"] or None),
        search=search,
    )


def _number(name: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError(f"{name} is a number, not {text[:50]!r}")
    return int(text)


async def page(request: web.Request) -> web.StreamResponse:
    ui, head = run_of(request)
    wanted = query_of(request)
    before = request.query.get("before", "")
    if before and not (before.isascii() and before.isdecimal() and len(before) <= 15):
        raise InputError(f"before is a number, not {before[:50]!r}")

    def read(by: ReadHandle) -> LogLines:
        return open_log(by.read, head.run, wanted).newest(LINES, int(before) if before else None)

    await _flushed(ui, head)
    found = await ui.look(read)
    fields = _fields(wanted)
    live = not head.finished and not before
    path = run_path(head.run, "logs")
    given = await frame(ui, head, "logs")
    return show(
        request,
        "logs.html",
        found=found,
        wanted=wanted,
        levels=LEVELS,
        steps=sorted(given["net"].steps),
        filtered=bool(fields),
        newest=_address(path, fields) if before else "",
        older=_address(path, {**fields, "before": found.first}) if found.earlier else "",
        follows=_address(f"/live{path}", {**fields, "after": found.last}) if live else "",
        **given,
    )


STEP_LINES = 200  # on the page of a step


async def of_step(ui: Ui, head: Head, step: str, token: int) -> dict[str, Any]:
    """The newest lines of one run of a step, and where to find more and those to come: some may be
    written after the step has ended."""
    await _flushed(ui, head)
    wanted = LogQuery(step=step, token=token)
    found = await ui.look(lambda by: open_log(by.read, head.run, wanted).newest(STEP_LINES))
    path, fields = run_path(head.run, "logs"), _fields(wanted)
    found.items = found.items[-STEP_LINES:]
    return {
        "found": found,
        "all": _address(path, fields),
        "follows": _address(f"/live{path}", {**fields, "after": found.last}),
    }


async def _flushed(ui: Ui, head: Head) -> None:
    """A page of a run that is over is not told of lines that are written after it was rendered."""
    if head.finished:
        await asyncio.to_thread(ui.parts.engine.logs.flush)


def _fields(wanted: LogQuery) -> dict[str, Any]:
    fields = msgspec.structs.asdict(wanted)
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _address(path: str, fields: dict[str, Any]) -> str:
    return f"{path}?{urlencode(fields)}" if fields else path


def rows(found: LogLines) -> str:
    return rendered("log_rows.html", {"found": found})


class LogWatch(msgspec.Struct):
    """One page of logs that is open somewhere."""

    reader: LogReader
    after: int

    def look(self, by: ReadHandle) -> tuple[LogLines, bool]:
        """What is new, and whether the run has ended: that is looked at first."""
        head = by.store.head(self.reader.run)
        found = self.reader.using(by.store).page(self.after, LINES)
        return found, head is None or head.finished
