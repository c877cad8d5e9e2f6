"""`schema`: what a definition may look like, as JSON Schema."""

from __future__ import annotations

import argparse
from pathlib import Path

from anabranch.dialects.schema import schema_of
from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.commands.project.arguments import LANGUAGES
from anabranch.surfaces.cli.output import render
from anabranch.work.kinds.callables import default_toolbox

ABOUT = {
    "noetl": "NoETL playbooks",
    "xrc729": "XRC-729 orchestrations, and bundles of them with their rules",
    "xrc137": "XRC-137 rule documents",
    "arca": "Arca workflow definitions, and templates of them",
}


async def schema(options: argparse.Namespace, _settings: Settings) -> int:
    if options.language is None:
        return _list(options)
    if options.tools and options.language != "noetl":
        raise InputError("--tools is for noetl: only playbooks have tools", code="usage")
    values.import_tools(options.tools)
    tools = default_toolbox.signatures() if options.tools else None
    made = schema_of(options.language, tools)
    text = render.json_line(made) if options.json else render.json_text(made)
    if options.out is None:
        print(text)
        return 0
    try:
        Path(options.out).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        message = f"{options.out} cannot be written: {error.strerror}"
        raise InputError(message, code="no_file") from None
    return 0


def _list(options: argparse.Namespace) -> int:
    if options.out is not None or options.tools:
        raise InputError(f"which language? {', '.join(LANGUAGES)}", code="usage")
    rows = list(ABOUT.items())
    return render.tell_rows(options, ABOUT, rows, ("LANGUAGE", "SCHEMA OF"), "")
