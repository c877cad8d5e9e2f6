"""`in` of a loop: a list, a template that gives one, or the description of a collection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.outcomes import rows_of
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.expressions.jinja.jinja import has_template
from anabranch.expressions.port import Constant, Expression, Paths

#: Collections that are described rather than listed, and read lazily.
DESCRIPTORS = (
    *("range", "jsonl", "csv", "parquet", "listing", "sql", "pages", "claim", "results_of"),
)
LOOP_REF = "anabranch:run:"  # how `fanin.refs` begins
#: What a description cannot do without.
NEEDED = {"sql": ("query", "key"), "claim": ("command",), "pages": ("url",)}
WHY = {
    "query": "say what to read",
    "key": "name a column that is unique and never null",
    "command": "say what claims the rows",
    "url": "say where the first page is",
}
CURSORS = ("postgres", "sqlite", "duckdb", "http")


class Collected(msgspec.Struct, frozen=True):
    """What `in` comes to: a list, or the collection that the definition describes.

    Data describes none, whatever its keys are: whoever could write a description could have files
    read and addresses called, with the credentials of this machine. The answer of a query means its
    rows, a mapping is gone through as `{key, value}` pairs, the ref of a loop means its results."""

    inner: Expression
    described: bool = False

    @property
    def text(self) -> str:
        return self.inner.text

    @property
    def reads(self) -> Paths | None:
        return getattr(self.inner, "reads", None)

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        value = self.inner.evaluate(names)
        if self.described:
            return value
        if (rows := rows_of(value)) is not None:
            return rows
        if isinstance(value, Mapping):
            return [{"key": key, "value": each} for key, each in value.items()]
        if isinstance(value, str) and value.startswith(LOOP_REF):
            return {"results_of": value}
        return value


class Sources(msgspec.Struct, frozen=True):
    """Reads what the loops of one playbook go through."""

    templates: TemplateCompiler
    findings: Findings

    def over(self, loop: Section) -> Expression:
        node = loop.ask("in")
        if "cursor" in loop:
            self._cursor(loop)
            return Constant([])
        what = f"`in` of {loop.what}"
        if node is None:
            loop.require("in", 'say what to go through: a list, or "{{ … }}"')
            return Constant([])
        if isinstance(node, Scalar):
            if not isinstance(node.value, str) or not has_template(node.value):
                expected = 'a list, a template such as "{{ workload.items }}" or a collection'
                self.findings.wrong_type(node, what, expected)
                return Constant([])
        elif isinstance(node, Fields):
            self._check_descriptor(node, what)
        described = isinstance(node, Fields) and any(key in node for key in DESCRIPTORS)
        return Collected(self.templates.tree(node), described)

    def _check_descriptor(self, node: Fields, what: str) -> None:
        named = [key for key in DESCRIPTORS if key in node]
        if len(named) > 1:
            message = f"{what} describes two collections: {named[0]} and {named[1]}"
            at = node.keys[named[1]]
            self.findings.add(at, "conflicting-keys", message, "keep one of them")
        for key in named:
            inner = node.fields[key]
            section = self.findings.section(inner, f"`{key}` of {what}") if key in NEEDED else None
            for needed in NEEDED.get(key, ()) if section is not None else ():
                if section is not None:
                    section.require(needed, WHY[needed])
        if "range" not in node:
            return
        numbers = node.fields["range"]
        if isinstance(numbers, Items):
            fits = 1 <= len(numbers.items) <= 3 and all(map(_may_be_number, numbers))
        else:
            fits = _may_be_number(numbers) or isinstance(numbers, Fields)
        if not fits:
            expected = "a number, or [start, stop] or [start, stop, step]"
            self.findings.wrong_type(numbers, f"`range` of {what}", expected)
        self._check_stride(numbers, what)

    def _check_stride(self, numbers: Node, what: str) -> None:
        stride = numbers.get("step") if isinstance(numbers, Fields) else None
        if isinstance(numbers, Items) and len(numbers.items) == 3:
            stride = numbers.items[2]
        if isinstance(stride, Scalar) and type(stride.value) is int and stride.value == 0:
            message = f"`range` of {what} has the step 0, which comes to no end"
            self.findings.add(stride.position, "bad-number", message, "write 1, or another number")

    def _cursor(self, loop: Section) -> None:
        """A cursor that could not be turned into a collection: say what keeps it from that."""
        node = loop.ask("cursor")
        if node is None:
            return
        if "in" in loop:
            loop.conflict("in", "cursor")
            return
        cursor = self.findings.section(node, f"`cursor` of {loop.what}")
        if cursor is None:
            return
        kind = cursor.choice("kind", CURSORS, "postgres")
        options = cursor.section("options")
        cursor.require("kind", "choose one of " + ", ".join(CURSORS))
        if options is not None:
            for key in options.node.fields.keys() & cursor.node.fields.keys():
                message = f"{cursor.what} has {key!r} twice, once under `options`"
                options.report(key, "conflicting-keys", message, "keep one of them")
        wanted = "the address of the first page" if kind == "http" else "one SQL statement, as text"
        cursor.text("claim")
        cursor.require("claim", f"write {wanted}")


def _may_be_number(node: Node) -> bool:
    if not isinstance(node, Scalar) or isinstance(node.value, bool):
        return False
    if isinstance(node.value, str):
        return has_template(node.value)
    return node.value is not None and math.isfinite(node.value)
