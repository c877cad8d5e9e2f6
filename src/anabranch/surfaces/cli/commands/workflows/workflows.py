"""`dispatches`, `snapshot` and `template`: verbs for Arca workflows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from anabranch.errors import InputError
from anabranch.operations.read.dispatches import Dispatch
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import Row, TemplateBackend
from anabranch.surfaces.cli.commands.run import run
from anabranch.surfaces.cli.output import render
from anabranch.work.participants.port import is_negative


async def dispatches(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        found = await at.runs.dispatches(options.run, step=options.step, status=options.status)
    values = ({"place": one.place, "record": msgspec.to_builtins(one.record)} for one in found)
    head = ("STEP", "TARGET", "STATUS", "OUTCOME", "SCORE", "ASKED", "ANSWERED", "")
    return render.tell_lines(options, values, map(_row, found), head)


def _row(dispatch: Dispatch) -> tuple[str, ...]:
    record = dispatch.record
    return (
        record.step_id,
        render.clean(record.target),
        record.status,
        dispatch.outcome or "-",
        "-" if dispatch.score is None else f"{dispatch.score:g}",
        record.dispatched_at,
        record.responded_at or "-",
        _fate(dispatch),
    )


def _fate(dispatch: Dispatch) -> str:
    """What became of it, in a word; the reason of a no is the participant's own."""
    if dispatch.selected:
        return "chosen"
    if dispatch.late_at:
        return "late"
    if dispatch.outcome != "negative":
        return render.short(dispatch.reason, REASON_LETTERS)
    said = dispatch.record.response
    if not is_negative(said):
        return dispatch.reason or "no score"
    error = said.get("error") if isinstance(said, Mapping) else None
    code = error.get("code") if isinstance(error, Mapping) else None
    status = said.get("status") if isinstance(said, Mapping) else None
    return render.clean(str(code or status or "")[:40])


async def snapshot(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        found = await at.runs.snapshot(options.run)
    return render.tell(options, found, render.json_text(found))


# -- templates -----------------------------------------------------------------------------------


async def template(options: argparse.Namespace, settings: Settings) -> int:
    if options.action == "run" and not options.dry_run:
        given = values.pairs(options.param, "param")
        return await run.run_template(options, settings, given)
    async with open_backend(options, settings) as at:
        return await _TEMPLATE_VERBS[options.action](options, at.templates)


async def _put(options: argparse.Namespace, templates: TemplateBackend) -> int:
    text = _text(options.file)
    kept = await templates.put(text, "<template>" if options.file == "-" else options.file)
    return render.tell(options, kept, f"{kept['template_id']} version {kept['version']}")


async def _delete(options: argparse.Namespace, templates: TemplateBackend) -> int:
    gone = await templates.delete(options.id)
    said = f"{gone['template_id']} is deleted (version {gone['version']} records it)"
    return render.tell(options, gone, said)


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        named = "standard input" if file == "-" else file
        raise InputError(f"{named} cannot be read: {reason}", code="no_file") from None


async def _list(options: argparse.Namespace, templates: TemplateBackend) -> int:
    return _print_cards(options, await templates.newest())


async def _versions(options: argparse.Namespace, templates: TemplateBackend) -> int:
    return _print_cards(options, await templates.versions(options.id))


def _print_cards(options: argparse.Namespace, found: list[Row]) -> int:
    rows = [
        (
            one["template_id"],
            str(one["version"]),
            ", ".join(one["parameters"]) or "-",
            render.clean(one["label"]),
        )
        for one in found
    ]
    head = ("TEMPLATE", "VERSION", "PARAMETERS", "LABEL")
    return render.tell_lines(options, found, rows, head)


async def _show(options: argparse.Namespace, templates: TemplateBackend) -> int:
    found = await templates.show(options.id, options.kept)
    return render.tell(options, found, found["text"].rstrip("\n"))


async def _dry_run(options: argparse.Namespace, templates: TemplateBackend) -> int:
    given = values.pairs(options.param, "param")
    text, _ = await templates.materialise(options.id, given, options.kept)
    print(text, end="")
    return 0


REASON_LETTERS = 60
_TEMPLATE_VERBS = {
    "put": _put,
    "list": _list,
    "versions": _versions,
    "show": _show,
    "run": _dry_run,
    "delete": _delete,
}
