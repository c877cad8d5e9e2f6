"""Templates of text and looked up values, `Hello {{ workload.name }}`, evaluated without Jinja.

Most templates are no more than that. They say the same as by Jinja, which is asked whenever that
is in doubt: where a name is missing, where something is looked up in what is no mapping, and for
values whose text takes more than writing them down. A process that meets no other template never
loads Jinja, and a definition with thousands of such templates is compiled sooner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from keyword import kwlist
from typing import TYPE_CHECKING, Any

from anabranch.expressions.budget import charge_shared
from anabranch.expressions.jinja.limits import TemplateLimits
from anabranch.expressions.jinja.template import (
    ENVELOPES,
    METHODS,
    Mode,
    Rendered,
    Template,
    TemplateLookup,
)

if TYPE_CHECKING:
    from anabranch.expressions.jinja.program import CompiledTemplate
    from anabranch.expressions.jinja.sandbox import Sandbox

_PATH = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_LOOKUP = re.compile(r"\{\{[ \t]*(" + _PATH + r")[ \t]*\}\}")
_WHOLE_PATH = re.compile(_PATH)
#: What Jinja or the sandbox give a meaning of their own, at the beginning of a path.
_SPECIAL = frozenset(
    {*kwlist, "dict", "loop", "range", "recursive", "result", "self", "true", "false", "none"}
)
SHORT = 1024  # characters that are read or put together for nothing
_WRITTEN_MAX = 2**63  # whole numbers beyond are counted before they are written

_Path = tuple[str, ...]


class PlainTemplate(Template):
    """Its parts: texts, and the paths of what is looked up."""

    __slots__ = ("_compiled", "_keys", "_limits", "_parts", "_root")

    def __init__(
        self, text: str, mode: Mode, parts: Sequence[str | _Path], limits: TemplateLimits
    ) -> None:
        self.text = text
        self._mode = mode
        self._limits = limits
        self._parts = parts
        self._compiled: CompiledTemplate | None = None
        paths = [part for part in parts if isinstance(part, tuple)]
        around = "".join(part for part in parts if isinstance(part, str))
        alone = len(paths) == 1 and not around.strip()
        self.native = self.lookup = alone and mode not in ("text", "command")
        self.coerces = True
        self._root, *self._keys = paths[0]
        self.names = frozenset(path[0] for path in paths)
        self.readings = tuple(reversed(list(_readings(parts))))
        self.reads = frozenset(path[: 1 if METHODS.issuperset(path[1:2]) else 2] for path in paths)

    @property
    def sandbox(self) -> Sandbox:
        return self._by_jinja().sandbox

    def run(self, names: Mapping[str, Any], *, lenient: bool = False) -> Any:
        try:
            if not self.native:
                return self._rendered(names)
            value = names[self._root]
            for key in self._keys:
                if type(value) is not dict and not isinstance(value, Mapping):
                    break
                value = value[key]
            else:
                return value
        except KeyError:
            pass
        return self._by_jinja().run(names, lenient=lenient)

    def _rendered(self, names: Mapping[str, Any]) -> Rendered:
        """Raises `KeyError` for what Jinja has to be asked about."""
        texts: list[str] = []
        has_data = begins = ends = has_any = False
        for part in self._parts:
            text, data = (part, False) if isinstance(part, str) else _written(names, part)
            texts.append(text)
            if not text or text.isspace():
                continue
            begins = begins or (data and not has_any)
            has_any, has_data, ends = True, has_data or data, data
        whole = "".join(texts)
        if len(whole) > self._limits.text_max:
            raise KeyError  # it says what is too much
        return Rendered(whole, has_data, begins or ends)

    def _by_jinja(self) -> CompiledTemplate:
        if self._compiled is None:
            from anabranch.expressions.jinja.program import compiled  # loads Jinja

            self._compiled = compiled(self.text, self._mode, self._limits)
        return self._compiled


def plain_template(text: str, mode: Mode, limits: TemplateLimits) -> PlainTemplate | None:
    """None for a template that is more than text and looked up values."""
    if mode == "bare":
        path = text.strip()
        found: list[str] = ["", path, ""] if _WHOLE_PATH.fullmatch(path) else []
    else:
        found = _LOOKUP.split(text)
    if len(found) < 3 or not all(map(_is_text, found[::2])):
        return None
    parts: list[str | _Path] = []
    for number, one in enumerate(found):
        if number % 2 == 0:
            parts += [one] if one else []
            continue
        path_of = tuple(one.split("."))
        if not _is_plain(path_of):
            return None
        parts.append(path_of)
    return PlainTemplate(text, mode, parts, limits)


def _is_text(text: str) -> bool:
    """Whether Jinja takes it for text as well, and hands it on as it is."""
    if "\r" in text or text.endswith("{"):
        return False
    return "{{" not in text and "{%" not in text and "{#" not in text


def _is_plain(path: _Path) -> bool:
    if path[0] in _SPECIAL or (len(path) == 1 and path[0] in ENVELOPES):
        return False
    return not any(name.startswith("__") for name in path)


def _readings(parts: Sequence[str | _Path]) -> Iterator[TemplateLookup]:
    line = 1
    for part in parts:
        if isinstance(part, str):
            line += part.count("\n")
        else:
            yield TemplateLookup(part, line)


def _written(names: Mapping[str, Any], path: _Path) -> tuple[str, bool]:
    """The text of what is at the path, and whether it is a text of the data."""
    value = names[path[0]]
    for key in path[1:]:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise KeyError
        value = value[key]
    kind = type(value)
    if kind is str:
        if len(value) > SHORT:
            charge_shared(len(value))
        return value, True
    if kind is int and not -_WRITTEN_MAX < value < _WRITTEN_MAX:
        raise KeyError
    if kind is int or kind is bool or kind is float or value is None:
        return str(value), False
    raise KeyError
