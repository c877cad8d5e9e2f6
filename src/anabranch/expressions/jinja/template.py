"""What is known of every template, whether Jinja is needed to evaluate it or not.

Nothing here loads Jinja.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from anabranch.errors import ExpressionError

if TYPE_CHECKING:
    from anabranch.expressions.jinja.sandbox import Sandbox

#: `value`: text whose one expression gives its own value. `text`: always rendered. `bare`: an
#: expression without braces.
#: A `command` is a text in which lists and mappings are written as JSON.
Mode = Literal["value", "text", "command", "bare"]

#: Looked up in a mapping these are what it can do, not what it holds.
METHODS = frozenset(name for name in dir(dict) if not name.startswith("_"))
#: Names of envelopes (see `expressions.port`): taken as a whole they are what is inside.
ENVELOPES = frozenset({"output"})


class TemplateError(ExpressionError):
    """A template that cannot be compiled. `line` counts from 1 within the template's text."""

    code = "template"

    def __init__(self, text: str, reason: str, line: int = 1) -> None:
        super().__init__(f"{quoted(text)}: {reason}")
        self.reason = reason
        self.line = line


def quoted(text: str) -> str:
    """The expression as messages quote it: on one line and not too long."""
    line = " ".join(text.split())
    return repr(line if len(line) <= 120 else line[:117] + "…")


class Rendered(msgspec.Struct, frozen=True):
    """Text that a template made, and which part of it came from texts in the data."""

    text: str
    has_data: bool = False
    data_at_an_end: bool = False


class TemplateLookup(msgspec.Struct, frozen=True):
    """One value that a template looks up."""

    path: tuple[str | int, ...]
    line: int
    #: It may be missing: a `default` stands after it, or it is only asked whether it is there.
    allowed_missing: bool = False
    open: bool = False  # a key that is worked out comes after the path, or a method
    called: bool = False  # the path is a name that is called as a function
    compared: tuple[str, ...] = ()  # the texts that it is compared with

    @property
    def root(self) -> str:
        return str(self.path[0])


class Template:
    """A template found to be good."""

    __slots__ = (*("_mode", "coerces", "lookup", "names", "native", "readings", "reads", "text"),)

    text: str
    _mode: Mode
    native: bool  # it gives the value of its one expression
    lookup: bool  # and that only picks something out of a name, as in `ctx.orders[0].id`
    coerces: bool  # a text that spells a literal may become it
    names: frozenset[str]
    readings: tuple[TemplateLookup, ...]
    #: What it looks up, two names deep: `("ctx", "total")`; a single name is all below it.
    reads: frozenset[tuple[str, ...]]

    def looks_up(self, path: tuple[str, ...]) -> bool:
        """Whether it is a lookup of what a mapping holds at this path, and nothing else."""
        whole = [one.path for one in self.readings] == [path]
        return self.lookup and whole and METHODS.isdisjoint(path)

    @property
    @abstractmethod
    def sandbox(self) -> Sandbox: ...

    @abstractmethod
    def run(self, names: Mapping[str, Any], *, lenient: bool = False) -> Any:
        """The native value, or what was rendered. What is undefined is empty if `lenient`."""


_JINJA_WORDS = {
    "'end of print statement'": "`}}`",
    "'end of statement block'": "`%}`",
    "'begin of statement block'": "`{%`",
    "'end of template'": "the end",
}


def sentence(message: str | None) -> str:
    """A message of Jinja as a part of ours, without its names for tokens."""
    text = (message or "not a template").strip().rstrip(".").removeprefix("expected token ")
    if text != (message or "").strip().rstrip("."):
        text = f"expected {text}"
    for theirs, ours in _JINJA_WORDS.items():
        text = text.replace(theirs, ours)
    return text[:1].lower() + text[1:]
