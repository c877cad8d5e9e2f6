"""No pattern reads again and again what it has read: the work grows as the text does.

A regular expression that goes back over a text takes seconds for some thousand characters and
minutes for a few more, and while it does, no other thread of the process runs. Every pattern of the
package is tried with texts made against it; `regex_steps` says how.
"""

from __future__ import annotations

import ast
import importlib
import random
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from regex_steps import Steps, attack_on
from syntax import nodes_in

SOURCE = Path(__file__).parent.parent / "src"
FUNCTIONS = {
    *("compile", "match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"),
}
#: These look from one place of the text only.
ANCHORED = {"match", "fullmatch"}
#: Functions of ours that make a pattern, with the place of its expression among the arguments.
MAKERS = {"pattern": 1}

#: Patterns that see only what we have written ourselves, by the module.
OWN_TEXTS = {
    "anabranch.operations.definitions.examples": "the list of the examples that come with us",
    "anabranch.surfaces.ui.scripts": "the scripts of our pages",
}
#: Modules that put an expression together while they run.
WORKED_OUT = {
    "anabranch.market.documents.shapes": "its callers are looked at",
    "anabranch.market.node.api": "paths of our own routes: a part up to a slash, or all the rest",
    "anabranch.settings_file": "names of our own settings",
    "anabranch.store.memory.store": "one escaped word between two ends of words",
    "anabranch.store.postgres.errors": "patterns that are looked at where they are written",
    "anabranch.testing.plan.documents": "what the author of a plan writes for runs of their own",
    "anabranch.testing.plan.judge": "the same, when the runs are judged",
    "anabranch.work.sql.globs": "what `fnmatch` makes of one part of a path",
}

