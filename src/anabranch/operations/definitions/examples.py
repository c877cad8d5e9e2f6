"""The examples that come with Anabranch: found, listed, read and copied.

`README.md` of their folder is the list: a table has a row for each example, with what to type and
what to look at. In the repository the folder is `examples/`; an installed package has it inside.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from anabranch.errors import NotFound
from anabranch.net.problems import closest
from anabranch.operations.definitions.new_files import NewFile, write_new

PACKAGE = Path(__file__).parents[2]
FOLDER = "examples"  # as the commands of the list call it
LIST = "README.md"
LISTED = "`anabranch examples` lists them"
_SKIPPED = ("__pycache__",)
_TOPIC = re.compile(r"## (.+)")
_ROW = re.compile(r"\| \[[^\]]+\]\((?P<file>[^)]+)\) \| (?P<commands>.+?) \| (?P<about>.+) \|")
_COMMAND = re.compile(r"`([^`]+)`")


class Example(msgspec.Struct, frozen=True):
    """One row of the list."""

    name: str  # the path without its ending: hello, arca/best_of
    topic: str  # playbooks, orchestrations …
    file: str
    about: str
    commands: tuple[str, ...]  # for the folder that has `examples/`


def folder() -> Path:
    """Where the examples of this installation are."""
    for found in (PACKAGE / FOLDER, PACKAGE.parents[1] / FOLDER):
        if (found / LIST).is_file():
            return found
    message = f"this installation has no examples: there is no folder {PACKAGE / FOLDER}"
    raise NotFound(message, hint="install the package again")


def listed() -> tuple[Example, ...]:
    """Every example, in the order of the list."""
    return tuple(_rows((folder() / LIST).read_text(encoding="utf-8")))


def _rows(text: str) -> Iterator[Example]:
    topic = ""
    for line in text.splitlines():
        if heading := _TOPIC.fullmatch(line):
            topic = heading[1]
        elif row := _ROW.fullmatch(line):
            name = str(PurePosixPath(row["file"]).with_suffix(""))
            commands = tuple(_COMMAND.findall(row["commands"]))
            yield Example(name, topic, row["file"], row["about"], commands)


def find(name: str) -> Example:
    """The example of this name; the last part of it is enough where only one is called so."""
    known = listed()
    wanted = name.removeprefix(f"{FOLDER}/")
    for example in known:
        if wanted in (example.name, example.file):
            return example
    alike = [one for one in known if wanted in (_last(one.name), _last(one.file))]
    if len(alike) == 1:
        return alike[0]
    hint = closest(wanted, [one.name for one in known]) or closest(
        wanted, [_last(one.name) for one in known]
    )
    raise NotFound(f"there is no example {name!r:.100}", hint=hint or LISTED)


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def text_of(example: Example) -> str:
    return (folder() / example.file).read_text(encoding="utf-8")


def files_of(example: Example) -> list[str]:
    """What it needs to run: what its commands name, and all of a folder that it shares."""
    root = folder()
    named = [word for command in example.commands for word in shlex.split(command)]
    wanted = [word.removeprefix(f"{FOLDER}/") for word in named if word.startswith(f"{FOLDER}/")]
    shared = example.file.rpartition("/")[0]
    places = [root / each for each in (example.file, *wanted, *([shared] if shared else []))]
    found = {each for place in places for each in _below(place)}
    return sorted(each.relative_to(root).as_posix() for each in found)


def every_file() -> list[str]:
    root = folder()
    return sorted(each.relative_to(root).as_posix() for each in _below(root))


def _below(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    elif place.is_dir() and place.name not in _SKIPPED:
        for each in place.iterdir():
            yield from _below(each)


def copy(names: Sequence[str], into: Path) -> list[Path]:
    """Copy these files below a folder. One that is there already is refused, and then all are."""
    root = folder()
    return write_new(into, {name: _new(root / name) for name in names})


def _new(path: Path) -> NewFile:
    return NewFile(path.read_bytes(), executable=os.access(path, os.X_OK))


def commands_in(example: Example, place: Path) -> tuple[str, ...]:
    """Its commands, for a copy in that folder."""
    there = shlex.quote(place.as_posix())
    return tuple(re.sub(rf"\b{FOLDER}/", lambda _: f"{there}/", each) for each in example.commands)
