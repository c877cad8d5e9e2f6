"""`assert` of a task, in a workbook or anywhere else: what must hold when it has ended well.

    assert: "{{ result.count > 0 }}"
    assert: ["{{ result.count > 0 }}", {condition: "{{ result.id }}", message: no id}]
    assert: {condition: …, message: …}
    assert: {expects: [customer], returns: [score]}       names only: noted, and not looked at

A condition that does not hold, or cannot be evaluated, fails the task with an error of the kind
`assertion`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.errors import ExpressionError
from anabranch.expressions.port import Expression, Paths
from anabranch.net.program import Rule

CONDITION = "condition"
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


class Unmet(msgspec.Struct, frozen=True):
    """Whether a task that ended well has not done what it should."""

    condition: Expression

    @property
    def text(self) -> str:
        return self.condition.text

    @property
    def reads(self) -> Paths | None:
        return getattr(self.condition, "reads", None)

    def evaluate(self, names: Mapping[str, Any]) -> bool:
        if names["local"]["outcome"]["status"] != "ok":
            return False
        try:
            return not self.condition.evaluate(names)
        except ExpressionError:
            return True


class Assertions(msgspec.Struct, frozen=True):
    """Reads the `assert` of one task."""

    task: Section
    templates: TemplateCompiler

    def rules(self) -> tuple[Rule, ...]:
        node = self.task.ask("assert")
        if node is None:
            return ()
        before = len(self.task.findings.problems)
        found = self._read(node)
        if not found and len(self.task.findings.problems) == before:
            self.task.ignored("assert", "it lists names, and states no condition")
        return tuple(found)

    def _sound(self, node: Node) -> bool:
        """Whether there is nothing in it but names."""
        match node:
            case Items():
                return all(map(self._sound, node))
            case Fields():
                return all(map(self._sound, node.fields.values()))
            case Scalar(value=str(text)):
                return _NAME.fullmatch(text.strip()) is not None
            case _:
                return True

    def _read(self, node: Node, message: str = "") -> list[Rule]:
        if isinstance(node, Items):
            return [rule for each in node for rule in self._read(each, message)]
        if isinstance(node, Fields):
            return self._mapping(Section(node, f"`assert` of {self.task.what}", self.task.findings))
        if not isinstance(node, Scalar) or not isinstance(node.value, str | bool):
            expected = "a condition, a list of them, or names"
            self.task.findings.wrong_type(node, f"`assert` of {self.task.what}", expected)
            return []
        if isinstance(node.value, str) and _NAME.fullmatch(node.value.strip()):
            return []
        return [self._rule(node, message)]

    def _mapping(self, section: Section) -> list[Rule]:
        message = section.string("message")
        found: list[Rule] = []
        for key, node in section.node.fields.items():
            if key == CONDITION:
                section.ask(key)
                before = len(found)
                found += self._read(node, message)
                if len(found) == before and isinstance(node, Scalar):
                    found.append(self._rule(node, message))  # one word may be a condition here
            elif self._sound(node) and not isinstance(node, Fields):
                section.ask(key)
        section.finish(also=(CONDITION,))
        return found

    def _rule(self, node: Scalar, message: str) -> Rule:
        condition = self.templates.condition(node, f"`assert` of {self.task.what}")
        told = message or f"the assertion {str(node.value).strip()!r:.200} does not hold"
        return Rule(Unmet(condition), "fail", asserts=told, position=node.position)
