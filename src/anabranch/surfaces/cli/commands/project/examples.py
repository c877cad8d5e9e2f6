"""`examples`: definitions to look at, to run and to begin with."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from msgspec.structs import asdict

from anabranch.operations.definitions import examples as known
from anabranch.operations.definitions.examples import Example
from anabranch.settings import Settings
from anabranch.surfaces.cli.output import render


async def examples(options: argparse.Namespace, _settings: Settings) -> int:
    example = None if options.name is None else known.find(options.name)
    if options.copy is not None:
        return _copy(options, example)
    return _list(options) if example is None else _show(options, example)


def _list(options: argparse.Namespace) -> int:
    found = known.listed()
    if options.json:
        print(render.json_line([asdict(each) for each in found]))
        return 0
    for topic in dict.fromkeys(each.topic for each in found):
        print(f"{topic}:")
        rows = [(f"  {each.name}", each.about) for each in found if each.topic == topic]
        print("\n".join(render.table(rows)))
    print("\n`anabranch examples NAME` prints one, `--copy FOLDER` copies it.")
    return 0


def _show(options: argparse.Namespace, example: Example) -> int:
    """The text alone on standard output, so that it can be written to a file."""
    text = known.text_of(example)
    if options.json:
        print(render.json_line({**asdict(example), "text": text}))
        return 0
    print(text, end="" if text.endswith("\n") else "\n")
    sys.stdout.flush()
    hint = f"anabranch examples {example.name} --copy {known.FOLDER}"
    print(f"\n{example.about}", file=sys.stderr)
    print("\n".join(f"  {each}" for each in (hint, *example.commands)), file=sys.stderr)
    return 0


def _copy(options: argparse.Namespace, example: Example | None) -> int:
    place = Path(options.copy)
    names = known.every_file() if example is None else known.files_of(example)
    copied = known.copy(names, place)
    commands = known.commands_in(example, place) if example is not None else ()
    if options.json:
        files = [each.as_posix() for each in copied]
        print(render.json_line({"copied": files, "commands": commands}))
        return 0
    for each in copied:
        print(each)
    if example is None:
        print(f"{place / known.LIST} lists them, each with its command", file=sys.stderr)
    for command in commands:
        print(f"  {command}", file=sys.stderr)
    return 0
