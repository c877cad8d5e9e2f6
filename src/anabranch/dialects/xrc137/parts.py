"""What the readers of a rule document share: names, types, defaults, values and expressions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar, plain
from anabranch.dialects.xrc137 import limits
from anabranch.dialects.xrc137.casts import TYPES, CastFailed, cast
from anabranch.dialects.xrc137.document import ENGINE_NAMES, Default, TypedValue
from anabranch.expressions.cel.cel import Cel
from anabranch.expressions.cel.regex import refused_patterns
from anabranch.expressions.cel.values import CelError, CelLimitError, CelSyntaxError
from anabranch.expressions.placeholders import (
    PlaceholderText,
    Value,
    compile_expression,
    compile_template,
    compile_value,
    constant,
    lint,
)
from anabranch.net.problems import Position, did_you_mean

T = TypeVar("T")

ROOT = "the rule"


class PartsReader:
    """The problems found so far, and the names that can be read at the place being looked at."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.known: set[str] = set(ENGINE_NAMES)

    # -- limits and names --------------------------------------------------------------------

    def limit(self, at: Position, what: str, count: int, most: int) -> bool:
        """Whether the limit is kept; a problem if it is not."""
        if count <= most:
            return True
        self.findings.add(at, "too-many", f"{what}: {count}, where {most} are allowed", "use fewer")
        return False

    def length(self, node: Scalar, what: str, most: int) -> None:
        size = len(str(node.value))
        if size > most:
            message = f"{what} is {size} characters long; {most} are allowed"
            self.findings.add(node.position, "too-large", message, "shorten it")

    def name(self, name: str, at: Position, what: str) -> bool:
        if limits.NAME.fullmatch(name) and name not in limits.NO_NAMES:
            return True
        hint = "use letters, digits and _, not beginning with a digit, at most 64 characters"
        if name in limits.NO_NAMES:
            hint = "it is a word of the expression language; choose another"
        self.findings.add(at, "bad-name", f"{name[:80]!r} cannot be the name of {what}", hint)
        return False

    def once(self, name: str, taken: Collection[str], at: Position, what: str) -> bool:
        if name not in taken:
            return True
        message = f"{what} {name!r} is there already"
        self.findings.add(at, "duplicate-label", message, "choose another name")
        return False

    # -- values ------------------------------------------------------------------------------

    def section(self, outer: Section, key: str, most: int | None = None) -> Section | None:
        """A mapping inside another; its name in messages is the path to it."""
        node = outer.ask(key)
        path = key if outer.what == ROOT else f"{outer.what}.{key}"
        found = None if node is None else self.findings.section(node, path)
        if found is not None and most is not None:
            self.limit(found.position, path, len(found.node.fields), most)
        return found

    def string(self, section: Section, key: str, *, required: str = "") -> Scalar | None:
        """A text, and nothing that could be taken for one. `required` is the hint when absent."""
        node = section.needed(key, required) if required else section.ask(key)
        if node is None:
            return None
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node
        self.findings.wrong_type(node, f"`{key}` of {section.what}", "text")
        return None

    def type_of(self, section: Section, *, key: str = "type") -> str:
        node = section.needed(key, "name one of " + ", ".join(TYPES))
        if node is None:
            return "string"
        if isinstance(node, Scalar) and node.value in TYPES:
            return str(node.value)
        word = str(node.value) if isinstance(node, Scalar) else ""
        close = did_you_mean(word, TYPES) if word else ""
        hint = close or "choose one of " + ", ".join(TYPES)
        message = f"`{key}` of {section.what} is no type of rule documents"
        self.findings.add(node.position, "bad-choice", message, hint)
        return ""

    def default(self, section: Section, type_name: str) -> Default | None:
        node = section.ask("default")
        if node is None:
            return None
        value = plain(node)
        if not type_name:
            return Default(value)
        try:
            return Default(cast(value, type_name))
        except CastFailed as error:
            message = f"`default` of {section.what}: {error.message}"
            hint = f"write a value that is {type_name}, or change the type"
            self.findings.add(node.position, "bad-value", message, hint)
            return Default(None)

    def value(self, node: Node, what: str) -> Value:
        """A literal, or a text that is copied, computed or filled in."""
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            return constant(plain(node))
        found = self._compiled(node, what, lambda: compile_value(str(node.value), self.known))
        if found is None:
            return constant("")
        if message := lint(found):
            hint = "quote it or reword it when that is not meant"
            self.findings.warn(node.position, "text-candidate", f"{what}: {message}", hint)
        self._check_names(found.names, node.position, what)
        if found.cel is not None:
            self._check_patterns(found.cel, node.position, what)
        return found

    def expression(self, node: Node, what: str, also: Collection[str] = ()) -> Cel | None:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            self.findings.wrong_type(node, what, "an expression in quotes")
            return None
        found = self._compiled(node, what, lambda: compile_expression(str(node.value)))
        if found is not None:
            self._check_names(found.names - set(also), node.position, what)
            self._check_patterns(found, node.position, what)
        return found

    def template(self, node: Scalar, what: str) -> PlaceholderText:
        found = compile_template(str(node.value))
        self._check_names(found.names, node.position, what)
        return found

    def typed_value(self, node: Node, what: str) -> TypedValue | None:
        """`{type, value, default?}`; `expr` is the old word for `value`."""
        section = self.findings.section(node, what)
        if section is None:
            return None
        type_name = self.type_of(section)
        given = self.value_or_expr(section)
        default = self.default(section, type_name)
        section.finish()
        if given is None or not type_name:
            return None
        return TypedValue(type_name, self.value(given, what), default)

    def value_or_expr(self, section: Section) -> Node | None:
        value, old = section.ask("value"), section.ask("expr")
        if old is not None:
            if value is not None:
                section.conflict("value", "expr", "keep `value`")
                return value
            self.old(section.key_position("expr"), "`expr`", "write `value`")
        if value is None and old is None:
            section.require("value", "say what it is worked out from")
        return value if value is not None else old

    def filled_in_later(self, node: Node, section: Section) -> bool:
        """`${addr:token}` as an address: a deploy tool or a test plan puts one in its place."""
        if not isinstance(node, Scalar) or not limits.LATER.fullmatch(str(node.value).strip()):
            return False
        message = f"`to` of {section.what} is {node.value}, which nothing fills in here"
        hint = "a test plan does (`anabranch test`); elsewhere write the address"
        self.findings.warn(node.position, "unresolved-address", message, hint)
        return True

    def old(self, at: Position, what: str, hint: str) -> None:
        self.findings.warn(at, "old-spelling", f"{what} is an older way to write this", hint)

    def items(
        self, section: Section, key: str, most: int, read: Callable[[Node, str], T | None]
    ) -> tuple[T, ...]:
        """The entries of a list, each read by `read` and named for messages."""
        found = section.items(key)
        if found is None:
            return ()
        self.limit(found.position, f"`{key}` of {section.what}", len(found.items), most)
        path = key if section.what == ROOT else f"{section.what}.{key}"
        entries = [read(node, f"{path}[{index}]") for index, node in enumerate(found.items[:most])]
        return tuple(entry for entry in entries if entry is not None)

    # -- inside ------------------------------------------------------------------------------

    def _compiled(self, node: Scalar, what: str, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except CelSyntaxError as error:
            message = f"{what}: {error.message} (character {error.column})"
            hint = "correct the expression; a text with placeholders has no operators in it"
            self.findings.add(node.position, "bad-expression", message, hint)
        except CelLimitError as error:
            self.findings.add(node.position, "too-large", f"{what}: {error.message}", "simplify it")
        except CelError as error:
            self.findings.add(node.position, "bad-expression", f"{what}: {error.message}")
        return None

    def _check_names(self, names: Collection[str], at: Position, what: str) -> None:
        for name in sorted(set(names) - self.known):
            hint = did_you_mean(name, self.known) or "declare it in `payload`"
            message = f"{what} reads {name!r}, which nothing before it sets: it is always missing"
            self.findings.warn(at, "unknown-name", message, hint)

    def _check_patterns(self, cel: Cel, at: Position, what: str) -> None:
        """A warning and no error: the other side of `||` may decide before it is needed."""
        for message in refused_patterns(cel.tree):
            hint = "correct the pattern; the expression fails when it comes to it"
            self.findings.warn(at, "bad-pattern", f"{what}: {message}", hint)


def long_texts(node: Node, findings: Findings) -> None:
    """Every text of the document that is longer than texts may be."""
    open_nodes: list[Node] = [node]
    while open_nodes:
        each = open_nodes.pop()
        match each:
            case Scalar(value=str(text)) if len(text) > limits.TEXT:
                message = f"a text is {len(text)} characters long; {limits.TEXT} are allowed"
                findings.add(each.position, "too-large", message, "shorten it")
            case Items():
                open_nodes.extend(each.items)
            case Fields():
                open_nodes.extend(each.fields.values())


def mapping_of(node: Node | None) -> dict[str, Any]:
    found = plain(node) if node is not None else {}
    return found if isinstance(found, dict) else {}
