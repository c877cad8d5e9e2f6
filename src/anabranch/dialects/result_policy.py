"""Result policies: what becomes of the result of a task before anybody sees it.

Dialects check them with the function that the work uses to carry them out (`work.values.results`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.dialects.durations import parse_duration
from anabranch.errors import InputError
from anabranch.net import paths

INLINE_MAX_BYTES = 64 * 1024
PREVIEW_MAX_BYTES = 1024

#: Every kind of store that playbooks name is our payload store; `eventlog` keeps results inline.
STORES = (*("auto", "memory", "kv", "object", "disk", "s3", "gcs", "db", "duckdb", "eventlog"),)
SCOPES = ("step", "execution", "workflow", "permanent")
COMPRESSIONS = ("none", "gzip", "lz4")  # the last is kept as gzip
STRATEGIES = ("append", "replace", "merge", "concat")
KEYS = (
    *("inline_max_bytes", "preview_max_bytes", "store", "select", "output_select", "scope", "ttl"),
    *("compression", "accumulate", "as"),
)
#: Where NoETL keeps results; ours are in the payload store.
STORE_PLACES = ("driver", "bucket", "prefix", "credential")
_STORE_KEYS = ("kind", "scope", "ttl", "compression", *STORE_PLACES)
_ACCUMULATE_KEYS = (
    *("strategy", "merge_path", "manifest_as", "max_items"),
    *("enabled", "on_success", "on_error"),
)


class Selection(msgspec.Struct, frozen=True):
    path: paths.Path
    name: str  # "" puts the value where it was: `a.b` stays `a: {b: …}`
    text: str


class Accumulation(msgspec.Struct, frozen=True):
    """The results of the rounds of one task, put together."""

    strategy: Literal["append", "replace", "merge", "concat"] = "append"
    path: paths.Path = ()  # the part of a result that is taken
    name: str = ""  # under which the whole stands in the result; "" is the result itself
    max_items: int | None = None
    results: bool = True  # of rounds that ended well
    errors: bool = False  # of rounds that failed, as `{status: error, error: …}`


class ResultPolicy(msgspec.Struct, frozen=True, kw_only=True):
    inline_max_bytes: int = INLINE_MAX_BYTES
    preview_max_bytes: int = PREVIEW_MAX_BYTES
    select: tuple[Selection, ...] = ()
    scope: str = "execution"
    ttl_seconds: float | None = None
    compression: Literal["none", "gzip"] = "none"
    keep_inline: bool = False
    #: Whether the definition says what is inline; otherwise the setting of the engine does.
    decides: bool = False
    accumulate: Accumulation | None = None


def read_policy(output: Mapping[str, Any] | None) -> ResultPolicy:
    """The policy as a definition writes it, or an `InputError` that names the key at fault."""
    given = dict(output or {})
    _known(given, KEYS, "output")
    store = _store(given)
    kind = _word(store.get("kind", "auto"), STORES, "output.store.kind")
    packed = _word(store.get("compression", "none"), COMPRESSIONS, "output.store.compression")
    return ResultPolicy(
        inline_max_bytes=_size(given, "inline_max_bytes", INLINE_MAX_BYTES),
        preview_max_bytes=_size(given, "preview_max_bytes", PREVIEW_MAX_BYTES),
        select=_selections(given),
        scope=_word(store.get("scope", "execution"), SCOPES, "output.store.scope"),
        ttl_seconds=_ttl(store.get("ttl")),
        compression="none" if packed == "none" else "gzip",
        keep_inline=kind == "eventlog",
        decides=kind == "eventlog" or given.get("inline_max_bytes") is not None,
        accumulate=_accumulation(given.get("accumulate")),
    )


def _store(given: Mapping[str, Any]) -> dict[str, Any]:
    value = given.get("store")
    fields = {"kind": value} if isinstance(value, str) else _mapping(value, "output.store")
    _known(fields, _STORE_KEYS, "output.store")
    for name in ("scope", "ttl", "compression"):
        if given.get(name) is not None:
            fields.setdefault(name, given[name])
    return {name: value for name, value in fields.items() if value is not None}


def _ttl(value: Any) -> float | None:
    if value is None:
        return None
    try:
        return parse_duration(value) / 1000
    except ValueError as error:
        raise InputError(f"output.store.ttl: {error}") from None


def _selections(given: Mapping[str, Any]) -> tuple[Selection, ...]:
    chosen = [*_listed(given, "select"), *_listed(given, "output_select")]
    return tuple(_selection(each) for each in chosen)


def _selection(each: Any) -> Selection:
    if isinstance(each, str):
        return Selection(paths.parse(each, "output_select"), "", each)
    fields = _mapping(each, "an entry of output.select")
    path, name = fields.get("path"), fields.get("as", "")
    return Selection(paths.parse(path, "path"), _text(name, "output.select.as"), str(path))


def _accumulation(value: Any) -> Accumulation | None:
    if value is None:
        return None
    fields = _mapping(value, "output.accumulate")
    _known(fields, _ACCUMULATE_KEYS, "output.accumulate")
    if not _flag(fields, "enabled", True):
        return None
    errors = _flag(fields, "on_error", False)
    strategy = _word(fields.get("strategy", "append"), STRATEGIES, "output.accumulate.strategy")
    if errors and strategy in ("merge", "replace"):
        raise InputError(f"output.accumulate.on_error does not go with the strategy {strategy}")
    path, most = fields.get("merge_path"), fields.get("max_items")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InputError(f"output.accumulate.max_items must be a number above zero, not {most!r}")
    return Accumulation(
        strategy=strategy,  # type: ignore[arg-type]
        path=() if path is None else paths.parse(path, "output.accumulate.merge_path"),
        name=_text(fields.get("manifest_as") or "", "output.accumulate.manifest_as"),
        max_items=most,
        results=_flag(fields, "on_success", True),
        errors=errors,
    )


# -- small checks ----------------------------------------------------------------------------


def _known(given: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    if unknown := sorted(given.keys() - set(names)):
        raise InputError(f"{what}: '{unknown[0]}' is not known; there are {', '.join(names)}")


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{what} must be a mapping, not {value!r:.40}")
    return dict(value)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{what} must be text, not {value!r:.40}")
    return value


def _listed(given: Mapping[str, Any], name: str) -> list[Any]:
    value = given.get(name)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise InputError(f"output.{name} must be a list, not {value!r:.40}")
    return list(value)


def _flag(given: Mapping[str, Any], name: str, default: bool) -> bool:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InputError(f"output.accumulate.{name} must be true or false, not {value!r:.40}")
    return value


def _size(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"output.{name} must be a number of bytes, not {value!r:.40}")
    return value


def _word(value: Any, known: tuple[str, ...], what: str) -> str:
    if value not in known:
        raise InputError(f"{what} must be one of {', '.join(known)}, not {value!r:.40}")
    return str(value)
