"""Mappings that are being respelled: keys move and change their names, places stay known."""

from __future__ import annotations

from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.net.problems import Position

Placed = tuple[Node, Position]


class Shape:
    """A mapping of the document, open for changes; the order of its keys is kept."""

    def __init__(self, node: Fields) -> None:
        self.fields: dict[str, Node] = dict(node.fields)
        self.keys: dict[str, Position] = dict(node.keys)
        self.position = node.position

    def node(self) -> Fields:
        return Fields(self.fields, self.keys, self.position)

    def __contains__(self, key: str) -> bool:
        """Whether the key is there with a value."""
        node = self.fields.get(key)
        return node is not None and (type(node) is not Scalar or node.value is not None)

    def mapping(self, key: str) -> Fields | None:
        node = self.fields.get(key)
        return node if type(node) is Fields else None

    def take(self, key: str) -> Placed:
        return self.fields.pop(key), self.keys.pop(key)

    def put(self, key: str, node: Node, at: Position, *, before: tuple[str, ...] = ()) -> None:
        """Set a key; a new one stands in front of the first of `before`, or at the end."""
        new = key not in self.fields
        self.fields[key] = node
        self.keys.setdefault(key, at)
        anchor = next((name for name in before if name in self.fields), None)
        if new and anchor is not None:
            names = [name for name in self.fields if name != key]
            names.insert(names.index(anchor), key)
            self.fields = {name: self.fields[name] for name in names}
            self.keys = {name: self.keys[name] for name in names}

    def advance(self, key: str, before: tuple[str, ...]) -> None:
        """Move a key in front of the first of the others."""
        if key in self.fields:
            node, at = self.take(key)
            self.put(key, node, at, before=before)

    def rename(self, old: str, new: str) -> None:
        """Give a key another name, at the same place in the order."""
        names = {name: new if name == old else name for name in self.fields}
        self.fields = {names[name]: node for name, node in self.fields.items()}
        self.keys = {names[name]: at for name, at in self.keys.items()}

    def deepen(self, path: tuple[str, ...], node: Node, at: Position) -> bool:
        """Set a key inside nested mappings, making those that are missing.

        False when something else than a mapping is in the way; nothing has changed then."""
        key, *rest = path
        if not rest:
            self.put(key, node, at)
            return True
        if key in self and self.mapping(key) is None:
            return False
        held = self.mapping(key)
        inner = Shape(held if held is not None else fields({}, at))
        if not inner.deepen(tuple(rest), node, at):
            return False
        self.put(key, inner.node(), at)
        return True

    def find(self, *path: str) -> Node | None:
        """The value inside nested mappings, None when there is none."""
        key, *rest = path
        return find(self.fields.get(key), *rest)


def find(node: Node | None, *path: str) -> Node | None:
    for key in path:
        if type(node) is not Fields:
            return None
        node = node.fields.get(key)
    return None if type(node) is Scalar and node.value is None else node


def fields(values: dict[str, Node], at: Position) -> Fields:
    return Fields(values, dict.fromkeys(values, at), at)


def items(values: list[Node], at: Position) -> Items:
    return Items(tuple(values), at)


def merged(outer: Node | None, inner: Node | None) -> Node | None:
    """Mappings merge key by key and the inner value wins; anything else is replaced."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    if not isinstance(outer, Fields) or not isinstance(inner, Fields):
        return inner
    shape = Shape(outer)
    for key, node in inner.fields.items():
        both = merged(shape.fields.get(key), node)
        assert both is not None, "one of two nodes is there"
        shape.fields[key] = both
        shape.keys[key] = inner.keys[key]
    return shape.node()
