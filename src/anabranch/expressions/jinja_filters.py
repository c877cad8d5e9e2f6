"""The filters templates have: Jinja's harmless ones, bounded twins of the growing ones, and ours.

Left out on purpose: `random` (an expression gives the same value every time), everything about
HTML, `attr`, and the layout filters that pad (`indent`, `wordwrap`, `batch`, `slice`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import Environment, Undefined, pass_environment
from jinja2.filters import FILTERS, do_float, do_int, do_round, make_attrgetter

from anabranch.expressions.jinja_limits import Meter

Filter = Callable[..., Any]

_FROM_JINJA = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "first", "groupby", "last"),
    *("length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse"),
    *("select", "selectattr", "sort", "title", "trim", "truncate", "unique", "upper"),
    *("urlencode", "wordcount"),
)


def filters(meter: Meter) -> dict[str, Filter]:
    return {name: FILTERS[name] for name in _FROM_JINJA} | _plain_filters() | _bounded(meter)


def _plain_filters() -> dict[str, Filter]:
    return {
        "b64encode": b64encode,
        "b64decode": b64decode,
        "float": to_float,
        "fromjson": fromjson,
        "get": get,
        "int": to_int,
        "items": lambda value: list(_mapping(value).items()),
        "keys": lambda value: list(_mapping(value)),
        "round": bounded_round,
        "split": split,
        "values": lambda value: list(_mapping(value).values()),
    }


def _bounded(meter: Meter) -> dict[str, Filter]:
    """Filters that can grow, on the meter."""

    def tojson(value: Any, indent: int | None = None) -> str:
        if indent is not None and not 0 <= indent <= 16:
            raise ValueError("tojson: indent must be from 0 to 16")
        text = json.dumps(meter.plain(value), indent=indent, ensure_ascii=False)
        meter.check_text(len(text))
        return text

    def replace(value: Any, old: str, new: str, count: int | None = None) -> str:
        return meter.replace(meter.text(value), old, new, -1 if count is None else count)

    @pass_environment
    def join(environment: Environment, value: Any, d: str = "", attribute: Any = None) -> str:
        return meter.join(d, _picked(environment, value, attribute))

    @pass_environment
    def total(environment: Environment, value: Any, attribute: Any = None, start: Any = 0) -> Any:
        for item in _picked(environment, value, attribute):
            start = meter.add(start, item)
        return start

    def percent_format(value: Any, *args: Any, **kwargs: Any) -> str:
        if args and kwargs:
            raise ValueError("format: give positional or named values, not both")
        return meter.format(meter.text(value), kwargs or args)

    return {
        "format": percent_format,
        "join": join,
        "replace": replace,
        "string": meter.text,
        "sum": total,
        "tojson": tojson,
    }


def _picked(environment: Environment, value: Iterable[Any], attribute: Any) -> Iterable[Any]:
    if attribute is None:
        return value
    return map(make_attrgetter(environment, attribute), value)


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Undefined):
        return {}
    if isinstance(value, Mapping):
        return value
    raise TypeError(f"a mapping is needed here, not a {type(value).__name__}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Undefined):
        return ""
    raise TypeError(f"text is needed here, not a {type(value).__name__}")


def b64encode(value: Any) -> str:
    return base64.b64encode(_text(value).encode()).decode("ascii")


def b64decode(value: Any) -> str:
    return base64.b64decode(_text(value), validate=True).decode()


def fromjson(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def split(value: Any, separator: str | None = None, maxsplit: int = -1) -> list[str]:
    return _text(value).split(separator, maxsplit)


def get(value: Any, key: Any, default: Any = None) -> Any:
    """`x | get('key', default)`, for keys that are not names and for list positions."""
    if isinstance(value, Undefined) or not isinstance(value, (Mapping, list, tuple)):
        return default
    try:
        return value[key]
    except (LookupError, TypeError):
        return default


def to_int(value: Any, default: int = 0, base: int = 10) -> int:
    return default if isinstance(value, Undefined) else do_int(value, default, base)


def to_float(value: Any, default: float = 0.0) -> float:
    return default if isinstance(value, Undefined) else do_float(value, default)


def bounded_round(value: float, precision: int = 0, method: Any = "common") -> float:
    # Jinja scales by 10 ** precision, so the precision is a size.
    if not -300 <= precision <= 300:
        raise ValueError("round: precision must be from -300 to 300")
    return do_round(value, precision, method)
