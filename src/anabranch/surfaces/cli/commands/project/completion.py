"""`completion`: a script that teaches a shell the command line."""

from __future__ import annotations

import argparse
from dataclasses import replace
from importlib import import_module

from anabranch.errors import InputError
from anabranch.settings import DEFAULTS, Settings
from anabranch.surfaces.cli.completion import grammar
from anabranch.surfaces.cli.output import render


async def completion(options: argparse.Namespace, _settings: Settings) -> int:
    if options.values is not None:
        return _values(options)
    if options.shell is None:
        raise InputError("which shell? bash, zsh or fish", code="usage")
    from anabranch.operations.definitions.examples import listed
    from anabranch.surfaces.cli import parser

    words = {
        "examples name": tuple(example.name for example in listed()),
        "settings names": tuple(DEFAULTS),
    }
    shell = import_module(f"anabranch.surfaces.cli.completion.{options.shell}")
    text: str = shell.script(grammar.read(parser.build(), words))
    print(render.json_line({"shell": options.shell, "script": text}) if options.json else text)
    return 0


def _values(options: argparse.Namespace) -> int:
    """For the scripts: a value a line, with a tab and a word about it."""
    from anabranch import settings_file
    from anabranch.surfaces.cli.completion.values import values

    settings = settings_file.load().settings
    if options.store is not None:
        settings = replace(settings, store=options.store, server="")
    for value, about in values(options.values, settings):
        print(f"{value}\t{about}")
    return 0
