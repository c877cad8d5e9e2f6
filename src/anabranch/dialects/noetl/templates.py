"""Compiles the templates of a playbook, each mistake with its place in the file."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from typing import Any

import msgspec

from anabranch.dialects.findings import Findings
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.error_kinds import in_words_of_today
from anabranch.dialects.noetl.names import view
from anabranch.dialects.source import Document
from anabranch.expressions.jinja.jinja import (
    ConditionTemplate,
    Jinja,
    TemplateError,
    TemplateTree,
    View,
    has_template,
)
from anabranch.expressions.jinja.template import TemplateLookup
from anabranch.expressions.port import Constant, Expression
from anabranch.net.net import ChildPath, CredentialName, ExtraNeed
from anabranch.net.problems import Position


class Condition(msgspec.Struct, frozen=True):
    """A guard, and what it looks up, each with its place."""

    guard: Expression
    readings: tuple[tuple[TemplateLookup, Position], ...]


class Quoting(msgspec.Struct, frozen=True):
    """A language inside a playbook: its filter, what text of it is, what is better than quoting."""

    filter: str
    is_: str
    instead: str


SHELL = Quoting("sh", "part of the command", "`env`")
PYTHON = Quoting("py", "part of the code", "`args`")
SQL = Quoting("sql", "part of the query", "`params`")
EMBEDDED_MAX = 20  # warnings of one text
PYTHON_MAX = 256 * 1024  # letters of code that is read to find mistakes in it


class TemplateCompiler:
    def __init__(self, document: Document, findings: Findings) -> None:
        self._document = document
        self._findings = findings
        self._language = Jinja(view)
        self.lenient = False  # what is undefined is empty text
        #: Every top-level name a template looks up, with the place of the template.
        self.names: list[tuple[str, Position]] = []
        #: Everything that templates look up, with its place.
        self.readings: list[tuple[TemplateLookup, Position]] = []
        self.conditions: list[Condition] = []  # guards, whose readings are among those
        self.python: list[str] = []  # code of the playbook; it can read more than its arguments
        self.children: list[ChildPath] = []  # playbooks that are named
        self.credentials: list[CredentialName] = []  # named, and not in the keychain
        self.extras: list[ExtraNeed] = []  # packages that only some definitions need
        self._also: frozenset[str] = frozenset()

    def be_lenient(self) -> None:
        """What is undefined is empty text, as it is where playbooks come from."""
        self.lenient = True
        self._language = Jinja(view, lenient=True)

    def viewed(self, names: View, also: Collection[str] = ()) -> TemplateCompiler:
        """The same with other names in sight, some of them there only; what is found about the
        rest stays together."""
        other = copy(self)
        other._language = Jinja(names, lenient=self.lenient)
        other._also = frozenset(also)
        return other

    def tree(self, node: Node) -> Expression:
        """A value of any shape with templates inside."""
        return self._language.compose(self.structure(node))

    def structure(self, node: Node) -> Any:
        """The same, still open for more: plain data with expressions as leaves."""
        match node:
            case Items():
                return [self.structure(item) for item in node.items]
            case Fields():
                return {key: self.structure(value) for key, value in node.fields.items()}
            case Scalar(value=str(text)) if has_template(text):
                return self._compiled(node, lambda: self._language.value(in_words_of_today(text)))
            case Scalar():
                return node.value

    def compose(self, structure: Any) -> Expression:
        return self._language.compose(structure)

    def whole_result(self) -> Expression:
        """The result of what has just ended."""
        return self._language.value("{{ outcome.result }}")

    def text(self, node: Scalar) -> Expression:
        """A template that gives text, whatever it looks like: a command, a URL."""
        return self._compiled(node, lambda: self._language.rendered(str(node.value)))

    def command(self, node: Scalar) -> Expression:
        """The same for a shell, where a mapping is JSON."""
        return self._compiled(node, lambda: self._language.command(str(node.value)))

    def code(self, node: Scalar) -> Expression:
        """Source code is templated only if it is a template: braces have other uses there."""
        text = str(node.value)
        self.python.append(text)
        if "{{" not in text and "{%" not in text:
            return Constant(text)
        try:
            expression = self._language.rendered(text)
        except TemplateError:
            return Constant(text)
        self._note_readings(node, expression)
        return expression

    def check_python(self, node: Scalar, text: str, what: str) -> None:
        """Report code that Python cannot read. `node` is where it stands, perhaps encoded."""
        if len(text) > PYTHON_MAX:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an odd escape is no mistake of the playbook
                ast.parse(text)
        except SyntaxError as error:
            at = self._document.inside(node, error.lineno or 1)
            where = f" (line {error.lineno} of it)" if error.lineno and at == node.position else ""
            message = f"{what} is not Python: {error.msg}{where}"
            self._findings.add(at, "bad-code", message, "mend the code")
        except (ValueError, RecursionError, MemoryError) as error:
            reason = str(error) or "it is nested too deeply"
            message = f"{what} is not Python: {reason}"
            self._findings.add(node.position, "bad-code", message, "mend the code")

    def embedded(self, node: Node, what: str, quoting: Quoting) -> None:
        """Warn of what a template brings into a command, a query or code without quoting it."""
        if isinstance(node, Items):
            for each in node.items:
                self.embedded(each, what, quoting)
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            return
        if not has_template(node.value):
            return
        from anabranch.expressions.jinja.embedded import loose_outputs  # loads Jinja

        for loose in loose_outputs(node.value, quoting.filter)[:EMBEDDED_MAX]:
            at, shown = self._document.inside(node, loose.line), loose.expression
            if loose.twice:
                message = f"{what} has quotes around `{shown}`, which is quoted already"
                self._findings.warn(at, "quoted-twice", message, "remove the quotes around it")
            else:
                message = f"{what} takes in `{shown}` as it is: data becomes {quoting.is_}"
                hint = f"pass it as {quoting.instead}, or write `{shown} | {quoting.filter}`"
                self._findings.warn(at, "unquoted-template", message, hint)

    def condition(self, node: Node, what: str) -> Expression:
        """True or false. A mistake is reported and gives a guard that never holds."""
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return Constant(node.value)
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            self._findings.wrong_type(node, what, 'a condition such as "{{ ctx.ready }}"')
            return Constant(False)
        text, before = in_words_of_today(node.value), len(self.readings)
        guard = self._compiled(node, lambda: self._language.condition(text))
        self.conditions.append(Condition(guard, tuple(self.readings[before:])))
        if isinstance(guard, ConditionTemplate) and guard.renders_text:
            message = f"{what} is text with templates in it, and text is nearly always true"
            hint = "put the whole condition between one pair of braces"
            self._findings.warn(node.position, "text-condition", message, hint)
        return guard

    def _compiled(self, node: Scalar, make: Callable[[], Expression]) -> Expression:
        try:
            expression = make()
        except TemplateError as error:
            at = self._document.inside(node, error.line)
            message, _, hint = error.reason.partition("; ")
            self._findings.add(at, "bad-template", f"the template is wrong: {message}", hint)
            return Constant(False)
        for name in sorted(getattr(expression, "names", frozenset()) - self._also):
            self.names.append((name, node.position))
        self._note_readings(node, expression)
        return expression

    def _note_readings(self, node: Scalar, expression: Expression) -> None:
        for one in getattr(expression, "readings", ()):
            if one.root in self._also:
                continue
            at = node.position if one.line == 1 else self._document.inside(node, one.line)
            self.readings.append((one, at))
            if one.compared and one.path in (("execution_id",), ("job", "execution_id")):
                said = f"`{'.'.join(map(str, one.path))}` is compared with the text"
                message = f"{said} {one.compared[0]!r}, and is a number"
                hint = "compare `run_id`, which is a text, or write `| string` after it"
                self._findings.add(at, "numeric-id", message, hint, "note")


def keys_of(inputs: Expression | None) -> frozenset[str]:
    """The keys that the inputs of a task have, as far as its text says."""
    inner = getattr(inputs, "inner", inputs)  # of code that reads more than its inputs
    structure = inner.value if isinstance(inner, Constant) else None
    if isinstance(inner, TemplateTree):
        structure = inner.structure
    return frozenset(structure) if isinstance(structure, dict) else frozenset()


def lookups_in(structure: Any) -> Iterator[TemplateLookup]:
    """What the templates inside an expression look up."""
    inner = structure.structure if isinstance(structure, TemplateTree) else structure
    if isinstance(inner, Mapping):
        for part in inner.values():
            yield from lookups_in(part)
    elif isinstance(inner, list):
        for part in inner:
            yield from lookups_in(part)
    else:
        yield from getattr(inner, "readings", ())
