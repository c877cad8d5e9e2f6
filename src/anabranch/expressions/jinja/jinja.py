"""Jinja2 as an expression language: native values, a strict sandbox, fast evaluation.

A text that is exactly one `{{ expression }}` (blanks around it do not count) gives the value of
the expression itself: a list stays a list. Other text with templates in it renders to text. When
such a rendered text as a whole spells a literal, it becomes that literal, because authors write
`{% if x %}true{% else %}false{% endif %}` and `[{{ a }}, {{ b }}]` and mean the values:

    true / false / null / none (also capitalised), whole numbers in plain spelling, JSON lists and
    objects. Not decimals ("1.10" may be a version), not numbers with a leading zero or plus sign.

That holds for the author's own words and for values that are no text. What came from a text in the
data stays text: a name "None" is a name, and only brackets that the author wrote make a list. An
author who uses `tojson` or `string` anywhere in the text has decided for text: nothing is read
back then.

An undefined name is false, and whatever is looked up in it is undefined again. It is an error to
compute with one, and one that would leave the template, as a value or as part of a text, is an
error as well: `default` says what to take then. In conditions it is false, or empty text; so it is
everywhere in a lenient language.

    language = Jinja(view)
    language.value("{{ ctx.total * 2 }}").evaluate(names)      # 84
    language.rendered("Hello {{ name }}").evaluate(names)      # always text
    language.condition("ctx.total > 3").evaluate(names)        # True; braces may be left out
    language.tree({"to": "{{ ctx.mail }}", "n": 1})            # a structure with templates inside

`view` lays a dialect's own names over those the kernel gives.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from anabranch.errors import ExpressionError
from anabranch.expressions.budget import (
    TooMuch,
    TurnBudget,
    charge_shared,
    share_budget,
    shared_budget,
    unshare_budget,
)
from anabranch.expressions.jinja.limits import TemplateLimits, finite, whole
from anabranch.expressions.jinja.plain import SHORT, plain_template
from anabranch.expressions.jinja.template import (
    Mode,
    Rendered,
    Template,
    TemplateError,
    TemplateLookup,
    quoted,
    sentence,
)
from anabranch.expressions.port import Constant, Expression, Paths

__all__ = [
    "ConditionTemplate",
    "Derived",
    "Jinja",
    "TemplateError",
    "TemplateLimits",
    "TemplateTree",
    "TextTemplate",
    "ValueTemplate",
    "View",
]

View = Callable[[Mapping[str, Any]], Mapping[str, Any]]

FALSE_TEXTS = frozenset({"", "false", "0", "no", "none"})
LITERALS = {"true": True, "false": False, "null": None, "none": None}
_WORD_MAX = 5  # letters of the longest of them
_READ_BACK = 16  # what a character of JSON costs: a list takes two of them
_PLAIN_MAX = 2**63
_PLAIN_KINDS = frozenset({str, int, bool, type(None)})
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")


def has_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


def truth(value: Any) -> bool:
    """Whether a condition's value holds; text such as "false" or "0" does not."""
    if isinstance(value, str):
        if len(value) > SHORT:
            charge_shared(len(value))
        word = value.strip()
        return len(word) > _WORD_MAX or word.lower() not in FALSE_TEXTS
    return bool(value)


