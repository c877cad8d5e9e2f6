"""Results by reference: what becomes of the result of a task before anybody sees it.

A result above `inline_max_bytes` is kept as a payload. In its place stands a small mapping:

    {_ref: {kind, ref, bytes, store, scope, meta}, _preview, _size_bytes, _store, <extracted>}

What is extracted: the fields named by `select` (or `output_select`), under the names they have
there; without such a list the small fields, so that a guard on `count` works either way. Inside
the pipeline later tasks still see the whole value, and `_ref` and its companions beside it.

A task that is come back to (the pages of an endpoint) may accumulate: its result is then what its
rounds gave, put together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from anabranch.dialects.result_policy import Accumulation, ResultPolicy, read_policy
from anabranch.errors import InputError
from anabranch.net import paths
from anabranch.work.values.payloads import (
    KIND,
    REF,
    PayloadPort,
    encoded,
    hash_of,
    holds_ref,
    is_ref,
    load,
    place_in,
    place_of,
)

__all__ = [
    "ResultPolicy",
    "accumulated",
    "keep",
    "load_stand_ins",
    "manifest",
    "read_policy",
    "seen_by_tasks",
]

STORE = "payloads"
BESIDE_BYTES = 256 * 1024  # a larger result is packed in a thread
_ALIASES = {"__ref__": REF, "__preview__": "_preview"}
_TEXT_MAX = 1000
_LIST_MAX = 10
_FIELDS_MAX = 200  # of a mapping with thousands of small fields the first few are enough


async def keep(
    policy: ResultPolicy,
    result: Any,
    payloads: PayloadPort | None,
    run: str = "",
    item: Mapping[str, Any] | None = None,
) -> Any:
    """What travels: the result itself, or its stand-in, and then the result is in the store.

    `item` has the ids of the item of a loop that it belongs to."""
    if policy.keep_inline or result is None or isinstance(result, bool | int | float):
        return result
    plain = encoded(result)
    if len(plain) <= policy.inline_max_bytes:
        return result
    if payloads is None:
        raise InputError("this worker has no way to the payload store, and the result is too large")
    if len(plain) <= BESIDE_BYTES:
        content, fields = _packed(policy, result, plain)
    else:
        content, fields = await asyncio.to_thread(_packed, policy, result, plain)
    if item:
        fields[REF] |= item
    await payloads.put(content, run)
    return fields


def _packed(policy: ResultPolicy, result: Any, plain: bytes) -> tuple[bytes, dict[str, Any]]:
    """What the store keeps, and what travels."""
    content = encoded(result, policy.compression) if policy.compression != "none" else plain
    return content, stand_in(policy, result, plain, content)


def stand_in(policy: ResultPolicy, result: Any, plain: bytes, content: bytes) -> dict[str, Any]:
    """What travels instead of the result; `plain` is its JSON, `content` what the store keeps."""
    fields = selected(result, policy) if policy.select else small_fields(result)
    sha256 = hash_of(content)
    meta = {
        "content_type": "application/json",
        "bytes": len(content),
        "sha256": sha256,
        "compression": policy.compression,
    }
    ref: dict[str, Any] = {"kind": KIND, "ref": place_of(sha256), "bytes": len(plain)}
    ref |= {"store": STORE, "scope": policy.scope, "meta": meta}
    if policy.ttl_seconds is not None:
        ref["ttl_seconds"] = policy.ttl_seconds
    return {
        **fields,
        REF: ref,
        "_preview": plain[: policy.preview_max_bytes].decode("utf-8", "replace"),
        "_size_bytes": len(plain),
        "_store": STORE,
    }


def manifest(parts: list[Mapping[str, Any]], strategy: str = "append") -> dict[str, Any]:
    """One value for the results of many iterations, each a stand-in, without loading any."""
    refs = [part[REF] for part in parts]
    return {
        "kind": "manifest",
        "strategy": strategy,
        "parts": refs,
        "total_parts": len(refs),
        "total_bytes": sum(ref["bytes"] for ref in refs),
    }


def seen_by_tasks(result: Any, travels: Any) -> Any:
    """What later tasks of the pipeline look at: the whole, with the names of its stand-in."""
    replaced = travels is not result and is_ref(travels)
    return WithRef(result, travels) if replaced and isinstance(result, Mapping) else result


async def load_stand_ins(value: Any, payloads: PayloadPort) -> Any:
    """The value with every stand-in in it replaced by what it stands for."""
    if not holds_ref(value):
        return value
    if isinstance(value, list):
        return [await load_stand_ins(each, payloads) for each in value]
    if not is_ref(value):
        return {key: await load_stand_ins(each, payloads) for key, each in value.items()}
    return seen_by_tasks(await load(payloads, str(place_in(value))), value)


class WithRef(dict[str, Any]):
    """A whole mapping that also answers to what only its stand-in has (`_ref`, `_preview`, names
    given by `select`), without listing it: in every other respect it is the whole."""

    __slots__ = ("_fields",)

    def __init__(self, whole: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
        super().__init__(whole)
        self._fields = fields

    def __missing__(self, key: str) -> Any:
        return self._fields[_ALIASES.get(key, key)]

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


# -- rounds put together ---------------------------------------------------------------------


def accumulated(how: Accumulation, so_far: Any, result: Any) -> Any:
    """What the rounds of a task came to, with this one; `so_far` is None before the first."""
    if not how.results:
        return so_far or []
    value = paths.lookup(result, how.path)
    if value is paths.MISSING:
        where = ".".join(map(str, how.path))
        raise InputError(f"accumulate: the result has no {where}", code="accumulate")
    match how.strategy:
        case "replace":
            whole: Any = value
        case "append":
            whole = [*(so_far or ()), value]
        case "concat":
            whole = [*(so_far or ()), *_of_type(value, list, "concat needs a list")]
        case "merge":
            whole = {**(so_far or {}), **_of_type(value, Mapping, "merge needs a mapping")}
    size = len(whole) if isinstance(whole, list | dict) else 1
    if how.max_items is not None and size > how.max_items:
        raise InputError(
            f"accumulate: {size:,} items are over max_items ({how.max_items:,})", code="accumulate"
        )
    return whole


def _of_type(value: Any, wanted: type, otherwise: str) -> Any:
    if not isinstance(value, wanted):
        message = f"accumulate: {otherwise}, not {type(value).__name__}"
        raise InputError(message, code="accumulate")
    return value


# -- what is extracted -----------------------------------------------------------------------


def selected(result: Any, policy: ResultPolicy) -> dict[str, Any]:
    """The chosen fields. One that is not there is null, as it would be in the whole value."""
    fields: dict[str, Any] = {}
    for each in policy.select:
        found = paths.lookup(result, each.path)
        value = None if found is paths.MISSING else found
        size = len(encoded(value))
        if size > policy.inline_max_bytes:
            raise InputError(
                f"output.select: {each.text} has {size:,} bytes; what is selected stays inline, "
                f"and inline_max_bytes is {policy.inline_max_bytes:,}",
                code="select_too_large",
            )
        if each.name:
            fields[each.name] = value
        else:
            _put(fields, each.path, value)
    return fields


def _put(fields: dict[str, Any], path: paths.Path, value: Any) -> None:
    for part in path[:-1]:
        inner = fields.get(str(part))
        fields = fields.setdefault(str(part), {}) if not isinstance(inner, dict) else inner
    fields[str(path[-1])] = value


def small_fields(result: Any) -> dict[str, Any]:
    """Small scalars, short lists of them, the length of longer ones, and one level below."""
    if not isinstance(result, Mapping):
        return {}
    fields: dict[str, Any] = {}
    for key, value in result.items():
        if len(fields) >= _FIELDS_MAX:
            break
        if isinstance(value, Mapping):
            inner = {f"{key}_{name}": item for name, item in value.items() if _is_small(item)}
            fields |= {name: item for name, item in inner.items() if name not in result}
        else:
            fields |= _field(key, value)
    return dict(list(fields.items())[:_FIELDS_MAX])


def _field(key: str, value: Any) -> dict[str, Any]:
    if _is_small(value):
        return {key: value}
    if not isinstance(value, list):
        return {}
    short = len(value) <= _LIST_MAX and all(map(_is_small, value))
    return {key: value} if short else {f"{key}_count": len(value)}


def _is_small(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _TEXT_MAX
    return value is None or isinstance(value, bool | int | float)
