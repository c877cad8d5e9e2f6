"""What Python code may give for a result besides JSON, and what each becomes.

    keys                    whole numbers, decimals, true, false, null: their JSON text
    datetime, date, time    ISO 8601 text
    timedelta               a number of seconds
    Decimal                 a number when that is exact, otherwise text
    bytes                   base64 text
    set, frozenset          a list, sorted
    dataclass               a mapping of its fields
    Enum                    its value
    UUID, path              text
    other mappings          a mapping

Rows of queries follow the same rules (`work.sql.rows`). Anything else is refused, and so are NaN
and two keys that become the same text: what is recorded must be what was meant.

Only the standard library is used, and nothing of it is imported for a type nobody uses: the Python
worker process loads this file, and a value of a type has brought its module along.
"""

from __future__ import annotations

import binascii
import sys
from collections.abc import Mapping

from anabranch.work.values.json_check import MAX_DEPTH, NotJsonError, Walk, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WHOLE_MAX = 2**63


class Results(Walk):
    """Copies a value, converting what has a stated form."""

    def _key(self, key: Any) -> str:
        if key is None or isinstance(key, int | float):
            return to_json(key)
        made = self.copy(key) if _converts(key) else None
        if made is None or isinstance(made, dict | list):
            return super()._key(key)
        return made if isinstance(made, str) else to_json(made)

    def _other(self, value: Any) -> Any:
        if isinstance(value, bytes | bytearray | memoryview):
            return binascii.b2a_base64(value, newline=False).decode()
        if isinstance(value, set | frozenset):
            return sorted(self._container(list(value)), key=_order)
        if isinstance(value, Mapping):
            return self._container(dict(value))
        if _is_a(value, "enum", "Enum"):
            return self.copy(value.value)
        if _is_a(value, "decimal", "Decimal"):
            return _number(value)
        if _is_a(value, "datetime", "date") or _is_a(value, "datetime", "time"):
            return value.isoformat()
        if _is_a(value, "datetime", "timedelta"):
            return value.total_seconds()
        if _is_a(value, "uuid", "UUID") or _is_a(value, "pathlib", "PurePath"):
            return self.copy(str(value))
        fields = getattr(type(value), "__dataclass_fields__", None)
        if fields is not None:
            return self._container({name: getattr(value, name) for name in fields})
        return super()._other(value)


def result_json(value: Any) -> str:
    """The result as JSON text, or `NotJsonError`."""
    try:
        return to_json(value, walk=Results)
    except RecursionError:
        raise NotJsonError("result", f"nests more than {MAX_DEPTH} levels deep") from None


def _converts(key: Any) -> bool:
    kinds = (("datetime", "date"), ("decimal", "Decimal"), ("enum", "Enum"), ("uuid", "UUID"))
    return any(_is_a(key, *kind) for kind in kinds)


def _is_a(value: Any, module: str, name: str) -> bool:
    """Without an import: who has such a value has loaded its module."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _number(value: Any) -> int | float | str:
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value() and abs(value) < _WHOLE_MAX:
        return int(value)
    near = float(value)
    return near if type(value)(repr(near)) == value else str(value)


def _order(item: Any) -> tuple[int, Any]:
    """Numbers by value, then text, then the rest by its JSON."""
    if isinstance(item, int | float):
        return (0, item)
    return (1, item) if isinstance(item, str) else (2, to_json(item))