#: What there was before, with the ways in which it was used.
EARLIER: dict[str, tuple[str | bytes, int, str]] = {
    "references": (r"\{\{\s*([^{}]*?)\s*\}\}", 0, "search"),
    "nesting": (rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL, "search"),
    "quoted": (r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\[(\w+)\]""", re.DOTALL, "search"),
    "overwritten": ("[^\n]*\r(?=[^\n\r])", 0, "search"),
    "joints": (r"[_/.:-]+(?=\w)", 0, "search"),
    "compared": (
        r"\s*\{\{([^{}]+)\}\}\s*(==|!=)\s*(?:\{\{([^{}]+)\}\}|([^{}]*))\s*", 0, "fullmatch"
    ),
    "noise": (r"--[^\n]*|/\*.*?\*/|'[^']*'", re.DOTALL, "search"),
    "ellipsis": (r"(\s*(?:\.\.\.|…)\s*)", 0, "search"),
    "host": (r"[A-Za-z0-9_.-]*[A-Za-z_-][A-Za-z0-9_-]*\.?", 0, "fullmatch"),
    "message": (r":?\s*(?:b['\"]|bytearray\()|\n", 0, "search"),
    "exponential": (r"(a+)+b", 0, "match"),
}  # fmt: skip

#: Where what replaced them stands, and what texts to compare the two with.
REPLACED = {
    "overwritten": ("work/logs/clean_text.py", "_OVERWRITTEN", ("a", "b", "\r", "\n", "\r\n")),
    "joints": ("surfaces/ui/views/formatting.py", "_JOINTS", ("_", "/", ".", "-", "a", " ", "é")),
    "compared": (
        *("dialects/noetl/respell/case_lists.py", "_COMPARED"),
        ("{{a}}", "{{", "}}", "{", "==", "!=", " ", "b", "\n"),
    ),
    "ellipsis": ("work/secrets/redaction.py", "_ELLIPSIS", ("...", "…", ".", " ", "\n", "a")),
    "host": ("operations/webhooks/sender.py", "_NAME", ("a", "1", ".", "-", "_", "0x", "é")),
    "message": (
        *("surfaces/http/guard/bad_http.py", "_QUOTED"),
        (":", " ", "\n", "b'", "b", "bytearray(", "a"),
    ),
}


class Pattern(NamedTuple):
    text: str | bytes
    flags: int
    mode: str


class Module:
    """What a file says of patterns. Only what an expression asks for is imported: to load the whole
    package takes longer than to try every pattern of it."""

    def __init__(self, file: Path, text: str) -> None:
        self.name = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        self._nodes = nodes_in(text)
        self._names = _Names(self._nodes[0])

    def value_of(self, name: str) -> Any:
        return self._names[name]

    def patterns(self) -> Iterator[Pattern | None]:
        """None for one that is worked out."""
        named = self._named()
        for node in self._nodes:
            if not isinstance(node, ast.Call):
                continue
            expression, modes = self._expression(node, named)
            if expression is not None:
                text = self._names.text_of(expression)
                for mode in modes:
                    yield None if text is None else Pattern(text, self._flags(node), mode)

    def _expression(
        self, call: ast.Call, named: dict[int, set[str]]
    ) -> tuple[ast.expr | None, set[str]]:
        function = call.func
        if isinstance(function, ast.Attribute) and ast.unparse(function.value) == "re":
            if function.attr not in FUNCTIONS:
                return None, set()
            mode = function.attr if function.attr in ANCHORED else "search"
            return call.args[0], named.get(id(call), {mode})
        if isinstance(function, ast.Name) and function.id in MAKERS:
            return call.args[MAKERS[function.id]], {"fullmatch"}
        said = (each.value for each in call.keywords if each.arg == "pattern")
        return next(said, None), {"search"}

    def _flags(self, call: ast.Call) -> int:
        for node in (*call.args[1:], *(each.value for each in call.keywords)):
            if isinstance(flags := self._names.value_of(node), re.RegexFlag):
                return int(flags)
        return 0

    def _named(self) -> dict[int, set[str]]:
        """How the patterns that have a private name are used; others are used anywhere."""
        uses: dict[str, set[str]] = {}
        below = set[int]()
        at_once: dict[int, set[str]] = {}
        for node in self._nodes:
            if isinstance(node, ast.Attribute):
                below.add(id(node.value))
                mode = node.attr if node.attr in ANCHORED else "search"
                if isinstance(node.value, ast.Name):
                    uses.setdefault(node.value.id, set()).add(mode)
                else:
                    at_once[id(node.value)] = {mode}
        for node in self._nodes:
            if isinstance(node, ast.Name) and type(node.ctx) is ast.Load and id(node) not in below:
                uses.setdefault(node.id, set()).add("search")
        return at_once | {
            id(node): uses[name]
            for name, node in self._names.assigned.items()
            if name.startswith("_") and name in uses
        }


class _Names(dict[str, Any]):
    """The names of a module, each worked out when an expression asks for it."""

    def __init__(self, tree: ast.AST) -> None:
        super().__init__(re=re)
        self.assigned: dict[str, ast.expr] = {}
        self._imported: dict[str, tuple[str, str]] = {}
        assert isinstance(tree, ast.Module)
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                self.assigned[ast.unparse(target)] = node.value
            elif isinstance(node, ast.ImportFrom) and node.module:
                for each in node.names:
                    self._imported[each.asname or each.name] = (node.module, each.name)

    def __missing__(self, name: str) -> Any:
        if name in self._imported:
            module, imported = self._imported[name]
            self[name] = getattr(importlib.import_module(module), imported)
        else:
            self[name] = self._work_out(self.assigned[name])
        return self[name]

    def _work_out(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "an expression", "eval"), {}, self)

    def value_of(self, node: ast.expr) -> Any:
        try:
            return self._work_out(node)
        except Exception:  # names of a function, which are not known here
            return None

    def text_of(self, node: ast.expr) -> str | bytes | None:
        """The text of a pattern; a letter stands for what is put into it later."""
        found = self.value_of(node)
        if found is None and isinstance(node, ast.JoinedStr):
            parts = map(self.text_of, node.values)
            return "".join(part if isinstance(part, str) else "x" for part in parts)
        return found if isinstance(found, str | bytes) else None


@cache
def find_patterns() -> dict[Pattern | None, set[str]]:
    """With the modules in which they stand."""
    found: dict[Pattern | None, set[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text()
        if "import re\n" in text or "pattern(" in text or "pattern=" in text:
            module = Module(file, text)
            for pattern in module.patterns():
                found.setdefault(pattern, set()).add(module.name)
    return found


def test_no_pattern_reads_again_what_it_has_read() -> None:
    found = {
        pattern: attack_on(*pattern)
        for pattern, modules in find_patterns().items()
        if pattern is not None and not modules <= OWN_TEXTS.keys()
    }
    assert len(found) > 200
    slow = [f"{sorted(find_patterns()[one])}: {one}: {text}" for one, text in found.items() if text]
    assert not slow, "\n".join(slow)


def test_what_gives_nothing_back_is_one_character_long() -> None:
    """Python before 3.11.5 goes wrong where a group is possessive (python/cpython#106052)."""
    groups = [pattern for pattern in filter(None, find_patterns()) if Steps(*pattern[:2]).commits]
    assert not groups


def test_whoever_works_a_pattern_out_says_why_it_is_sound() -> None:
    assert find_patterns()[None] == WORKED_OUT.keys()


@pytest.mark.parametrize("name", EARLIER)
def test_patterns_that_took_minutes_are_found(name: str) -> None:
    assert attack_on(*EARLIER[name]) is not None


@pytest.mark.parametrize("name", REPLACED)
def test_what_replaced_them_finds_the_same(name: str) -> None:
    file, variable, pieces = REPLACED[name]
    path = SOURCE / "anabranch" / file
    new = Module(path, path.read_text()).value_of(variable)
    text, flags, mode = EARLIER[name]
    old: re.Pattern[Any] = re.compile(text, flags)
    chance = random.Random(7)
    for _ in range(2_000):
        said = "".join(chance.choices(pieces, k=chance.randrange(12)))
        if mode == "fullmatch":
            found, before = new.fullmatch(said), old.fullmatch(said)
            assert (found and found.regs) == (before and before.regs), said
        else:
            assert [each.span() for each in new.finditer(said)] == [
                each.span() for each in old.finditer(said)
            ], said


def test_steps_are_counted_on_the_way_that_re_takes() -> None:
    """Else a count would say nothing of `re`: both find the same in the same texts."""
    for pattern in filter(None, find_patterns()):
        steps = Steps(pattern.text, pattern.flags, bound=sys.maxsize)
        real: re.Pattern[Any] = re.compile(pattern.text, pattern.flags)
        for before, pump, after in list(steps.attacks())[:3]:
            text = before + pump * 4 + after
            said = text.encode("latin-1") if isinstance(pattern.text, bytes) else text
            if pattern.mode == "fullmatch":
                one = real.fullmatch(said)
                expected = [one.span()] if one else []
            elif pattern.mode == "match":
                continue
            else:
                expected = [each.span() for each in real.finditer(said)]
            assert steps.spans(text, pattern.mode) == expected, (pattern, text)
