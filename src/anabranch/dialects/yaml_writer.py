"""Writes a document as YAML: block style, short collections in one line, comments at their place.

The text depends only on the document, so writing what was read from it gives the same text again.
Aliases are written out. Blank lines stand between the sections of the root, apart from those in
`together`, and between the items of the lists named in `spaced`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.yaml_comments import Comments
from anabranch.dialects.yaml_reader import resolve
from anabranch.net.problems import Position

WIDTH = 100
LEAVES_MAX = 6  # of a collection in one line
DEPTH_MAX = 3
_PLAIN = re.compile(
    r"(?!\.[0-9])[A-Za-z_/.][A-Za-z0-9_./@%+-]*( [A-Za-z0-9_./@%+()-]+)*"
    r"|[0-9]+(ms|[smhd])"  # durations; other readers take other words for numbers
)
_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def lines_of(node: Node) -> Iterator[int]:
    """The lines in which keys and items of the document stand."""
    if isinstance(node, Fields):
        for key, value in node.fields.items():
            yield node.keys[key].line
            yield from lines_of(value)
    elif isinstance(node, Items):
        for item in node:
            yield item.position.line
            yield from lines_of(item)


class YamlWriter:
    def __init__(
        self,
        comments: Comments,
        *,
        spaced: frozenset[str] = frozenset(),
        together: frozenset[str] = frozenset(),
    ) -> None:
        self._comments = comments
        self._spaced = spaced
        self._together = together
        self._lines: list[str] = []
        self._said: set[int] = set()  # lines whose comments are written
        self._kept = 0  # lines written when a text that keeps its line ends was the last

    def write(self, root: Fields) -> str:
        for number, (key, value) in enumerate(root.fields.items()):
            if number and key not in self._together:
                self._separate()
            self._entry(key, value, root.keys[key], "", "", spaced=key in self._spaced, top=True)
        if self._comments.last:
            self._separate()
            self._lines += self._comments.last
        return "\n".join(self._lines) + "\n"

    # -- blocks ------------------------------------------------------------------------------

    def _entry(
        self,
        key: str,
        value: Node,
        at: Position,
        first: str,
        indent: str,
        *,
        spaced: bool = False,
        top: bool = False,
    ) -> None:
        """One key of a mapping; `first` stands in front of it, `indent` in front of the rest."""
        behind = self._above(at, indent, first)
        head = f"{first}{_key(key)}:"
        short = None if spaced or (top and self._is_long(value)) else self._short(value, head)
        if short is not None:
            self._lines.append(f"{head} {short}{behind}")
        elif isinstance(value, Scalar):
            if behind:
                self._lines.append(_margin(first, indent) + behind.strip())
            self._literal(f"{head} ", str(value.value), indent)
        elif isinstance(value, Fields):
            self._lines.append(head + behind)
            self._mapping(value, indent + "  ", indent + "  ")
        else:
            self._lines.append(head + behind)
            self._list(value, indent + "  ", spaced=spaced)

    def _mapping(self, node: Fields, first: str, indent: str) -> None:
        for number, (key, value) in enumerate(node.fields.items()):
            self._entry(key, value, node.keys[key], indent if number else first, indent)

    def _list(self, node: Items, indent: str, *, spaced: bool = False) -> None:
        for number, item in enumerate(node):
            if spaced and number:
                self._separate()
            self._item(item, indent, spaced=spaced)

    def _item(self, item: Node, indent: str, *, spaced: bool) -> None:
        head, line = f"{indent}- ", item.position.line
        opens = isinstance(item, Fields) and item.fields and self._short(item, head) is None
        if isinstance(item, Fields) and item.fields and (spaced or opens):
            if line != next(iter(item.keys.values())).line:
                behind = self._above(item.position, indent, indent)
                self._lines += [indent + behind.strip()] if behind else []
            self._mapping(item, head, indent + "  ")
            return
        behind = self._above(item.position, indent, indent)
        short = self._short(item, head)
        if short is not None:
            self._lines.append(f"{head}{short}{behind}")
            return
        self._lines += [indent + behind.strip()] if behind else []
        if isinstance(item, Scalar):
            self._literal(head, str(item.value), indent)
        elif isinstance(item, Items):
            self._lines.append(f"{indent}-")
            self._list(item, indent + "  ")

    def _literal(self, head: str, text: str, indent: str) -> None:
        body = text.rstrip("\n")
        ends = len(text) - len(body)
        chomp = {0: "-", 1: ""}.get(ends, "+")
        self._lines.append(f"{head}|{chomp}")
        rows = text[:-1].split("\n") if ends else text.split("\n")
        self._lines += [f"{indent}  {row}" if row else "" for row in rows]
        if ends > 1:
            self._kept = len(self._lines)

    def _separate(self) -> None:
        """A blank line; behind a text that keeps its line ends it would become part of the text."""
        if self._kept != len(self._lines):
            self._lines.append("")

    def _above(self, at: Position, indent: str, first: str) -> str:
        """Write the comments above an entry; gives the one behind it."""
        if at.line in self._said:
            return ""
        self._said.add(at.line)
        above = self._comments.above.get(at.line, [])
        behind = self._comments.behind.get(at.line)
        margin = _margin(first, indent)
        self._lines += [margin + comment for comment in above]
        return "" if behind is None else f" {behind}"

    # -- one line ----------------------------------------------------------------------------

    def _is_long(self, node: Node) -> bool:
        return isinstance(node, Fields | Items) and self._short(node, " " * 20) is None

    def _short(self, node: Node, head: str) -> str | None:
        """The value in the rest of the line, None when it needs more than that."""
        if isinstance(node, Scalar):
            return scalar_text(node.value) if _fits_line(node) else None
        if _depth(node) == 1 and _leaves(node) == 0:
            return _flow(node)
        if any(self._comments.at(line) and line not in self._said for line in lines_of(node)):
            return None
        row = isinstance(node, Items) and _depth(node) == 1  # a list of plain values may be longer
        if (_leaves(node) > LEAVES_MAX and not row) or _depth(node) > DEPTH_MAX:
            return None
        text = _flow(node)
        return text if text is not None and len(head) + len(text) < WIDTH else None


def _margin(first: str, indent: str) -> str:
    """Where comments of an entry begin; those of a first key stand above its dash."""
    return first[:-2] if first.endswith("- ") else indent


def _flow(node: Node) -> str | None:
    if isinstance(node, Scalar):
        return scalar_text(node.value) if _fits_line(node) else None
    if isinstance(node, Items):
        parts = [_flow(item) for item in node]
        return None if None in parts else f"[{', '.join(map(str, parts))}]"
    pairs = [(key, _flow(value)) for key, value in node.fields.items()]
    if any(value is None for _, value in pairs):
        return None
    return "{" + ", ".join(f"{_key(key)}: {value}" for key, value in pairs) + "}"


def _leaves(node: Node) -> int:
    if isinstance(node, Scalar):
        return 1
    children = node.items if isinstance(node, Items) else tuple(node.fields.values())
    return sum(map(_leaves, children))


def _depth(node: Node) -> int:
    if isinstance(node, Scalar):
        return 0
    children = node.items if isinstance(node, Items) else tuple(node.fields.values())
    return 1 + max(map(_depth, children), default=0)


# -- scalars ---------------------------------------------------------------------------------


def _fits_line(node: Scalar) -> bool:
    """Whether a scalar is written in one line; text with line breaks is written as a block."""
    text = node.value
    if not isinstance(text, str) or "\n" not in text:
        return True
    rows = text.split("\n")
    starts_plain = bool(rows[0]) and not rows[0].startswith((" ", "\t"))
    return not starts_plain or _ODD.search(text) is not None or "\r" in text


def _key(key: str) -> str:
    return scalar_text(key)


def scalar_text(value: str | int | float | bool | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return _number(value)
    if _PLAIN.fullmatch(value) and _stays_text(value):
        return value
    if '"' in value and "'" not in value and _ODD.search(value) is None and "\n" not in value:
        return f"'{value}'"
    quoted = json.dumps(value, ensure_ascii=False)
    return _ODD.sub(lambda odd: f"\\u{ord(odd.group()):04x}", quoted)


def _number(value: float) -> str:
    """Without the point, readers of YAML 1.1 take `1e-05` for a text."""
    digits, exponent, power = repr(value).partition("e")
    return f"{digits}.0e{power}" if exponent and "." not in digits else repr(value)


def _stays_text(word: str) -> bool:
    try:
        return isinstance(resolve(word), str)
    except ValueError:
        return False
