"""`dispatches`, `snapshot` and `template`: verbs for Arca workflows."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from anabranch import app
from anabranch.errors import InputError
from anabranch.operations.dispatches import Dispatch
from anabranch.operations.templates import Templates
from anabranch.settings import Settings
from anabranch.surfaces.cli import render, running, values
from anabranch.surfaces.cli.desk import LocalDesk, require_no_server
from anabranch.work.participants.port import is_negative


async def dispatches(options: argparse.Namespace, settings: Settings) -> int:
    require_no_server(settings, "dispatches")
    with LocalDesk(settings).reading() as reader:
        found = reader.dispatches(options.run)
    if options.step:
        found = [each for each in found if each.record.step_id == options.step]
    if options.json:
        for dispatch in found:
            fields = msgspec.to_builtins(dispatch.record)
            print(render.json_line({"place": dispatch.place, "record": fields}))
        return 0
    head = ("STEP", "TARGET", "STATUS", "OUTCOME", "SCORE", "ASKED", "ANSWERED", "")
    print("\n".join(render.table([_row(dispatch) for dispatch in found], head)))
    return 0


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
        return ""
    said = dispatch.record.response
    if not is_negative(said):
        return "no score"
    error = said.get("error") if isinstance(said, Mapping) else None
    code = error.get("code") if isinstance(error, Mapping) else None
    status = said.get("status") if isinstance(said, Mapping) else None
    return render.clean(str(code or status or "")[:40])


async def snapshot(options: argparse.Namespace, settings: Settings) -> int:
    require_no_server(settings, "snapshot")
    with LocalDesk(settings).reading() as reader:
        found = reader.snapshot(options.run)
    print(render.json_line(found) if options.json else render.json_text(found))
    return 0


async def template(options: argparse.Namespace, settings: Settings) -> int:
    require_no_server(settings, "template")
    return await _TEMPLATE_VERBS[options.action](options, settings)


async def _put(options: argparse.Namespace, settings: Settings) -> int:
    try:
        text = Path(options.file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError(f"{options.file} cannot be read: {reason}", code="no_file") from None
    store = app.open_store(settings)
    try:
        kept = Templates(store).put(text, options.file)
    finally:
        store.close()
    if options.json:
        print(render.json_line(kept.fields()))
    else:
        print(f"{kept.template_id} version {kept.version}")
    return 0


async def _list(options: argparse.Namespace, settings: Settings) -> int:
    found = _reading(settings, lambda templates: templates.newest())
    if options.json:
        for one in found:
            print(render.json_line(one))
        return 0
    rows = [
        (one["template_id"], str(one["version"]), ", ".join(one["parameters"]) or "-", one["label"])
        for one in found
    ]
    head = ("TEMPLATE", "VERSION", "PARAMETERS", "LABEL")
    print("\n".join(render.table(rows, head)))
    return 0


async def _show(options: argparse.Namespace, settings: Settings) -> int:
    found = _reading(settings, lambda templates: templates.show(options.id, options.kept))
    print(render.json_line(found) if options.json else found["text"].rstrip("\n"))
    return 0


async def _run(options: argparse.Namespace, settings: Settings) -> int:
    given = values.pairs(options.param, "param")
    prepared, text = _reading(
        settings, lambda templates: templates.materialise(options.id, given, options.kept)
    )
    if options.dry_run:
        print(text, end="")
        return 0
    return await running.start(prepared, options, settings)


def _reading(settings: Settings, look: Any) -> Any:
    values.require_store(settings)
    store = app.open_store(settings, read_only=True)
    try:
        return look(Templates(store))
    finally:
        store.close()


_TEMPLATE_VERBS = {"put": _put, "list": _list, "show": _show, "run": _run}
