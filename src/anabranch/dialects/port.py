"""What a dialect is told, and what compiling gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from anabranch.net.net import Net
from anabranch.net.problems import Problem


class ToolSignature(msgspec.Struct, frozen=True):
    """A callable registered as a task kind: which arguments it takes."""

    name: str
    required: frozenset[str] = frozenset()
    known: frozenset[str] | None = None  # None: any


class Options(msgspec.Struct, frozen=True):
    """What a dialect may need to know about the place a definition will run in."""

    tools: Mapping[str, ToolSignature] = {}  # registered as task kinds
    any_tool: bool = False  # every unknown kind is taken for one


#: A registered callable, by its name alone where its arguments are not known.
RegisteredTool = str | ToolSignature


def signatures(tools: Iterable[RegisteredTool]) -> Mapping[str, ToolSignature]:
    listed = [ToolSignature(each) if isinstance(each, str) else each for each in tools]
    return {each.name: each for each in listed}


class Compiled(msgspec.Struct, frozen=True):
    """A definition read as far as it could be.

    `net` is None when there is an error, except for errors that a dialect gives a meaning at run
    time (a join that can never close aborts its target).
    """

    net: Net | None
    problems: tuple[Problem, ...]  # sorted by position
    dialect: str  # "" when no dialect recognised the document

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")