def literal(text: str) -> Any:
    """The value a rendered text spells as a whole, or the text itself."""
    word = text.strip()
    if len(word) <= _WORD_MAX and word.lower() in LITERALS and (word.islower() or word.istitle()):
        return LITERALS[word.lower()]
    if _WHOLE.fullmatch(word):
        return int(word)
    if word[:1] in ("[", "{") and word[-1:] in ("]", "}"):
        charge_shared(_READ_BACK * len(word))
        try:
            return json.loads(word, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return text
    return text


def _read_back(rendered: Rendered) -> Any:
    """A literal, where the author's own words or values that are no text spell it."""
    if not rendered.has_data:
        return literal(rendered.text)
    if rendered.data_at_an_end:
        return rendered.text
    found = literal(rendered.text)
    return found if isinstance(found, (list, dict)) else rendered.text


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


# -- expressions -----------------------------------------------------------------------------


class _Templated:
    __slots__ = ("_lenient", "_program", "_view", "text")

    def __init__(self, program: Template, view: View, *, lenient: bool) -> None:
        self.text = program.text
        self._program = program
        self._view = view
        self._lenient = lenient

    @property
    def names(self) -> frozenset[str]:
        """The top-level names the expression looks up."""
        return self._program.names

    @property
    def reads(self) -> Paths:
        return self._program.reads

    @property
    def readings(self) -> tuple[TemplateLookup, ...]:
        """Everything it looks up, as far as its text says."""
        return self._program.readings

    def _run(self, names: Mapping[str, Any]) -> Any:
        try:
            return self._program.run(self._view(names), lenient=self._lenient)
        except ExpressionError:
            raise
        except Exception as error:
            # Whatever a template does wrong is the template's fault, never the engine's.
            raise ExpressionError(f"{quoted(self.text)}: {_reason(error)}") from None

    def _last(self, work: Callable[[Any], Any], value: Any) -> Any:
        """What is done with what the template gave, within the budget of the turn."""
        try:
            return work(value)
        except TooMuch as error:
            raise ExpressionError(f"{quoted(self.text)}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the value is nested too deeply"
    if isinstance(error, ZeroDivisionError):
        return "division by zero"
    return sentence(str(error)) if str(error) else type(error).__name__


class ValueTemplate(_Templated):
    """A template that gives a native value."""

    __slots__ = ()

    def looks_up(self, path: tuple[str, ...]) -> bool:
        """Whether it gives what is at this path, and that is all it does."""
        return self._program.looks_up(path)

    def given(self, value: Any) -> Any:
        """What it gives where the value at the path that it looks up is known."""
        kind = type(value)
        if kind is str or (kind is int and -_PLAIN_MAX < value < _PLAIN_MAX):
            return value
        return value if kind is bool or value is None else self._plain(value)

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        value = self._run(names)
        kind = type(value)
        if kind is bool or kind is str or value is None:
            return value
        if kind is Rendered:
            return self._last(_read_back, value) if self._program.coerces else value.text
        return self._plain(value)

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        try:
            if kind is int:
                return whole(value)
            if kind is float:
                return finite(value)
            if self._program.lookup and (kind is dict or kind is list):
                # It exists already, so its size is no danger.
                return msgspec.to_builtins(value, enc_hook=self._unusual)
        except (TooMuch, ValueError, TypeError, RecursionError) as error:
            raise ExpressionError(f"{quoted(self.text)}: {_reason(error)}") from None
        return self._unusual(value)

    def _unusual(self, value: Any) -> Any:
        """The same for values that are no JSON as they are, or that the template has made."""
        from jinja2 import Undefined

        from anabranch.expressions.jinja.meter import require_defined

        meter = self._program.sandbox.meter
        try:
            if isinstance(value, Undefined) and not self._lenient:
                return require_defined(value)
            if self._program.lookup and not isinstance(value, Undefined):
                return meter.copied(value)
            return meter.plain(value, lenient=self._lenient)
        except ExpressionError:
            raise
        except Exception as error:  # filters that work as they are asked work only now
            raise ExpressionError(f"{quoted(self.text)}: {_reason(error)}") from None


class TextTemplate(_Templated):
    """A template that always gives text."""

    __slots__ = ()

    def evaluate(self, names: Mapping[str, Any]) -> str:
        text: str = self._run(names).text
        return text


class ConditionTemplate(_Templated):
    """A template or bare expression that gives true or false."""

    __slots__ = ()

    def evaluate(self, names: Mapping[str, Any]) -> bool:
        value = self._run(names)
        if value is True or value is False:
            return value
        return bool(self._last(truth, value.text if type(value) is Rendered else value))

    @property
    def renders_text(self) -> bool:
        """True for a condition with text around its templates, seldom what its author meant."""
        return not self._program.native


class Derived(ABC):
    """Makes something of what a template gives; a dialect says what."""

    __slots__ = ("_view", "inner", "text")

    def __init__(self, inner: ValueTemplate) -> None:
        self.inner = inner
        self.text = inner.text
        self._view = inner._view

    @property
    def reads(self) -> Paths:
        return self.inner.reads

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        seen = self._view(names)
        return self.derived(self.inner.evaluate(seen), seen)

    @abstractmethod
    def derived(self, value: Any, names: Mapping[str, Any]) -> Any: ...


class TemplateTree:
    """A structure with expressions inside. Parts without any are handed out as they are: they are
    shared between evaluations and must not be changed."""

    __slots__ = ("_build", "_view", "structure")

    def __init__(self, structure: Any, build: Builder, view: View) -> None:
        self.structure = structure  # plain data with expressions as leaves
        self._view = view
        self._build = build

    @property
    def text(self) -> str:
        return describe(self.structure)

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """All templates in it share a budget, whoever asks."""
        if shared_budget() is not None:
            return self._build(self._view(names))
        shared = share_budget(TurnBudget())
        try:
            return self._build(self._view(names))
        finally:
            unshare_budget(shared)

    @property
    def reads(self) -> Paths:
        return frozenset(_read_in(self.structure))


def _read_in(structure: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(structure, (_Templated, Derived, TemplateTree)):
        yield from structure.reads
    elif isinstance(structure, Mapping):
        for item in structure.values():
            yield from _read_in(item)
    elif isinstance(structure, (list, tuple)):
        for item in structure:
            yield from _read_in(item)


Builder = Callable[[Mapping[str, Any]], Any]


def is_expression(value: Any) -> bool:
    return isinstance(value, (_Templated, Derived, TemplateTree, Constant))


def _builder(structure: Any) -> Builder | None:
    """How to build the structure, or None when nothing in it needs evaluation."""
    if isinstance(structure, Constant):
        value = structure.value
        return lambda _: value
    if is_expression(structure):
        evaluate: Builder = structure.evaluate
        return evaluate
    if type(structure) is dict or isinstance(structure, Mapping):
        return _frame_builder(dict(structure), structure.items())
    if isinstance(structure, (list, tuple)):
        return _frame_builder(list(structure), enumerate(structure))
    return None


def _frame_builder(frame: Any, items: Iterable[tuple[Any, Any]]) -> Builder | None:
    """A copy of the frame, with what has to be evaluated put in its place."""
    parts = [(key, made) for key, item in items if (made := _builder(item))]
    if not parts:
        return None

    def build(names: Mapping[str, Any]) -> Any:
        result = frame.copy()
        for key, make in parts:
            result[key] = make(names)
        return result

    return build


def made_from(structure: Mapping[str, Any], path: tuple[str, ...]) -> Callable[[Any], Any] | None:
    """How to build the mapping from the value at one path, where all templates in it are no more
    than that path. None for any other; parts that hold lists or mappings count as such."""
    frame: dict[str, Any] = {}
    parts: list[tuple[str, Callable[[Any], Any]]] = []
    for key, part in structure.items():
        if isinstance(part, ValueTemplate):
            if not part.looks_up(path):
                return None
            parts.append((key, part.given))
        elif is_expression(part) and not isinstance(part, Constant):
            return None
        value = part.value if isinstance(part, Constant) else part
        if isinstance(value, (Mapping, list, tuple)):
            return None
        frame[key] = value

    def build(value: Any) -> Any:
        result = frame.copy()
        for name, give in parts:
            result[name] = give(value)
        return result

    return build


def all_plain(values: Sequence[Any]) -> bool:
    """Whether a template that looks such a value up gives each of them as it is."""
    if isinstance(values, range):
        ends: Sequence[int] = (values[0], values[-1]) if values else ()
    else:
        kinds = set(map(type, values))
        if not kinds <= _PLAIN_KINDS:
            return False
        ends = [value for value in values if type(value) is int] if int in kinds else ()
    return not ends or (min(ends) > -_PLAIN_MAX and max(ends) < _PLAIN_MAX)


def describe(structure: Any) -> str:
    """The structure as its author wrote it, roughly: expressions appear as their text."""
    if isinstance(structure, Constant):
        return describe(structure.value)
    if isinstance(structure, (_Templated, Derived, TemplateTree)):
        return structure.text
    if isinstance(structure, Mapping):
        return "{" + ", ".join(f"{k}: {describe(v)}" for k, v in structure.items()) + "}"
    if isinstance(structure, (list, tuple)):
        return "[" + ", ".join(describe(item) for item in structure) + "]"
    return json.dumps(structure, ensure_ascii=False)


@lru_cache(maxsize=8192)
def program(text: str, mode: Mode, limits: TemplateLimits) -> Template:
    """The template, parsed; raises `TemplateError`. Jinja is loaded where it needs that."""
    plain = plain_template(text, mode, limits)
    if plain is not None:
        return plain
    from anabranch.expressions.jinja.program import compiled

    return compiled(text, mode, limits)


# -- the language ----------------------------------------------------------------------------


def _as_given(names: Mapping[str, Any]) -> Mapping[str, Any]:
    return names


class Jinja:
    """The language with one view of the names. Compiling the same text again costs nothing."""

    def __init__(
        self,
        view: View = _as_given,
        limits: TemplateLimits | None = None,
        *,
        lenient: bool = False,
    ) -> None:
        self._view = view
        self._limits = limits or TemplateLimits()
        self._lenient = lenient

    def value(self, text: str) -> Expression:
        if not has_template(text):
            return Constant(text)
        made = program(text, "value", self._limits)
        return ValueTemplate(made, self._view, lenient=self._lenient)

    def rendered(self, text: str) -> Expression:
        if not has_template(text):
            return Constant(text)
        made = program(text, "text", self._limits)
        return TextTemplate(made, self._view, lenient=self._lenient)

    def command(self, text: str) -> Expression:
        """Text for a program: lists and mappings in it are JSON, and not as Python writes them."""
        if not has_template(text):
            return Constant(text)
        made = program(text, "command", self._limits)
        return TextTemplate(made, self._view, lenient=self._lenient)

    def condition(self, source: bool | str) -> Expression:
        if isinstance(source, bool):
            return Constant(source)
        mode: Mode = "value" if has_template(source) else "bare"
        return ConditionTemplate(program(source, mode, self._limits), self._view, lenient=True)

    def tree(self, value: Any) -> Expression:
        """Any JSON-like value; each text in it (not the keys) may be a template."""
        structure = self._compiled(value)
        return self.compose(structure)

    def compose(self, structure: Any) -> Expression:
        """A structure whose leaves may be expressions already."""
        if is_expression(structure):
            expression: Expression = structure
            return expression
        build = _builder(structure)
        return Constant(structure) if build is None else TemplateTree(structure, build, self._view)

    def _compiled(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.value(value) if has_template(value) else value
        if isinstance(value, Mapping):
            return {key: self._compiled(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._compiled(item) for item in value]
        return value
