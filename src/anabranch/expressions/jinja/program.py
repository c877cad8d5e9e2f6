"""From the text of a template to the code that runs it, by Jinja.

Parsing happens at once, so that every mistake is found when a definition is checked. Code is made
at the first evaluation: most templates of a large definition never run in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from jinja2 import Template as JinjaTemplate
from jinja2 import TemplateSyntaxError, nodes
from jinja2.parser import Parser

from anabranch.expressions.jinja.limits import TemplateLimits
from anabranch.expressions.jinja.paths import readings
from anabranch.expressions.jinja.sandbox import EvaluationScope, Sandbox
from anabranch.expressions.jinja.spending import SMALL
from anabranch.expressions.jinja.template import (
    METHODS,
    Mode,
    Rendered,
    Template,
    TemplateError,
    sentence,
)
from anabranch.expressions.jinja.tree import Counting, survey


class CompiledTemplate(Template):
    """Evaluated by Jinja; its code is made when it first runs."""

    __slots__ = ("_root", "_sandbox")

    def __init__(self, text: str, mode: Mode, sandbox: Sandbox) -> None:
        self.text = text
        self._sandbox = sandbox
        self._mode = mode
        self._root: Callable[[EvaluationScope], Iterator[str]] | None = None
        tree, expression = _parsed(text, mode, sandbox)
        found = survey(tree, sandbox.limits.bits_max)
        _check_words("filter", found.filters, sandbox.words)
        _check_words("test", found.tests, sandbox.tests)
        self.native = expression is not None
        self.lookup = expression is not None and _is_lookup(expression)
        self.names = frozenset(found.loaded - found.stored - {"loop"})
        set_here = found.stored | ({"loop"} if found.loops else set())
        self.readings = tuple(one for one in readings(tree) if one.root not in set_here)
        self.reads = frozenset(_paths(tree))
        self.coerces = found.filters.keys().isdisjoint(("tojson", "string"))

    @property
    def sandbox(self) -> Sandbox:
        return self._sandbox

    def run(self, names: Mapping[str, Any], *, lenient: bool = False) -> Any:
        root = self._root or self._generated()
        scope = EvaluationScope(self._sandbox, names)
        if lenient:
            scope.lenient = True
        if self._mode == "command":
            scope.writes_json = True
        if self.native:
            for _ in root(scope):
                pass
            return scope.vars["result"]
        return self._joined(root(scope), scope)

    def _joined(self, pieces: Iterator[str], scope: EvaluationScope) -> Rendered:
        parts: list[str] = []
        length = 0
        has_data = begins = ends = has_any = False
        for piece in pieces:
            length += len(piece)
            self._sandbox.meter.check_text(length)
            if len(piece) > SMALL:
                scope.charge(len(piece))
            parts.append(piece)
            data, scope.wrote_data = scope.wrote_data, False
            if not piece or piece.isspace():
                continue
            begins = begins or (data and not has_any)
            has_any, has_data, ends = True, has_data or data, data
        return Rendered("".join(parts), has_data, begins or ends)

    def _generated(self) -> Callable[[EvaluationScope], Iterator[str]]:
        # Parsed anew, so that two threads meeting here never share a tree they change.
        tree = Counting().visit(_parsed(self.text, self._mode, self._sandbox)[0])
        tree.set_environment(self._sandbox)
        code = self._sandbox.compile(tree)
        root = JinjaTemplate.from_code(self._sandbox, code, {}).root_render_func
        self._root = root
        return root


def _is_lookup(node: nodes.Node) -> bool:
    """Whether the expression only picks something out of a name, as in `ctx.orders[0].id`."""
    while isinstance(node, (nodes.Getattr, nodes.Getitem)):
        if isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Const):
            return False
        node = node.node
    return isinstance(node, nodes.Name)


def _paths(node: nodes.Node) -> Iterator[tuple[str, ...]]:
    if isinstance(node, nodes.Name):
        if node.ctx == "load":
            yield (node.name,)
        return
    key = _key(node)
    if key is not None and isinstance(node, (nodes.Getattr, nodes.Getitem)):
        root = node.node
        if isinstance(root, nodes.Name):
            yield (root.name, key)
            return
    for child in node.iter_child_nodes():
        yield from _paths(child)


def _key(node: nodes.Node) -> str | None:
    """The key that a lookup names, where the template says it."""
    key: object = None
    if isinstance(node, nodes.Getattr):
        key = node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        key = node.arg.value
    return key if isinstance(key, str) and key not in METHODS else None


@lru_cache(maxsize=16)
def sandbox_of(limits: TemplateLimits) -> Sandbox:
    return Sandbox(limits)


def compiled(text: str, mode: Mode, limits: TemplateLimits) -> CompiledTemplate:
    try:
        return CompiledTemplate(text, mode, sandbox_of(limits))
    except TemplateSyntaxError as error:
        raise TemplateError(text, sentence(error.message), error.lineno) from None
    except RecursionError:
        raise TemplateError(text, "the expression is nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits
        raise TemplateError(text, sentence(str(error))) from None


def _parsed(text: str, mode: Mode, sandbox: Sandbox) -> tuple[nodes.Template, nodes.Expr | None]:
    """The template as Jinja sees it; with it the expression, when it is nothing else."""
    if mode == "bare":
        expression: nodes.Expr | None = _bare(text.strip(), sandbox)
    else:
        tree = sandbox.parse(text)
        expression = _single_expression(tree) if mode == "value" else None
    return (_assignment(expression), expression) if expression is not None else (tree, None)


def _bare(text: str, sandbox: Sandbox) -> nodes.Expr:
    if not text:
        raise TemplateSyntaxError("the expression is empty", 1)
    parser = Parser(sandbox, text, state="variable")
    expression = parser.parse_expression()
    if not parser.stream.eos:
        token = parser.stream.current
        raise TemplateSyntaxError(f"unexpected {token.value!r} after the expression", token.lineno)
    return expression


def _single_expression(tree: nodes.Template) -> nodes.Expr | None:
    """The one `{{ expression }}` a template consists of, if it does."""
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return None
    parts = [part for part in tree.body[0].nodes if not _blank(part)]
    if len(parts) != 1 or isinstance(parts[0], nodes.TemplateData):
        return None
    return parts[0]


def _blank(part: nodes.Node) -> bool:
    return isinstance(part, nodes.TemplateData) and not part.data.strip()


def _assignment(expression: nodes.Expr) -> nodes.Template:
    line = expression.lineno
    target = nodes.Name("result", "store", lineno=line)
    body: list[nodes.Node] = [nodes.Assign(target, expression, lineno=line)]
    return nodes.Template(body, lineno=line)


def _check_words(kind: str, used: Mapping[str, int], known: Mapping[str, Any]) -> None:
    """Unknown filters and tests are found now, although Jinja would find them later."""
    for name, line in used.items():
        if name not in known:
            near = _nearest(name, known)
            words = ", ".join(sorted(word for word in known if word[0].isalpha()))
            hint = f"did you mean {near!r}?" if near else f"there are: {words}"
            raise TemplateSyntaxError(f"there is no {kind} {name!r}; {hint}", line)


def _nearest(word: str, known: Mapping[str, Any]) -> str:
    return next(iter(get_close_matches(word, list(known), n=1)), "")
