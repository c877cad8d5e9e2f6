"""`check`, `graph`, `runs`, `show`, `events` and `explain`: verbs that only look."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from anabranch.dialects.port import ToolSignature
from anabranch.errors import AnabranchError, InputError
from anabranch.net.problems import Position, Problem
from anabranch.operations.definitions.prepare import prepare, replace_text
from anabranch.operations.overview.search import checked_search
from anabranch.operations.participants import BookCheck
from anabranch.operations.read.event_view import EventRecord
from anabranch.operations.read.items import ItemFilter
from anabranch.operations.read.reader import draw
from anabranch.operations.read.task_events import with_tasks
from anabranch.settings import Settings
from anabranch.store.ports import HeadFilter
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import DefinitionBackend
from anabranch.surfaces.cli.commands.inspect.registries import check_registry, draw_registry
from anabranch.surfaces.cli.commands.run.orchestrations import one_of_several
from anabranch.surfaces.cli.output import render
from anabranch.work.kinds.callables import default_toolbox

REASON_SHOWN = 80
DEFINITIONS = (".yaml", ".yml", ".json")


# -- definitions -----------------------------------------------------------------------------


async def check(options: argparse.Namespace, settings: Settings) -> int:
    if not (options.files or options.participants or options.registry):
        wanted = "a definition, or a book with --participants, or a registry with --registry"
        raise InputError(f"name {wanted}", code="usage")
    problems: list[Problem] = []
    async with open_backend(options, settings) as at:
        tools = _tools(options)
        book = _book(options)
        problems += book.problems if book is not None else ()
        if options.registry:
            problems += await check_registry(options, settings)
        for file in options.files:
            problems += await _problems(at.definitions, file, tools, options.rules)
            problems += _of_book(book, file, tools)
    refused = ("error", "warning") if options.strict else ("error",)
    wrong = [problem for problem in problems if problem.severity in refused]
    if options.json:
        print(render.json_line({"ok": not wrong, "problems": [_fields(p) for p in problems]}))
    else:
        for problem in problems:
            print(render.clean(str(problem)))
        named = [name for name in (options.participants, *options.files, options.registry) if name]
        files = ", ".join(named)
        print(f"{files}: {_verdict(problems, wrong)}")
    return 2 if wrong else 0


def _book(options: argparse.Namespace) -> BookCheck | None:
    if options.participants is None:
        return None
    values.look_here()  # for the functions that it names
    return BookCheck(options.participants)


def _of_book(book: BookCheck | None, file: str, tools: Sequence[ToolSignature]) -> list[Problem]:
    """What a definition needs of the book; of one that cannot be read there is nothing to say."""
    if book is None or file == "-":
        return []
    try:
        return book.problems_of(prepare(Path(file), tools).net)
    except AnabranchError:
        return []


def _tools(options: argparse.Namespace) -> list[ToolSignature]:
    values.import_tools(options.tools)
    return default_toolbox.signatures()


async def _problems(
    at: DefinitionBackend, file: str, tools: Sequence[ToolSignature], rules: str | None
) -> Sequence[Problem]:
    """A file that cannot be read is one more problem: the others are looked at all the same."""
    try:
        return await at.check(file, tools, rules)
    except InputError as error:
        if error.code in ("rules", "not_orchestration"):
            raise
        why = error.message.removeprefix(f"{file}: ")
        return [Problem(Position(1, 1, file), "no-file", why, "name a file that can be read")]


def _verdict(problems: list[Problem], wrong: list[Problem]) -> str:
    if not problems:
        return "no problems"
    others = len(problems) - len(wrong)
    return f"{len(wrong)} to fix, {others} worth a look"


def _fields(problem: Problem) -> dict[str, Any]:
    where = problem.position
    return {
        "file": where.file,
        "line": where.line,
        "column": where.column,
        "code": problem.code,
        "severity": problem.severity,
        "message": problem.message,
        "hint": problem.hint,
    }


async def fmt(options: argparse.Namespace, settings: Settings) -> int:
    """Rewrite files in the canonical spelling; each is written whole or not at all."""
    changed = []
    if options.server is None:  # spelling is the same everywhere: nobody need be asked
        settings = replace(settings, server="")
    async with open_backend(options, settings) as at:
        for file in options.files:
            old, new = await at.definitions.respell(file)
            if options.stdout:
                print(new, end="")
            elif old != new and not options.check:
                replace_text(Path(file), new)
            if old != new:
                changed.append(file)
    if options.json:
        print(render.json_line({"changed": changed}))
    elif not options.stdout:
        verb = "would be rewritten" if options.check else "rewritten"
        print(f"{', '.join(changed)}: {verb}" if changed else "nothing to change")
    return 1 if options.check and changed else 0


async def graph(options: argparse.Namespace, settings: Settings) -> int:
    drawing = await _drawing(options, settings)
    if options.output:
        _write(options.output, drawing)
        return 0
    return render.tell(options, {"format": options.format, "graph": drawing}, drawing)


def _write(file: str, drawing: str) -> None:
    try:
        Path(file).write_text(drawing, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}", code="usage") from None


async def _drawing(options: argparse.Namespace, settings: Settings) -> str:
    if options.registry:
        return await draw_registry(options, settings)
    if options.what is None:
        raise InputError("name a file, a run, or a registry with --registry", code="usage")
    is_file = options.what == "-" or Path(options.what).exists()
    if not is_file and Path(options.what).suffix in DEFINITIONS:
        raise InputError(f"{options.what}: there is no such file", code="no_file")
    async with open_backend(options, settings) as at:
        tools = _tools(options)
        if not is_file:
            return await at.runs.graph(options.what, options.format)
        if options.ostc:
            text = one_of_several(options.what, options.ostc)
            return draw(prepare(text, tools, options.rules, file=options.what).net, options.format)
        return await at.definitions.draw(options.what, options.format, tools, options.rules)


# -- runs ------------------------------------------------------------------------------------


async def runs(options: argparse.Namespace, settings: Settings) -> int:
    wanted = HeadFilter(
        statuses=options.status,
        name=options.name,
        labels=values.labels(options.label),
        search=checked_search(options.search),
        redriven=None if options.redriven is None else options.redriven == "yes",
        limit=options.limit,
    )
    async with open_backend(options, settings) as at:
        found = await at.runs.search(wanted)
    if options.json:
        print(render.json_line(found))
        return 0
    rows = [
        (run["run"], run["name"], _status(run), f"{render.ago(run['created_at'])} ago",
         _took(run), _labels(run), render.short(run["reason"], REASON_SHOWN))
        for run in found
    ]  # fmt: skip
    head = ("RUN", "NAME", "STATUS", "STARTED", "TOOK", "LABELS", "REASON")
    print("\n".join(render.table(rows, head)) if rows else "no runs")
    for run in found:
        if run["missing"]:
            print(f"{run['run']} is left as it is: {render.clean('; '.join(run['missing']))}")
        if run.get("queued"):
            print(f"{run['run']} waits for a place: {render.clean(run['queued'])}")
    return 0


def _status(run: dict[str, Any]) -> str:
    """What is damaged has no status that could be trusted; `explain` says what is wrong."""
    status = "damaged" if run.get("damage") else str(run["status"])
    standing = render.standing({**run, "status": status})
    standing += ", redriven" if run.get("redriven_by") else ""
    return standing + (", left as it is" if run["missing"] else "")


def _took(run: dict[str, Any]) -> str:
    """Of one that goes on nobody knows yet."""
    lasted = run["updated_at"] - run["created_at"]
    return render.duration(lasted / 1000) if run["finished"] else "-"


def _labels(run: dict[str, Any]) -> str:
    shown = (f"{key}={render.short(value, 24)}" for key, value in run["labels"].items())
    return render.clean(" ".join(shown))


async def show(options: argparse.Namespace, settings: Settings) -> int:
    if options.items is not None:
        return await _show_items(options, settings)
    if options.state or options.error or options.after is not None:
        raise InputError("--state, --error and --after go with --items STEP", code="usage")
    async with open_backend(options, settings) as at:
        shown = await at.runs.show(options.run)
    if options.json:
        print(render.json_line(shown))
        return 0
    lines = render.summary(shown, colour=render.wants_colour())
    lines.append(f"  started {render.instant(shown['created_at'])}, {shown['events']} events")
    for key in ("origin", "parent"):
        if shown[key]:
            lines.append(f"  {key}: {shown[key]}")
    if shown.get("redriven_by"):  # an older server does not say it
        lines.append(f"  redriven by: {', '.join(shown['redriven_by'])}")
    if shown.get("execution_number"):
        lines.append(f"  execution_id: {shown['execution_number']}")
    for what in ("input", "context"):
        values = shown[what].items()
        lines += [f"  {what} {render.one_line(key)}: {render.short(one)}" for key, one in values]
    lines += render.failure_lines(shown)
    for step, places in shown.get("redacted", {}).items():
        lines.append(f"  redacted: {step}: {places} with stars in the place of a secret")
    lines += render.loop_lines(shown["loops"])
    lines += render.waiting_lines(shown["waiting"])
    lines += render.signal_lines(shown.get("signals", ()))
    print("\n".join(lines))
    return 0


async def _show_items(options: argparse.Namespace, settings: Settings) -> int:
    wanted = ItemFilter(
        state=options.state,
        error=options.error,
        after=-1 if options.after is None else options.after,
        limit=options.limit,
    )
    async with open_backend(options, settings) as at:
        page = await at.runs.items(options.run, options.items, wanted)
    return render.tell(options, msgspec.to_builtins(page), "\n".join(render.item_lines(page)))


async def explain(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        told = await at.runs.explain(options.run)
    lines = [f"{render.one_line(told['name'])} ({told['run']}): {render.standing(told)}"]
    lines += render.schedule_lines(told.get("schedule"))
    lines += render.waiting_lines(told["waiting"]) or ["  nothing is unfinished"]
    if told["went_wrong"]:
        lines.append(f"  went wrong: {render.clean(told['went_wrong'])}")
    lines += render.signal_lines(told.get("signals", ()))
    lines += [f"  {line}" for line in render.child_lines(told["children"])]
    if told["waiting"] and told["engine"] is None:
        lines.append(f"  no engine runs on this store: `anabranch resume {told['run']}` starts one")
    return render.tell(options, told, "\n".join(lines))


async def events(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        async for record, first_at in at.runs.events(
            options.run, options.after, follow=options.follow
        ):
            for shown in _with_tasks(record) if options.tasks else (record,):
                text = (
                    render.json_line(shown) if options.json else render.event_line(shown, first_at)
                )
                print(text, flush=True)
    return 0


def _with_tasks(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Also before it, where it is a report: what the tasks of its job did."""
    found = with_tasks([msgspec.convert(record, EventRecord)])
    return [msgspec.to_builtins(one) for one in found]


async def get(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        found = await at.runs.referred(options.ref, options.offset, options.limit)
    if options.json:
        print(render.json_line(msgspec.to_builtins(found)))
        return 0
    print(
        render.safe_json(msgspec.json.format(msgspec.json.encode(found.value), indent=2).decode())
    )
    if found.next is not None:
        said = f"{found.total:,} in all; the next page: --offset {found.next}"
        print(said, file=sys.stderr)
    return 0
