"""Nothing is walked before it is charged: for everything that an expression can name, the work done
is bounded by the budget spent, whatever the values.

Each filter, test, method, operator and function meets hostile values with a small budget. The work
is counted (`work_done.py`): Python's operations, what C code compares and hashes, and the sizes of
what it reads and makes. What looks at a value first and asks its budget then does many times more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from anabranch.errors import ExpressionError
from anabranch.expressions.cel.cel import compile_cel
from anabranch.expressions.cel.functions import FUNCTIONS
from anabranch.expressions.cel.functions import METHODS as CEL_METHODS
from anabranch.expressions.cel.parser import MACROS
from anabranch.expressions.jinja.jinja import Jinja
from anabranch.expressions.jinja.limits import TemplateLimits
from anabranch.expressions.jinja.program import sandbox_of
from anabranch.expressions.jinja.sandbox import INTERNAL, METHODS

from .work_done import Number, Text, work_and_charge

BUDGET = 6_000
OPERATIONS_PER_UNIT = 4
#: What any evaluation may do for nothing: it is begun, and one of its steps is on its way.
ALWAYS = 12_000


def nested(depth: int, *, like: type = list) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = like((value, value))
    return value


def numbers(count: int) -> list[Number]:
    return [Number(7) for _ in range(count)]


ALIKE = (numbers(1_000), numbers(1_000))
TEXT = "ab cd, Éf. " * 20_000


class Names(dict[str, Any]):
    def __repr__(self) -> str:  # some of them have no end
        return "names"


VALUES = Names(
    {
        "text": TEXT,
        "seen": Text("ab cd " * 11_500),
        "digits": "7" * 200_000,
        "json": "[" + "[]," * 60_000 + "[]]",
        "lines": "a\n" * 100_000,
        "flat": list(range(120_000)),
        "alike": [ALIKE[number % 2] for number in range(2_000)],
        "alike_too": [ALIKE[number % 2] for number in range(1, 2_001)],
        "texts": [Text("x" * 3_000 + str(number % 3)) for number in range(300)],
        "long_texts": ["é" * 50_000] * 200,
        "deep": nested(40),
        "deeper": nested(40),
        "tuples": nested(18, like=tuple),
        "pairs": [(Number(1), 1)] * 60_000,
        "rows": [{"k": Text("K" * 2_000), "n": 1, "l": ALIKE[0]}] * 20_000,
        "mapping": {f"key {number}": number for number in range(60_000)},
        "of_lists": {f"key {number}": ALIKE[number % 2] for number in range(3_000)},
        "wide": [2**4_000 + number for number in range(3_000)],
        "colliding": [number * (2**61 - 1) for number in range(20_000)],
        "number": 1.5,
        "small": 3,
    }
)
SELDOM = {"alike_too", "deeper", "small", "number", "lines", "pairs", "digits", "long_texts"}
PATH = "'" + ".".join("a" * 2_000) + "'"

#: What filters are given besides their value; each meets every value without, too.
FILTER_ARGS: dict[str, tuple[str, ...]] = {
    "default": ("alike",),
    "d": ("alike",),
    "dictsort": ("by='value'",),
    "format": ("alike", "text, text", "wide[0]"),
    "get": ("'key 1'", "text", "tuples"),
    "groupby": ("'k'", "'l'", PATH, "'k', default=text"),
    "int": ("0, 16",),
    "join": ("text", "', ', attribute='k'"),
    "map": ("'upper'", "attribute='k'", "'tojson'", f"attribute={PATH}, default=1", "'max'"),
    "max": ("attribute='l'", "attribute='k'"),
    "min": ("attribute='l'", "attribute='k'"),
    "reject": ("'eq', alike_too", "'odd'"),
    "rejectattr": ("'k'", "'l', 'eq', alike_too", PATH),
    "replace": ("'a', text", "seen, 'b'", "'', 'b'"),
    "round": ("200",),
    "select": ("'eq', alike_too", "'in', alike", "'lower'"),
    "selectattr": ("'k'", "'l', 'eq', alike_too", PATH),
    "sort": ("attribute='k'", "attribute='l'", "attribute='k,l'", f"attribute={PATH}"),
    "split": ("','", "text", "none, 3"),
    "sum": ("attribute='l', start=[]", "start=''", "start=[]"),
    "tojson": ("2",),
    "trim": ("text",),
    "truncate": ("200, true, text", "100000"),
    "unique": ("attribute='k'", "attribute='l'", "case_sensitive=true"),
}
WITH_ARGS = ("text", "seen", "flat", "alike", "texts", "rows", "of_lists")
TEST_ARGS = ("", "alike_too", "deeper", "of_lists")
METHOD_VALUES: dict[type, tuple[str, ...]] = {
    str: ("text", "seen", "lines"),
    Mapping: ("mapping", "of_lists"),
    list: ("alike", "texts", "flat"),
    tuple: ("pairs[0]", "tuples"),
    float: ("number",),
}
METHOD_ARGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), ("3000000",)),
    **dict.fromkeys(("count", "index"), ("'a'", "seen", "alike_too", "deeper")),
    **dict.fromkeys(("find", "partition", "rfind", "rpartition"), ("'zz'", "seen")),
    **dict.fromkeys(("endswith", "startswith"), ("seen", "('x',) * 200000")),
    **dict.fromkeys(("removeprefix", "removesuffix"), ("seen",)),
    **dict.fromkeys(("strip", "lstrip", "rstrip"), ("", "text")),
    **dict.fromkeys(("split", "rsplit"), ("", "','", "seen", "none, 3")),
    "get": ("seen", "tuples", "'key 1'"),
    "join": ("alike", "texts", "long_texts", "flat"),
    "replace": ("'a', text", "seen, ''"),
}
OPERATORS = (
    *(f"alike {sign} alike_too" for sign in ("==", "!=", "<", "<=", ">", ">=")),
    *(
        "deep == deeper",
        "deep < deeper",
        "seen == text",
        "seen < seen ~ 'a'",
        "of_lists == of_lists",
    ),
    *(
        "alike_too[0] in alike",
        "deep not in [deeper]",
        "'zz' in text",
        "seen in texts",
        "1.5 in flat",
    ),
    *(
        "tuples in mapping",
        "mapping[tuples]",
        "mapping[text]",
        "{tuples: 1}",
        "{seen: 1, small: 2}",
    ),
    *("text + text", "flat + flat", "alike * 100", "'a' * 3000000", "text % alike", "'%s' % alike"),
    *("'%9999999d' % 1", "wide[0] * wide[1]", "wide[0] // 3", "wide[0] % 7", "7 ** 3000"),
    *("text ~ text", "'' ~ alike ~ deep", "text[1:]", "flat[::-1]", "alike[1:2000]"),
    *(
        "range(100000)",
        "range(100000) | list",
        "dict(pairs)",
        "dict(mapping)",
        "dict([[tuples, 1]])",
    ),
    *(
        "dict(colliding | map('list'))",
        "[alike]",
        "[deep]",
        "flat | map('abs')",
        "[rows]",
        "[mapping]",
    ),
)
STATEMENTS = (
    *("{{ alike }}!", "{{ deep }}!", "{{ text }}{{ text }}", "[{{ json }}]", "{{ wide }} "),
    "{% for i in flat %}{{ i + 1 }}{% endfor %}",
    "{% for i in flat | map('abs') %}{{ loop.index }}{% endfor %}",
    "{% for i in flat %}{% if i == 3 %}x{% endif %}{% endfor %}",
    "{% for i in range(300) %}{% for j in range(300) %}{% endfor %}{% endfor %}",
    "{% for row in rows %}{% if loop.changed(row.l) %}x{% endif %}{% endfor %}",
    "{% for i in range(2000) %}{% if text %}{{ i }}{% endif %}{% endfor %}",
)
CHAIN = " | ".join(["flat", *["map('abs')"] * 50, "list"])

CEL_NAMES = Names(
    {
        "text": TEXT,
        "seen": Text("ab" * 20_000),
        "l": list(range(64)),
        "alike": [ALIKE[number % 2][:64] for number in range(64)],
        "other": [ALIKE[number % 2][:64] for number in range(1, 65)],
        "texts": ["x" * 250] * 64,
        "bytes": b"ab" * 100_000,
        "mapping": {f"key {number}": number for number in range(60_000)},
        "deep": nested(40),
        "deeper": nested(40),
        "wide": [2**200 + number for number in range(64)],
    }
)
#: Of each function and method; those that are not here meet every value.
CEL_CALLS: dict[str, tuple[str, ...]] = {
    "clamp": ("clamp(3, 1, 2)",),
    "consensus": (
        "consensus(texts, 'lev', 'ball', 'mode', 1, 3)",
        "consensus(alike, 'eq', 'pairwise', 'mode', 1, 3)",
    ),
    "contains": ("text.contains('zz')", "text.contains(seen)"),
    "dist": (
        *("dist('lev', texts[0], texts[1])", "dist('hamming', text, text)"),
        "dist('eq', deep, deeper)",
    ),
    "endsWith": ("text.endsWith(text)",),
    "join": ("join(texts, text)", "join([bytes, bytes], '')"),
    "matches": ("text.matches('(a|b|c){1,90}!')", "'a'.matches('(a|b|c|d){500}')"),
    "pow": ("pow(2, 3000)",),
    "quorum": ("quorum(texts, 'lev', 1, 64)", "quorum(deep, 'eq', 'clique', 1, 2)"),
    "relDiff": ("relDiff(1, 2)",),
    "safeDiv": ("safeDiv(1, 0, text)",),
    "startsWith": ("text.startsWith(text)",),
    "within": ("within('lev', texts[0], texts[1], 1)",),
    **{macro: (f"l.{macro}(a, l.{macro}(b, l.{macro}(c, a == b)))",) for macro in MACROS},
}  # fmt: skip
CEL_OPERATORS = (
    *("deep == deeper", "alike != other", "mapping == mapping", "deep in [deeper]", "text < text"),
    *("text + text", "alike + other", "wide[0] * wide[1]", "mapping.exists(k, k == 'a')"),
    *("l.map(a, [a, a]).map(a, [a, a]).map(a, [a, a])", "[[0]].map(a, [a, a]) == [[[0], [0]]]"),
    *("l.map(a, l.map(b, text + text))", "mapping[text]", "l.map(a, {text: a})", "-wide[0]"),
)


def templates() -> Iterator[str]:
    sandbox = sandbox_of(TemplateLimits())
    for name in sandbox.words:
        for value in VALUES.keys() - SELDOM:
            yield f"{{{{ {value} | {name} }}}}"
        for value, args in product(WITH_ARGS, FILTER_ARGS.get(name, ())):
            yield f"{{{{ {value} | {name}({args}) }}}}"
    for name in sandbox.tests:
        for value in ("alike", "deep", "seen"):
            for args in TEST_ARGS:
                yield f"{{{{ [{value}] | select('{name}'{args and ', '}{args}) | list }}}}"
    for kind, methods in METHODS:
        for name in methods:
            for value, args in product(METHOD_VALUES[kind], METHOD_ARGS.get(name, ("",))):
                yield f"{{{{ {value}.{name}({args}) }}}}"
    yield from (f"{{{{ {each} }}}}" for each in (*OPERATORS, CHAIN))
    yield from STATEMENTS


def too_much_work(evaluate: Any, names: dict[str, Any], expected: type[Exception]) -> str:
    def run() -> None:
        with suppress(expected):
            evaluate(names)

    done, charged = work_and_charge(run, [*names.values(), *ALIKE], BUDGET)
    if done <= OPERATIONS_PER_UNIT * charged + ALWAYS:
        return ""
    return f"{done:,} operations for {charged:,} units"


def test_what_a_template_does_is_charged_before() -> None:
    language, wrong = Jinja(), []
    for template in templates():
        expression = language.value(template)
        with suppress(ExpressionError):
            expression.evaluate({})  # its code is made now
        if found := too_much_work(expression.evaluate, VALUES, ExpressionError):
            wrong.append(f"{template[:80]}: {found}")
    assert wrong == []


def test_what_a_condition_reads_as_true_is_charged_or_short() -> None:
    condition = Jinja().condition("{{ text }}")
    blank = {"text": "FALSE" * 300_000}
    assert too_much_work(condition.evaluate, blank, ExpressionError) == ""


def cel_texts() -> Iterator[str]:
    for name, (least, _) in {**FUNCTIONS, **CEL_METHODS}.items():
        if name in CEL_CALLS:
            continue
        for value in CEL_NAMES:
            yield f"{name}({value})" if name in FUNCTIONS else f"{value}.{name}()"
        assert least == 1, f"{name} takes more than one value: give it some"
    yield from (text for calls in CEL_CALLS.values() for text in calls)
    yield from CEL_OPERATORS


def test_what_a_rule_does_is_charged_before() -> None:
    wrong = []
    for text in cel_texts():
        cel = compile_cel(text)
        if found := too_much_work(cel.evaluate_checked, CEL_NAMES, ExpressionError):
            wrong.append(f"{text[:80]}: {found}")
    assert wrong == []


def test_no_internal_filter_can_be_named() -> None:
    """They take what the compiler knows, such as the size of a loop, for granted."""
    for name in INTERNAL:
        with pytest.raises(ExpressionError, match="no filter"):
            Jinja().value(f"{{{{ [[1]] | {name}(-1000000) | list }}}}").evaluate({})
        with pytest.raises(ExpressionError, match=r"(?i)no filter"):
            Jinja().value(f"{{{{ [[1]] | map('{name}', -1000000) | list }}}}").evaluate({})
