"""The filters templates have: bounded twins of Jinja's harmless ones, and ours.

Left out on purpose: `random` (an expression gives the same value every time), everything about
HTML, `attr`, and the layout filters that pad (`indent`, `wordwrap`, `batch`, `slice`).

A filter that reads or makes more than one value takes the scope of the evaluation first and charges
it; the others (`FREE`) pick something or look at one number.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from jinja2 import Undefined, pass_context
from jinja2.filters import FILTERS, do_float, do_int, do_round, do_truncate

from anabranch.expressions.budget import TooMuch
from anabranch.expressions.jinja.costs import LETTER, TEXT_METHODS
from anabranch.expressions.jinja.filters_lists import list_filters
from anabranch.expressions.jinja.getters import attribute_getter
from anabranch.expressions.jinja.meter import Meter, json_text
from anabranch.expressions.jinja.quotes import py, sh, sql
from anabranch.expressions.jinja.spending import CALL, SMALL, Spending, bounded_list, check_key

Filter = Callable[..., Any]

#: They pick something or look at one number: nothing is read or made that could be large.
FREE = ("abs", "count", "d", "default", "first", "get", "last", "length", "round")
_NUMBERS = frozenset({int, float})
_WORDS = re.compile(r"\w+")
_WORD_BEGINNINGS = re.compile(r"([-\s({\[<]+)")


def filters(meter: Meter) -> dict[str, Filter]:
    return {
        **{name: FILTERS[name] for name in FREE if name in FILTERS},
        "get": get,
        "round": bounded_round,
        **_text_filters(meter),
        **_conversions(meter),
        **_bounded(meter),
        **_combining(meter),
        **list_filters(),
        "sh": sh,
        "py": py,
        "sql": sql,
    }


def _text_filters(meter: Meter) -> dict[str, Filter]:
    """Filters that read a text once. What is no text is written out first, within the limits."""
    limits = meter.limits

    def on_text(work: Callable[[str], Any], rate: int = LETTER) -> Filter:
        @pass_context
        def run(scope: Spending, value: Any) -> Any:
            text = value if type(value) is str else meter.text(scope, value)
            if len(text) > SMALL:
                scope.charge(len(text) * rate)
            result = work(text)
            if type(result) is str and len(result) > limits.text_max:
                meter.check_text(len(result))
            return result

        return run

    @pass_context
    def trim(scope: Spending, value: Any, chars: str | None = None) -> str:
        made: str = TEXT_METHODS["strip"](scope, meter.text(scope, value), chars)
        return made

    @pass_context
    def truncate(scope: Any, value: Any, *args: Any, **kwargs: Any) -> str:
        text = meter.text(scope, value)
        scope.charge(2 * len(text))
        for arg in (*args, *kwargs.values()):  # the text at its end
            scope.charge_value(arg)
        made = do_truncate(scope.environment, text, *args, **kwargs)
        meter.check_text(len(made))
        return made

    @pass_context
    def split(
        scope: Spending, value: Any, separator: str | None = None, maxsplit: int = -1
    ) -> list[str]:
        parts: list[str] = TEXT_METHODS["split"](scope, _text(value), separator, maxsplit)
        return parts

    return {
        "capitalize": on_text(str.capitalize),
        "lower": on_text(str.lower),
        "split": split,
        "title": on_text(_titled, rate=64),
        "trim": trim,
        "truncate": truncate,
        "upper": on_text(str.upper),
        "wordcount": on_text(lambda text: sum(1 for _ in _WORDS.finditer(text)), rate=32),
    }


def _titled(text: str) -> str:
    return "".join(
        [item[0].upper() + item[1:].lower() for item in _WORD_BEGINNINGS.split(text) if item]
    )


def _conversions(meter: Meter) -> dict[str, Filter]:
    limits = meter.limits

    @pass_context
    def to_int(scope: Spending, value: Any, default: int = 0, base: int = 10) -> int:
        if isinstance(value, Undefined):
            return default
        if isinstance(value, str):
            scope.charge(len(value))
            if base != 10 and len(value) > limits.bits_max:
                raise TooMuch("digits of a number:", len(value), "bits_max", limits.bits_max)
        return do_int(value, default, base)

    @pass_context
    def to_float(scope: Spending, value: Any, default: float = 0.0) -> float:
        if isinstance(value, str):
            scope.charge(len(value))
        return default if isinstance(value, Undefined) else do_float(value, default)

    @pass_context
    def b64encode(scope: Spending, value: Any) -> str:
        text = _text(value)
        scope.charge(8 * len(text))
        made = base64.b64encode(text.encode()).decode("ascii")
        meter.check_text(len(made))
        return made

    @pass_context
    def b64decode(scope: Spending, value: Any) -> str:
        text = _text(value)
        scope.charge(2 * len(text))
        return base64.b64decode(text, validate=True).decode()

    @pass_context
    def fromjson(scope: Spending, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        scope.charge(16 * len(value))  # a list of two characters takes many bytes
        return json.loads(value)

    @pass_context
    def string(scope: Spending, value: Any) -> str:
        return meter.text(scope, value)

    return {
        "b64decode": b64decode,
        "b64encode": b64encode,
        "float": to_float,
        "fromjson": fromjson,
        "int": to_int,
        "string": string,
    }


def _bounded(meter: Meter) -> dict[str, Filter]:
    """Filters that can grow, on the meter."""

    @pass_context
    def tojson(scope: Spending, value: Any, indent: int | None = None) -> str:
        if indent is not None and not 0 <= indent <= 16:
            raise ValueError("tojson: indent must be from 0 to 16")

        def write(plain: Any) -> str:
            if indent:
                meter.charge_text(scope, _blanks(plain, indent, meter.limits.text_max))
            return json_text(plain, indent)

        # With an indent it is Python that writes, and another walk that counts the blanks.
        return meter.written_out(scope, value, write, rate=1 if indent is None else 8)

    @pass_context
    def replace(scope: Spending, value: Any, old: str, new: str, count: int | None = None) -> str:
        text = meter.text(scope, value)
        return meter.replace(scope, text, old, new, -1 if count is None else count)

    @pass_context
    def percent_format(scope: Spending, value: Any, *args: Any, **kwargs: Any) -> str:
        if args and kwargs:
            raise ValueError("format: give positional or named values, not both")
        return meter.format(scope, meter.text(scope, value), kwargs or args)

    @pass_context
    def urlencode(scope: Spending, value: Any) -> str:
        if isinstance(value, str) or not isinstance(value, Iterable):
            return _url_quoted(scope, meter, value, quote)
        pairs = value.items() if isinstance(value, Mapping) else value
        parts, length = [], 0
        items = bounded_list(scope, pairs)
        scope.charge(CALL * len(items))
        for key, item in items:
            part = "=".join(_url_quoted(scope, meter, one, quote_plus) for one in (key, item))
            length += len(part) + 1
            meter.check_text(length)
            parts.append(part)
        return "&".join(parts)

    return {
        "format": percent_format,
        "replace": replace,
        "tojson": tojson,
        "urlencode": urlencode,
    }


def _combining(meter: Meter) -> dict[str, Filter]:
    """Filters that put the elements of a sequence together."""

    @pass_context
    def join(scope: Any, value: Any, d: str = "", attribute: Any = None) -> str:
        return meter.join(scope, d, _picked(scope, value, attribute))

    @pass_context
    def total(scope: Any, value: Any, attribute: Any = None, start: Any = 0) -> Any:
        items = _picked(scope, value, attribute)
        if not set(map(type, items)) <= _NUMBERS:
            scope.charge(CALL * len(items))
        for item in items:
            if type(item) is int or type(item) is float:
                start = start + item
            else:
                start = meter.add(scope, start, item)
        return start

    return {"join": join, "sum": total}


def _url_quoted(scope: Spending, meter: Meter, value: Any, work: Callable[..., str]) -> str:
    text = meter.text(scope, value)
    scope.charge(24 * len(text))  # one character is up to twelve
    made = work(text, safe="/" if work is quote else "")
    meter.check_text(len(made))
    return made


def _blanks(plain: Any, indent: int, most: int) -> int:
    """How many characters of indentation the JSON of this value has, beyond `most` roughly."""
    total = 0
    waiting = [(plain, indent)]
    while waiting and total <= most:
        value, width = waiting.pop()
        if isinstance(value, (dict, list)):
            total += (len(value) + 1) * (width + 1)
            inner = value.values() if isinstance(value, dict) else value
            waiting += [(one, width + indent) for one in inner if isinstance(one, (dict, list))]
    return total


def _picked(scope: Any, value: Iterable[Any], attribute: Any) -> list[Any]:
    items = bounded_list(scope, value)
    return items if attribute is None else attribute_getter(scope, attribute).of_all(items)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Undefined):
        return ""
    raise TypeError(f"text is needed here, not a {type(value).__name__}")


def get(value: Any, key: Any, default: Any = None) -> Any:
    """`x | get('key', default)`, for keys that are not names and for list positions."""
    if isinstance(value, Undefined) or not isinstance(value, (Mapping, list, tuple)):
        return default
    check_key(key)
    try:
        return value[key]
    except (LookupError, TypeError):
        return default


def bounded_round(value: float, precision: int = 0, method: Any = "common") -> float:
    # Jinja scales by 10 ** precision, so the precision is a size.
    if not -300 <= precision <= 300:
        raise ValueError("round: precision must be from -300 to 300")
    return do_round(value, precision, method)
