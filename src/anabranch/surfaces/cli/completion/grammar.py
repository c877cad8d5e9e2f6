"""The grammar of the command line, read from its real parser: what may stand where."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

#: What a shell looks for in its folder, and what `values.py` finds in the store.
Kind = Literal["files", "folders", "runs", "names", "paths"]
FROM_STORE: tuple[Kind, ...] = ("runs", "names", "paths")

#: What the parts of a metavar stand for. Any other is free text.
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("FILE", "F", "BOOK", "BUNDLE", "PLAN", "DEFINITION", "RULE"), "files"),
    **dict.fromkeys(("KEY", "FROM", "TO", "PLACE"), "files"),
    **dict.fromkeys(("DIR", "FOLDER"), "folders"),
    **dict.fromkeys(("RUN", "SESSION", "PID"), "runs"),
    "PATH": "paths",
}
#: Values with the same metavar as others, which are something else.
ELSEWHERE: Mapping[str, Kind | None] = {
    **{f"{verb} --name": "names" for verb in ("runs", "bulk", "purge")},
    "register --path": None,  # a new one
}
#: Verbs whose runs are those of a node.
_OF_NODES = ("arca",)


class Slot(msgspec.Struct, frozen=True):
    """A value: one of these words, something that is looked up, or free text."""

    label: str
    words: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()


class Option(msgspec.Struct, frozen=True):
    name: str
    about: str
    slot: Slot | None = None  # None: it takes no value
    repeats: bool = False
    others: tuple[str, ...] = ()  # names of the same option


class Command(msgspec.Struct, frozen=True):
    """A verb or an action, with what may stand behind it."""

    path: tuple[str, ...]
    about: str
    options: tuple[Option, ...] = ()
    places: tuple[Slot, ...] = ()  # values without an option, in order
    goes_on: bool = False  # the last place repeats
    children: tuple[Command, ...] = ()

    def every(self) -> Iterator[Command]:
        yield self
        for child in self.children:
            yield from child.every()

    @property
    def words(self) -> str:
        return " ".join(self.path)


def read(parser: argparse.ArgumentParser, words: Mapping[str, tuple[str, ...]]) -> Command:
    """The whole grammar. `words` says by `verb dest` what a parser itself does not list."""
    return _command(parser, (), "", words)


def _command(
    parser: argparse.ArgumentParser,
    path: tuple[str, ...],
    about: str,
    words: Mapping[str, tuple[str, ...]],
) -> Command:
    options: list[Option] = []
    places: list[Slot] = []
    children: list[Command] = []
    goes_on = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            said = {each.dest: each.help or "" for each in action._choices_actions}
            for name, child in action.choices.items():
                children.append(_command(child, (*path, name), said.get(name, ""), words))
        elif action.help == argparse.SUPPRESS:
            continue
        elif action.option_strings:
            options += _options(action, path, words)
        else:
            places.append(_slot(action, path, words))
            goes_on = action.nargs in ("*", "+")
    return Command(path, about, tuple(options), tuple(places), goes_on, tuple(children))


def _options(
    action: argparse.Action, path: tuple[str, ...], words: Mapping[str, tuple[str, ...]]
) -> Iterator[Option]:
    slot = None if action.nargs == 0 else _slot(action, path, words)
    repeats = isinstance(action, argparse._AppendAction)
    negated = isinstance(action, argparse.BooleanOptionalAction)
    for name in action.option_strings:
        others = tuple(other for other in action.option_strings if other != name)
        about = f"not: {action.help}" if negated and name.startswith("--no-") else action.help or ""
        yield Option(name, about, slot, repeats, others)


def _slot(action: argparse.Action, path: tuple[str, ...], words: Mapping[str, Any]) -> Slot:
    label = str(action.metavar or action.dest)
    name = " ".join((*path, action.option_strings[0] if action.option_strings else action.dest))
    if action.choices is not None:
        return Slot(label, tuple(str(choice) for choice in action.choices))
    if name in words:
        return Slot(label, words[name])
    if name in ELSEWHERE:
        kind = ELSEWHERE[name]
        return Slot(label, kinds=() if kind is None else (kind,))
    found = dict.fromkeys(KINDS[part] for part in re.split(r"\W+", label) if part in KINDS)
    if path[:1] and path[0] in _OF_NODES:
        found.pop("runs", None)
    return Slot(label, kinds=tuple(found))
