"""Paths into JSON values: pointers (`/offer/price`), dotted paths (`offer.price`), `$.offer[0]`.

Keys of the documents we meet contain slashes (`pricing/amount`) and dots, so a segment that is not
there is joined with the ones after it until a key fits. An exact key always goes first. There is
one resolver for every path-like field, so that the same text means the same everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.errors import ExpressionError

PATH_SEGMENTS_MAX = 64

_DOTTED = re.compile(r"""\.?([^.\[\]]+)|\[([0-9]+)\]|\[(?:'([^']*)'|"([^"]*)")\]""")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class _Missing:
    """Nothing is there, which is not the same as a null."""

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING = _Missing()


class Path(msgspec.Struct, frozen=True):
    """A path, taken apart once."""

    text: str
    segments: tuple[str, ...]
    separator: str

    def find(self, value: Any) -> Any:
        """What stands at the path, or `MISSING`."""
        return _Search(self).find(value)


def parse_path(text: str) -> Path:
    """Raises `ExpressionError` where the text is no path."""
    # Blanks belong to the keys of a pointer; a line end is that of a block in YAML.
    text = text.rstrip("\r\n") if text.startswith("/") else text.strip()
    if text in ("", "$"):
        return Path(text, (), "/")
    path = _pointer(text) if text.startswith("/") else _dotted(text)
    if len(path.segments) > PATH_SEGMENTS_MAX:
        raise ExpressionError(f"the path {text!r} has more than {PATH_SEGMENTS_MAX} segments")
    return path


def _pointer(text: str) -> Path:
    if re.search(r"~(?![01])", text):
        raise ExpressionError(f"the pointer {text!r}: write `~0` for a tilde and `~1` for a slash")
    segments = (part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))
    return Path(text, tuple(segments), "/")


def _dotted(text: str) -> Path:
    rest = text.removeprefix("$.") if not text.startswith("$[") else text[1:]
    segments, position = [], 0
    for part in _DOTTED.finditer(rest):
        if part.start() != position:
            break
        segments.append(next(group for group in part.groups() if group is not None))
        position = part.end()
    if position != len(rest) or not segments:
        raise ExpressionError(f"{text!r} is not a path; write /a/b, a.b or $.a[0].b")
    return Path(text, tuple(segments), ".")


class _Search:
    """One walk along a path. What led nowhere once is not looked at again, or an answer made for
    it could keep us busy for ever."""

    def __init__(self, path: Path) -> None:
        self._segments = path.segments
        self._separator = path.separator
        self._in_vain: dict[tuple[int, int], Any] = {}  # the values, so that no id comes twice

    def find(self, value: Any, at: int = 0) -> Any:
        if at == len(self._segments):
            return value
        if (id(value), at) in self._in_vain:
            return MISSING
        found: Any = MISSING
        if isinstance(value, Mapping):
            found = self._in_mapping(value, at)
        elif isinstance(value, list | tuple):
            found = self._in_list(value, at)
        if found is MISSING:
            self._in_vain[id(value), at] = value
        return found

    def _in_mapping(self, value: Mapping[str, Any], at: int) -> Any:
        for end in range(at + 1, len(self._segments) + 1):
            key = self._separator.join(self._segments[at:end])
            if key in value:
                found = self.find(value[key], end)
                if found is not MISSING:
                    return found
        return MISSING

    def _in_list(self, value: Sequence[Any], at: int) -> Any:
        index = self._segments[at]
        if not _INDEX.fullmatch(index) or int(index) >= len(value):
            return MISSING
        return self.find(value[int(index)], at + 1)


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: true is not 1, 1 is not "1", and 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    both_numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return bool(left == right) and (both_numbers or type(left) is type(right))
