"""References of Arca definitions: `{{input.text}}` in texts, `{"from": "/steps/a"}` as values.

They read one document that the run lays out:

    {"input": …, "params": …, "run": {"id": …},
     "steps": {<id>: {"output": …, "participant": …}}}

`participant` is whose answer the output is, as far as it is one's.

A text that is one placeholder and nothing else keeps the type of what it reads. There is one pass:
what was put in is never looked at again, so an answer cannot smuggle a reference in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from anabranch.errors import ExpressionError
from anabranch.expressions.pointer import MISSING, Path, parse_path
from anabranch.expressions.port import Paths

ROOTS = ("input", "params", "run", "steps")

_PLACEHOLDER = re.compile(r"\{\{([^{}]*+)\}\}")


class Reference(msgspec.Struct, frozen=True):
    """One reading of the document, and how it was written."""

    path: Path
    text: str

    @property
    def root(self) -> str:
        return self.path.segments[0] if self.path.segments else ""

    def find(self, document: Mapping[str, Any]) -> Any:
        found = self.path.find(document)
        if found is MISSING:
            message = f"there is nothing at {self.text}"
            raise ExpressionError(message, code="unresolved_reference")
        return found


Find = Callable[[Reference], Any]
Part = str | Reference


class _Text(msgspec.Struct, frozen=True):
    """Text with placeholders in it."""

    parts: tuple[Part, ...]

    def render(self, find: Find) -> Any:
        if len(self.parts) == 1 and isinstance(self.parts[0], Reference):
            return find(self.parts[0])
        return "".join(
            part if isinstance(part, str) else _as_text(find(part)) for part in self.parts
        )


class _From(msgspec.Struct, frozen=True):
    reference: Reference


Tree = Any  # plain values with `_Text` and `_From` leaves


class References(msgspec.Struct, frozen=True):
    """A value with references, compiled."""

    tree: Tree
    text: str

    def render(self, document: Mapping[str, Any]) -> Any:
        return _render(self.tree, lambda reference: reference.find(document))

    def references(self) -> Iterator[Reference]:
        yield from _references(self.tree)

    @property
    def reads(self) -> Paths:
        """The steps whose output it reads. A name with the separator in it spans segments."""
        return frozenset(
            ("steps", each.path.separator.join(each.path.segments[1:end]))
            for each in self.references()
            if each.root == "steps"
            for end in range(2, len(each.path.segments) + 1)
        ) | frozenset(("steps",) for each in self.references() if each.path.segments == ("steps",))


def compile_references(value: Any) -> References:
    """Raises `ExpressionError` where a placeholder or a pointer cannot be read."""
    return References(_compile(value), json.dumps(value, ensure_ascii=False, default=str))


def is_reference(value: Any) -> bool:
    """Whether it is one that is the whole value, so that what it reads keeps its type."""
    if not isinstance(value, str | Mapping):
        return False
    try:
        found = list(compile_references(value).references())
    except ExpressionError:
        return False
    if isinstance(value, Mapping):
        return _pointed(value) is not None
    return len(found) == 1 and value == found[0].text


def substitute(value: Any, root: str, values: Mapping[str, Any]) -> Any:
    """The value with the references to one root put in, and all the others left as written."""

    def put_in(node: Any) -> Any:
        if isinstance(node, str) and root in node:
            return _substituted(node, root, values)
        if isinstance(node, Mapping):
            reference = _pointed(node)
            if reference is not None and reference.root == root:
                return reference.find({root: values})
            return {key: put_in(inner) for key, inner in node.items()}
        if isinstance(node, list):
            return [put_in(inner) for inner in node]
        return node

    return put_in(value)


def _substituted(text: str, root: str, values: Mapping[str, Any]) -> Any:
    def read(match: re.Match[str]) -> Any:
        reference = Reference(parse_path(match[1].strip()), match[0])
        return reference.find({root: values}) if reference.root == root else match[0]

    whole = _PLACEHOLDER.fullmatch(text)
    if whole is not None:
        return read(whole)
    return _PLACEHOLDER.sub(lambda match: _as_text(read(match)), text)


def _compile(value: Any) -> Tree:
    if isinstance(value, str):
        return _compile_text(value)
    if isinstance(value, Mapping):
        pointed = _pointed(value)
        if pointed is not None:
            return _From(pointed)
        return {key: _compile(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_compile(inner) for inner in value]
    return value


def _pointed(value: Mapping[str, Any]) -> Reference | None:
    """`{"from": "/steps/a/output"}`, and nothing beside it."""
    if set(value) == {"from"} and isinstance(value["from"], str):
        return Reference(parse_path(value["from"]), value["from"])
    return None


def _compile_text(text: str) -> Tree:
    parts: list[Part] = []
    position = 0
    for found in _PLACEHOLDER.finditer(text):
        if found.start() > position:
            parts.append(text[position : found.start()])
        inside = found[1].strip()
        if not inside:
            raise ExpressionError(f"{text!r}: an empty placeholder")
        parts.append(Reference(parse_path(inside), found[0]))
        position = found.end()
    if not parts:
        return text
    if position < len(text):
        parts.append(text[position:])
    return _Text(tuple(parts))


def _render(tree: Tree, find: Find) -> Any:
    match tree:
        case _Text():
            return tree.render(find)
        case _From():
            return find(tree.reference)
        case Mapping():
            return {key: _render(inner, find) for key, inner in tree.items()}
        case list():
            return [_render(inner, find) for inner in tree]
        case _:
            return tree


def _references(tree: Tree) -> Iterator[Reference]:
    match tree:
        case _Text():
            yield from (part for part in tree.parts if isinstance(part, Reference))
        case _From():
            yield tree.reference
        case Mapping():
            for inner in tree.values():
                yield from _references(inner)
        case list():
            for inner in tree:
                yield from _references(inner)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


class _Outputs(Mapping[str, Any]):
    """`steps` of the document: what has come to a result, as `{"output": …}`, and whose it is."""

    def __init__(self, results: Mapping[str, Any], answered_by: Mapping[str, str]) -> None:
        self._results = results
        self._answered_by = answered_by

    def __getitem__(self, step: str) -> Any:
        found = {"output": self._results[step]}
        if step in self._answered_by:
            found["participant"] = self._answered_by[step]
        return found

    def __contains__(self, step: object) -> bool:
        return step in self._results

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)


def document_of(names: Mapping[str, Any]) -> dict[str, Any]:
    """The document that references read, from the names that a run lays out."""
    return {
        "input": names.get("workload", {}),
        "params": {},
        "run": {"id": names.get("run", "")},
        "steps": _Outputs(names.get("results", {}), names.get("answered_by", {})),
    }
