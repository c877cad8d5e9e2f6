"""Filters that make a value safe inside the text of another language.

    command: "grep -e {{ ctx.word | sh }} notes.txt"
    code: "limit = {{ ctx.limit | py }}"
    query: "select * from orders where name = {{ ctx.name | sql }}"

Better than any quoting is a value that never becomes text: `args` and `env` of shell and Python
tasks, `params` of SQL tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from jinja2 import Undefined, pass_context

from anabranch.expressions.jinja.meter import Meter, json_text
from anabranch.expressions.jinja.spending import CALL, Spending, bounded_list

#: What a shell may take for more than a character of a word.
_SPECIAL = re.compile(r"[^\w@%+=:,./-]", re.ASCII)


@pass_context
def sh(scope: Spending, value: Any) -> str:
    """One word of a POSIX shell, or several for a list; a mapping, or a list in one, is its JSON.
    Nothing there is an empty word."""
    if isinstance(value, (list, tuple)):
        return _made(scope, " ".join(_words(scope, bounded_list(scope, value))))
    return _made(scope, _word(scope, value))


def _words(scope: Spending, items: list[Any]) -> Iterator[str]:
    length = 0
    for item in items:
        scope.charge(CALL)
        word = _word(scope, item)
        length += len(word) + 1
        _meter(scope).check_text(length)
        yield word


def _word(scope: Spending, value: Any) -> str:
    if isinstance(value, (list, tuple, Mapping)):
        value = _meter(scope).written_out(scope, value, json_text)
    if value is None or isinstance(value, Undefined):
        return "''"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = _meter(scope).text(scope, value)
    scope.charge(5 * len(text))
    _refuse_nul(text, "sh")
    if text and not _SPECIAL.search(text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


@pass_context
def py(scope: Spending, value: Any) -> str:
    """A Python literal of text, numbers, true, false, null, lists and mappings of them."""
    return _meter(scope).written_out(scope, value, repr)


@pass_context
def sql(scope: Spending, value: Any) -> str:
    """A literal of standard SQL: text in quotes, a number, TRUE, FALSE or NULL."""
    if value is None or isinstance(value, Undefined):
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, float)):
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"sql: {value} is no number of SQL")
        return _meter(scope).text(scope, value)
    if not isinstance(value, str):
        raise TypeError(f"sql quotes text, numbers, true, false and null, not a {_kind(value)}")
    scope.charge(2 * len(value))
    _refuse_nul(value, "sql")
    return _made(scope, "'" + value.replace("'", "''") + "'")


def _refuse_nul(text: str, name: str) -> None:
    if "\0" in text:
        raise ValueError(f"{name}: the text has a NUL character in it, which cannot be quoted")


def _kind(value: Any) -> str:
    return "mapping" if isinstance(value, Mapping) else type(value).__name__


def _meter(scope: Spending) -> Meter:
    meter: Meter = scope.environment.meter  # type: ignore[attr-defined]
    return meter


def _made(scope: Spending, text: str) -> str:
    _meter(scope).check_text(len(text))
    scope.charge(len(text))
    return text
