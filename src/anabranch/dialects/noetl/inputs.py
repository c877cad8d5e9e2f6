"""`inputs` of a playbook: the entries of its workload, declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar, plain
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.expressions.jinja.jinja import has_template
from anabranch.expressions.jinja.template import TemplateLookup
from anabranch.expressions.port import Expression
from anabranch.net.inputs import TYPES, Input, describe_type, is_choice, is_of, type_of
from anabranch.net.problems import Position

KEYS = ("type", "enum", "required", "secret", "default", "description")  # of one input


class Workload:
    """The values that a run begins with: those known now, and those to be worked out then."""

    def __init__(self, root: Section, templates: TemplateCompiler, findings: Findings) -> None:
        self.values: dict[str, Any] = {}
        self.computed: dict[str, Expression] = {}
        self._templates = templates
        self._findings = findings
        self._places: dict[str, Position] = {}
        first = len(templates.readings)
        section = root.section("workload")
        for key, node in section.node.fields.items() if section is not None else ():
            self.add(key, node)
        before = {*self.values, *self.computed}
        self.inputs = self._read_inputs(root.section("inputs"), before)
        self._forbid_secrets(templates.readings[first:])

    @property
    def names(self) -> dict[str, Any]:
        """Everything that can be read of it; what is required has no value yet."""
        return {**dict.fromkeys(one.name for one in self.inputs), **self.values, **self.computed}

    def add(self, key: str, node: Node) -> None:
        self._places[key] = node.position
        if is_templated(node):
            self.computed[key] = self._templates.tree(node)
        else:
            self.values[key] = plain(node)

    def _read_inputs(self, section: Section | None, before: set[str]) -> tuple[Input, ...]:
        found = []
        for name, node in section.node.fields.items() if section is not None else ():
            if isinstance(node, Scalar) and isinstance(node.value, str):  # its type alone
                node = Fields({"type": node}, {"type": node.position}, node.position)
            one = self._findings.section(node, f"input {name!r}")
            if one is not None:
                found.append(self._input(name, one, has_default=name in before))
        return tuple(found)

    def _input(self, name: str, section: Section, *, has_default: bool) -> Input:
        kind = section.choice("type", TYPES, "any")
        enum = self._enum(section, kind)
        required, secret = section.flag("required"), section.flag("secret")
        default, description = section.ask("default"), section.string("description")
        section.finish()
        if "default" in section.node and has_default:
            message = f"{section.what} has two defaults, one of them in `workload`"
            section.report("default", "conflicting-keys", message, "keep one of them")
        elif default is not None:
            self.add(name, default)
        has_default = has_default or "default" in section.node
        value = self.values.get(name)
        if "type" not in section:
            kinds = {type_of(one) for one in enum or (value,)}
            kind = kinds.pop() if len(kinds) == 1 else "any"
        if required and has_default:
            message = f"{section.what} is required and has a default, which would never be used"
            section.report("required", "conflicting-keys", message, "leave out one of them")
        if secret:
            kind = self._kind_of_secret(name, section, kind)
        elif value is not None:
            self._check_default(name, section, kind, enum)
        if not required and name not in self.computed:
            self.values.setdefault(name, None)
        nullable = not required and name not in self.computed and value is None
        return Input(name, kind, enum, required, secret, nullable, description)

    def _enum(self, section: Section, kind: str) -> tuple[Any, ...]:
        node = section.items("enum")
        if node is None:
            return ()
        if not node.items:
            section.report(
                "enum", "bad-choice", f"`enum` of {section.what} is empty", "list values"
            )
        for one in node:
            if not is_of(plain(one), kind):
                message = f"a choice of {section.what} is not {describe_type(kind)}"
                self._findings.add(one.position, "wrong-type", message, "change one of them")
        return tuple(plain(one) for one in node)

    def _kind_of_secret(self, name: str, section: Section, kind: str) -> str:
        if kind not in ("string", "any"):
            message = f"{section.what} is a secret, which is always a text"
            section.report("secret", "wrong-type", message, "write `type: string`")
        if name in self.computed or self.values.get(name) is not None:
            message = f"{section.what} is a secret, and its default stands in the definition"
            hint = "leave out the default, or read the secret from the keychain"
            section.report("secret", "secret-default", message, hint)
        return "string"

    def _check_default(self, name: str, section: Section, kind: str, enum: tuple[Any, ...]) -> None:
        at, value = self._places[name], self.values[name]
        if not is_of(value, kind):
            message = f"the default of {section.what} is not {describe_type(kind)}"
            self._findings.add(at, "wrong-type", message, "change one of them")
        elif enum and not is_choice(value, enum):
            message = f"the default of {section.what} is none of its choices"
            self._findings.add(at, "bad-choice", message, "change one of them")

    def _forbid_secrets(self, readings: Sequence[tuple[TemplateLookup, Position]]) -> None:
        """A default is recorded with the run, and so would be what it has read."""
        secrets = {one.name for one in self.inputs if one.secret}
        for lookup, at in readings:
            read = lookup.path[1] if len(lookup.path) > 1 else lookup.root
            if read in secrets:
                message = f"a default reads {read!r}, which is a secret, and is recorded"
                hint = "read it in the inputs of a task"
                self._findings.add(at, "secret-read", message, hint)


def is_templated(node: Node) -> bool:
    match node:
        case Items():
            return any(is_templated(item) for item in node.items)
        case Fields():
            return any(is_templated(value) for value in node.fields.values())
        case Scalar():
            return isinstance(node.value, str) and has_template(node.value)
