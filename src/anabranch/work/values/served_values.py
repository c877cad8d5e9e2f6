"""Values as a PostgreSQL server sends them: JSON stays a text until somebody has looked at it.

The driver would build it on the event loop while it fetches a row. Here it stays what it was, is
counted with the rows, and is built beside the loop (`served_json.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from anabranch.work.libraries import load
from anabranch.work.values.served_json import BESIDE_BYTES, build_json, count_containers, do_aside

T = TypeVar("T")

_LONG = 4096  # values of an array: to look at more takes as long as to do it elsewhere
_LIGHT = frozenset({int, float, str, bool, type(None)})
_OF_EACH = 64  # bytes of JSON that take as long as one of them


class ServedJson(NamedTuple):
    """JSON as it came."""

    text: bytes

    def build(self) -> Any:
        return build_json(self.text, wide=True)


def keep_json_as_it_comes(connection: Any) -> None:
    """For all rows of a connection."""
    loader = load("psycopg.adapt").Loader

    class JsonLoader(loader):  # type: ignore[misc, valid-type]
        def load(self, data: Any) -> ServedJson:
            return ServedJson(bytes(data))

    for name in ("json", "jsonb"):
        connection.adapters.register_loader(name, JsonLoader)


async def convert_rows(convert: Callable[[Sequence[Any]], T], rows: Sequence[Sequence[Any]]) -> T:
    """What this makes of rows: beside the event loop where there is much JSON, or a long array."""
    return await do_aside(_weight_of(rows), convert, rows)


def weigh_json(rows: Sequence[Sequence[Any]]) -> tuple[int, int]:
    """The bytes of what is JSON in rows, and its lists and objects."""
    texts: list[bytes] = []
    for row in rows:
        for value in row:
            kind = type(value)
            if kind is ServedJson or kind is list:
                texts += _texts_in(value)
    return sum(map(len, texts)), sum(map(count_containers, texts))


def _texts_in(value: Any) -> list[bytes]:
    if type(value) is ServedJson:
        return [value.text]
    return [text for each in value for text in _texts_in(each)] if type(value) is list else []


def _weight_of(rows: Sequence[Sequence[Any]]) -> int:
    weight = 0
    for row in rows:
        for value in row:
            kind = type(value)
            if kind is ServedJson:
                weight += len(value.text)
            elif kind is list:
                weight += _weight_of_array(value)
    return weight


def _weight_of_array(values: list[Any]) -> int:
    """More than is done on the event loop where it is long, or has anything else in it."""
    light = len(values) <= _LONG and all(type(each) in _LIGHT for each in values)
    return _OF_EACH * len(values) if light else BESIDE_BYTES + 1
