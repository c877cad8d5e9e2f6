"""A template is checked as what it will become, before anybody gives it parameters.

Parameters get their defaults, or a stand-in of their type. What is found at a place that a stand-in
fills is left out: another value may be right there. Everything else is wrong for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.dialects.arca.plan import Plans
from anabranch.dialects.arca.templates import PASSED_ON, Template, read_template
from anabranch.dialects.nodes import Fields, Items, Node, Scalar, plain
from anabranch.dialects.source import Document, read_source
from anabranch.errors import ExpressionError
from anabranch.expressions.references import compile_references, substitute
from anabranch.net.problems import Position, Problem

#: A text that is a duration too, since that is what most texts of a plan are.
_STAND_INS: Mapping[str, Any] = {
    "string": "PT1S",
    "integer": 1,
    "number": 1,
    "boolean": True,
    "object": {},
    "array": ["PT1S"],
    "any": "PT1S",
}


def template_problems(text: str | bytes, *, file: str = "<template>") -> list[Problem]:
    """What is wrong with every definition that the template can become, each at its place.

    Raises `DefinitionError` where it is no template at all."""
    template = read_template(text, file=file)
    document = read_source(text, file=file)
    assert isinstance(document.root, Fields), "a template is a mapping"
    filling = _Filling(template)
    fields = {
        key: filling.filled(node) for key, node in document.root.fields.items() if key in PASSED_ON
    }
    keys = {key: document.root.keys[key] for key in fields}
    named = {"workflow_id": Scalar(template.template_id, document.root.position)}
    places = {"workflow_id": document.root.position}
    root = Fields({**named, **fields}, {**places, **keys}, document.root.position)
    if filling.names_steps:
        return []  # which steps there are is known when it is run
    _, problems = Plans(Document(file, document.text, root), root).compile()
    return [
        problem
        for problem in problems
        if problem.severity == "error" and problem.position not in filling.places
    ]


class _Filling:
    def __init__(self, template: Template) -> None:
        self._values = {
            each.name: _STAND_INS[each.type] if each.default is None else each.default
            for each in template.parameters
        }
        self._open = {each.name for each in template.parameters if each.default is None}
        self.places: set[Position] = set()  # filled by a stand-in
        self.names_steps = False  # a stand-in is the id of a step

    def filled(self, node: Node, key: str = "") -> Node:
        value = plain(node) if isinstance(node, Scalar) or _is_pointer(node) else None
        if value is not None and (read := _parameters_in(value)):
            if read & self._open:
                self.places.add(node.position)
                self.names_steps |= key in ("step_id", "id", "depends_on", "input_from")
            return _node(substitute(value, "params", self._values), node.position)
        match node:
            case Items():
                return Items(tuple(self.filled(item, key) for item in node), node.position)
            case Fields():
                inner = {name: self.filled(value, name) for name, value in node.fields.items()}
                return Fields(inner, node.keys, node.position)
        return node


def _is_pointer(node: Node) -> bool:
    return isinstance(node, Fields) and set(node.fields) == {"from"}


def _parameters_in(value: Any) -> set[str]:
    try:
        found = list(compile_references(value).references())
    except ExpressionError:
        return set()
    return {
        each.path.segments[1]
        for each in found
        if each.root == "params" and len(each.path.segments) > 1
    }


def _node(value: Any, at: Position) -> Node:
    """A value as if it stood there."""
    if isinstance(value, Mapping):
        fields = {str(key): _node(inner, at) for key, inner in value.items()}
        return Fields(fields, dict.fromkeys(fields, at), at)
    if isinstance(value, list | tuple):
        return Items(tuple(_node(inner, at) for inner in value), at)
    return Scalar(value, at, "quoted")
