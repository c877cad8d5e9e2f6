"""A document as it was read: plain values, each with its place in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from anabranch.net.problems import Position

Style = Literal["plain", "quoted", "literal", "folded"]


class Scalar(msgspec.Struct, frozen=True):
    value: str | int | float | bool | None
    position: Position
    style: Style = "plain"


class Items(msgspec.Struct, frozen=True):
    items: tuple[Node, ...]
    position: Position

    def __iter__(self) -> Iterator[Node]:
        return iter(self.items)


class Fields(msgspec.Struct, frozen=True):
    """A mapping. `keys` says where each key stands, `fields` what it holds."""

    fields: Mapping[str, Node]
    keys: Mapping[str, Position]
    position: Position

    def get(self, key: str) -> Node | None:
        return self.fields.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self.fields


Node = Scalar | Items | Fields


def plain(node: Node) -> Any:
    """The value without its places."""
    match node:
        case Scalar():
            return node.value
        case Items():
            return [plain(item) for item in node.items]
        case Fields():
            return {key: plain(value) for key, value in node.fields.items()}


def kind_of(node: Node) -> str:
    """What a node is, in the words of an error message."""
    match node:
        case Items():
            return "a list"
        case Fields():
            return "a mapping"
        case Scalar(value=None):
            return "empty"
        case Scalar(value=bool(value)):
            return "true" if value else "false"
        case Scalar(value=str(value)):
            shown = value if len(value) <= 40 else value[:39] + "…"
            return f"the text {shown!r}"
        case Scalar(value=value):
            return f"the number {value}"
