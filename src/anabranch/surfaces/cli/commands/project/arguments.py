"""The grammar of what belongs to a project and its machine: `settings`, `completion` …"""

from __future__ import annotations

import argparse

from anabranch.surfaces.cli.commands import common as c

#: Those of `dialects/schema.py`; a grammar loads no dialect.
LANGUAGES = ("noetl", "xrc729", "xrc137", "arca")
SHELLS = ("bash", "zsh", "fish")


def add_settings(verbs: c.Verbs) -> None:
    text = "Show every setting, its value, and where that comes from; secrets are hidden."
    parser = c.verb(verbs, "settings", text)
    parser.add_argument("names", nargs="*", metavar="SETTING", help="only these")
    parser.add_argument(
        "--changed", action="store_true", help="only those with another value than the default"
    )


def add_init(verbs: c.Verbs) -> None:
    text = "Begin a project: a definition, its tests, a Makefile and settings."
    parser = c.bare(verbs, "init", text)
    parser.set_defaults(needs_settings=False)
    parser.add_argument(
        "folder", nargs="?", default=".", metavar="FOLDER", help="where (default: here)"
    )


def add_examples(verbs: c.Verbs) -> None:
    text = "List the examples that come with Anabranch, print one, or copy them."
    parser = c.bare(verbs, "examples", text)
    parser.set_defaults(needs_settings=False)
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this example")
    parser.add_argument(
        "--copy",
        metavar="FOLDER",
        help="copy it, or all of them, with what they need into this folder",
    )


def add_schema(verbs: c.Verbs) -> None:
    text = "Print the JSON Schema of a definition language, for editors and other programs."
    parser = c.bare(verbs, "schema", text)
    parser.set_defaults(needs_settings=False)
    parser.add_argument(
        "language", nargs="?", choices=LANGUAGES, metavar="LANGUAGE", help=", ".join(LANGUAGES)
    )
    parser.add_argument("--out", metavar="FILE", help="write it to this file")
    c.options(parser, "--tools")


def add_completion(verbs: c.Verbs) -> None:
    text = "Print a script that completes verbs, options, choices, files and runs in a shell."
    parser = c.bare(verbs, "completion", text)
    parser.set_defaults(needs_settings=False)
    parser.add_argument("shell", nargs="?", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    # What the scripts ask while a person types.
    kinds = ("runs", "names", "paths")
    parser.add_argument("--values", choices=kinds, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
