"""Results by reference: what becomes of the result of a task before anybody sees it.

A result above `inline_max_bytes` is kept as a payload. In its place stands a small mapping:

    {_ref: {kind, ref, bytes, store, scope, meta}, _preview, _size_bytes, _store, <extracted>}

What is extracted: the fields named by `select` (or `output_select`), under the names they have
there; without such a list the small fields, so that a guard on `count` works either way. Inside
the pipeline later tasks still see the whole value, and `_ref` and its companions beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from anabranch.errors import InputError
from anabranch.work import inputs, paths
from anabranch.work.payloads import KIND, REF, PayloadPort, encoded, hash_of, place_of

INLINE_MAX_BYTES = 64 * 1024
PREVIEW_MAX_BYTES = 1024
STORE = "payloads"

#: Every kind of store that playbooks name is our payload store; `eventlog` keeps results inline.
STORES = frozenset(
    {"auto", "memory", "kv", "object", "disk", "s3", "gcs", "db", "duckdb", "eventlog"}
)
SCOPES = frozenset({"step", "execution", "workflow", "permanent"})
_KEYS = frozenset(
    {"inline_max_bytes", "preview_max_bytes", "store", "select", "output_select", "scope", "ttl"}
    | {"compression", "accumulate"}
)
_COMPANIONS = (REF, "_preview", "_size_bytes", "_store")
_ALIASES = {"__ref__": REF, "__preview__": "_preview"}
_TEXT_MAX = 1000
_LIST_MAX = 10
_FIELDS_MAX = 200  # of a mapping with thousands of small fields the first few are enough


class Selection(msgspec.Struct, frozen=True):
    path: paths.Path
    name: str  # "" puts the value where it was: `a.b` stays `a: {b: …}`
    text: str


class ResultPolicy(msgspec.Struct, frozen=True, kw_only=True):
    inline_max_bytes: int = INLINE_MAX_BYTES
    preview_max_bytes: int = PREVIEW_MAX_BYTES
    select: tuple[Selection, ...] = ()
    scope: str = "execution"
    ttl_seconds: float | None = None
    compression: Literal["none", "gzip"] = "none"
    keep_inline: bool = False


class Kept(msgspec.Struct, frozen=True):
    """A result after its policy was applied: what travels, and what later tasks look at."""

    travels: Any
    local: Any


def read_policy(output: Mapping[str, Any] | None) -> ResultPolicy:
    """The policy as a definition writes it, or an `InputError` that names the key at fault."""
    given = dict(output or {})
    if unknown := sorted(given.keys() - _KEYS):
        raise InputError(f"output: '{unknown[0]}' is not known; there are {_words(_KEYS)}")
    store = _store(given)
    kind = _word(store.get("kind", "auto"), STORES, "output.store.kind")
    ttl = store.get("ttl")
    return ResultPolicy(
        inline_max_bytes=_size(given, "inline_max_bytes", INLINE_MAX_BYTES),
        preview_max_bytes=_size(given, "preview_max_bytes", PREVIEW_MAX_BYTES),
        select=_selections(given),
        scope=_word(store.get("scope", "execution"), SCOPES, "output.store.scope"),
        ttl_seconds=None if ttl is None else inputs.seconds(ttl, "output.store.ttl"),
        compression=_compression(store.get("compression", "none")),
        keep_inline=kind == "eventlog",
    )


async def keep(policy: ResultPolicy, result: Any, payloads: PayloadPort | None) -> Kept:
    """Apply the policy to a result; a large one is in the store when this returns."""
    if policy.keep_inline or result is None or isinstance(result, bool | int | float):
        return Kept(result, result)
    plain = encoded(result)
    if len(plain) <= policy.inline_max_bytes:
        return Kept(result, result)
    if payloads is None:
        raise InputError("this worker has no way to the payload store, and the result is too large")
    content = encoded(result, policy.compression) if policy.compression != "none" else plain
    fields = stand_in(policy, result, plain, content)
    await payloads.put(content)
    return Kept(fields, WithRef(result, fields) if isinstance(result, Mapping) else result)


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


class WithRef(Mapping[str, Any]):
    """A whole mapping that also answers to `_ref` and its companions, without listing them."""

    __slots__ = ("_fields", "_whole")

    def __init__(self, whole: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
        self._whole = whole
        self._fields = fields

    def __getitem__(self, key: str) -> Any:
        if key in self._whole:
            return self._whole[key]
        name = _ALIASES.get(key, key)
        if name in _COMPANIONS:
            return self._fields[name]
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)


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


# -- reading a policy ------------------------------------------------------------------------


def _store(given: Mapping[str, Any]) -> dict[str, Any]:
    value = given.get("store")
    fields = {"kind": value} if isinstance(value, str) else {**inputs.mapping(value, "store")}
    for name in ("scope", "ttl", "compression"):
        if given.get(name) is not None:
            fields.setdefault(name, given[name])
    return fields


def _selections(given: Mapping[str, Any]) -> tuple[Selection, ...]:
    chosen = [*_listed(given, "select"), *_listed(given, "output_select")]
    return tuple(_selection(each) for each in chosen)


def _selection(each: Any) -> Selection:
    if isinstance(each, str):
        return Selection(paths.parse(each, "output_select"), "", each)
    fields = inputs.mapping(each, "an entry of output.select")
    path, name = fields.get("path"), fields.get("as", "")
    return Selection(paths.parse(path, "path"), inputs.text(name, "as"), str(path))


def _listed(given: Mapping[str, Any], name: str) -> list[Any]:
    value = given.get(name)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise InputError(f"output.{name} must be a list, not {value!r:.40}")
    return list(value)


def _size(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"output.{name} must be a number of bytes, not {value!r:.40}")
    return value


def _word(value: Any, known: frozenset[str], what: str) -> str:
    if value not in known:
        raise InputError(f"{what} must be one of {_words(known)}, not {value!r:.40}")
    return str(value)


def _compression(value: Any) -> Literal["none", "gzip"]:
    word = _word("none" if value is None else value, frozenset({"none", "gzip"}), "compression")
    return "gzip" if word == "gzip" else "none"


def _words(known: frozenset[str]) -> str:
    return ", ".join(sorted(known))
