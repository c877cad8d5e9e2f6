"""Large results travel as refs.

A result above the limit is kept by its hash beside the log, and what goes into the log, the context
and the guards is a small stand-in: where it is, how big, a preview, and the small fields of a
mapping, so that a guard on `count` still works. Jobs get the whole value back, wherever in their
arguments, the context or the results the stand-in was put.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from anabranch.errors import NotFound
from anabranch.work.payloads import KIND, PLACE, REF, decoded, hash_of, place_of

_PREVIEW = 1024
_FIELD = 1000

_encode = msgspec.json.Encoder().encode


def as_ref(result: Any, limit: int) -> tuple[Any, str, bytes] | None:
    """The stand-in for a result that is too large to travel, with its hash and content."""
    if result is None or isinstance(result, bool | int | float):
        return None
    content = _encode(result)
    if len(content) <= limit:
        return None
    sha256 = hash_of(content)
    stand_in = {
        **_small_fields(result),
        REF: {"kind": KIND, "ref": place_of(sha256), "bytes": len(content)},
        "_preview": content[:_PREVIEW].decode("utf-8", "replace"),
        "_size_bytes": len(content),
        "_store": "payloads",
    }
    return stand_in, sha256, content


def _small_fields(result: Any) -> dict[str, Any]:
    if not isinstance(result, Mapping):
        return {}
    return {
        key: value
        for key, value in result.items()
        if value is None
        or isinstance(value, bool | int | float)
        or (isinstance(value, str) and len(value) <= _FIELD)
    }


def is_ref(value: Any) -> bool:
    ref = value.get(REF) if isinstance(value, Mapping) else None
    return (
        isinstance(ref, Mapping)
        and ref.get("kind") == KIND
        and str(ref.get("ref")).startswith(PLACE)
    )


def holds_ref(value: Any) -> bool:
    """Is there a stand-in anywhere in it? Only containers are looked into."""
    if isinstance(value, Mapping):
        if REF in value and is_ref(value):
            return True
        return any(holds_ref(each) for each in value.values() if isinstance(each, dict | list))
    if isinstance(value, list):
        return any(holds_ref(each) for each in value if isinstance(each, dict | list))
    return False


def resolve(value: Any, fetch: Callable[[str], bytes | None]) -> Any:
    """The value with every stand-in in it replaced by what it stands for."""
    if not holds_ref(value):
        return value
    if isinstance(value, list):
        return [resolve(each, fetch) for each in value]
    if not is_ref(value):
        return {key: resolve(each, fetch) for key, each in value.items()}
    sha256 = str(value[REF]["ref"]).removeprefix(PLACE)
    content = fetch(sha256)
    if content is None:
        raise NotFound(f"the payload {sha256} is not in the store")
    return decoded(content)


class Resolved(Mapping[str, Any]):
    """A mapping whose values are resolved when they are looked at."""

    def __init__(self, values: Mapping[str, Any], fetch: Callable[[str], bytes | None]) -> None:
        self._values = values
        self._fetch = fetch

    def __getitem__(self, key: str) -> Any:
        return resolve(self._values[key], self._fetch)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values
