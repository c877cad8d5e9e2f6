"""`init`: a new project, with a definition and its tests."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from anabranch.operations.definitions.starter import start_project
from anabranch.settings import Settings
from anabranch.surfaces.cli.output import render

COMMANDS = ("make", "make run", "anabranch run flows/order.yaml --input item=boat")


async def init(options: argparse.Namespace, _settings: Settings) -> int:
    folder = Path(options.folder)
    made = start_project(folder)
    enter = () if folder == Path() else (f"cd {shlex.quote(str(folder))}",)
    if options.json:
        files = [each.as_posix() for each in made]
        print(render.json_line({"made": files, "commands": [*enter, *COMMANDS]}))
        return 0
    print("\n".join(map(str, made)))
    print("\n".join(("\ngo on with:", *(f"  {each}" for each in (*enter, *COMMANDS)))))
    return 0
