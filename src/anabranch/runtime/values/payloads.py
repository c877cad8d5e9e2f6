"""Large results travel as refs.

A result above the limit is kept by its hash beside the log, and what goes into the log and the
context is a small stand-in: where it is, how big, a preview, and the small fields of a mapping.
Whatever reads it, work or expression, gets the whole value back (`runtime.stored_values` does that
for the expressions of the kernel).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import is_not
from typing import Any

import msgspec

from anabranch.errors import AnabranchError
from anabranch.kernel import stimuli as s
from anabranch.kernel.evolve_loops import MANIFEST
from anabranch.kernel.tracker import in_order
from anabranch.kernel.values import ContextPatch
from anabranch.runtime.values.loading import READ_BYTES_MAX, Fetch, Load, Loader, charge_parts
from anabranch.work.values.payloads import (
    KIND,
    PLACE,
    REF,
    encoded,
    hash_of,
    holds_ref,
    is_ref,
)
from anabranch.work.values.results import ResultPolicy, seen_by_tasks, stand_in

_POLICY = ResultPolicy()  # of results for which nobody has said anything
_encode = msgspec.json.Encoder().encode
_MARK = _encode(KIND)


class TooLarge(AnabranchError):
    """A result that is too large even for the payload store."""


class Light(msgspec.Struct, frozen=True, gc=False):
    """A result fit to travel, and the payload that is to be stored for it."""

    result: Any
    sha256: str = ""  # nothing was put aside
    content: bytes = b""


def lighten(result: Any, inline_max: int, result_max: int | None = None) -> Light:
    """The result, or its stand-in when it is larger than `inline_max`.

    Raises `TooLarge` when it is larger than `result_max`, and what the encoder raises for values
    that are not JSON.
    """
    if result is None or isinstance(result, bool | int | float):
        return Light(result)
    content = encoded(result)
    if len(content) <= inline_max:
        return Light(result)
    if result_max is not None and len(content) > result_max:
        raise TooLarge(
            f"the result has {len(content):,} bytes, over the limit of "
            f"{result_max:,} (setting ANABRANCH_RESULT_BYTES_MAX)"
        )
    return Light(stand_in(_POLICY, result, content, content), hash_of(content), content)


def may_exceed(value: Any, limit: int) -> bool:
    """Whether the JSON of a value may be longer than this; a small value is not walked through
    twice, a large one not to its end."""
    return _size(value, limit // 2) > limit // 2


def _size(value: Any, enough: int) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else 3 * len(value)
    size = 8
    if isinstance(value, Mapping):
        for key, each in value.items():
            size += len(key) + _size(each, enough - size)
            if size > enough:
                break
    elif isinstance(value, list | tuple):
        for each in value:
            size += _size(each, enough - size)
            if size > enough:
                break
    return size


def mentions_ref(value: Any) -> bool:
    """May there be a ref anywhere in it? At the speed of C: every answer on its way is asked."""
    return _MARK in _encode(value)


def resolve(value: Any, fetch: Fetch) -> Any:
    """The value with every stand-in in it replaced by what it stands for."""
    return resolved(value, Loader(fetch))


def resolved(value: Any, load: Load) -> Any:
    """The same, by whoever loads them; a value without stand-ins is given as it is. Every look is
    charged: a template can look at one value any number of times."""
    if isinstance(value, list):
        charge_parts(len(value))
        if not any(map(_has_parts, value)):
            return value
        items = [resolved(each, load) for each in value]
        return items if any(map(is_not, items, value)) else value
    if not isinstance(value, Mapping):
        return value
    charge_parts(len(value))
    if not is_ref(value):
        whole = {
            key: resolved(each, load) if _has_parts(each) else each for key, each in value.items()
        }
        if not any(whole[key] is not each for key, each in value.items()):
            return value
        return _with_results(whole) if MANIFEST in whole else whole
    ref = value[REF]
    loaded = load(str(ref["ref"]).removeprefix(PLACE), _said(ref))
    if isinstance(loaded, Mapping):
        charge_parts(len(loaded))
    return seen_by_tasks(loaded, value)


def _has_parts(value: Any) -> bool:
    return isinstance(value, dict | list)


def _said(ref: Mapping[str, Any]) -> int:
    """How large it is, as it says itself: anybody may have written that."""
    size = ref.get("bytes")
    return min(max(size, 0), READ_BYTES_MAX) if type(size) is int else 0


def _with_results(whole: dict[str, Any]) -> dict[str, Any]:
    """A loop whose results were too large to travel gives them as any other loop does."""
    manifest = whole.pop(MANIFEST)
    parts = [(part["first"], part["part"]) for part in manifest["parts"]]
    return {"results": in_order(parts, manifest.get("items", 0)), **whole}


def brings_ref(stimulus: s.Stimulus) -> bool:
    """Does what arrives hold the first stand-in of a run? Asked before it takes effect."""
    if type(stimulus) is s.JobReport:  # most of them
        result, patches = stimulus.answer.result, stimulus.answer.patches
        if result is not None and mentions_ref(result) and holds_ref(result):
            return True
        return bool(patches) and _in_patches(patches)
    match stimulus:
        case s.PatchContext():
            return _in_patches(stimulus.patches)
        case s.Start():
            return bool(stimulus.reuse) or _brings_ref(stimulus.input)
        case s.Wake():
            return _brings_ref(stimulus.payload)
        case s.Skip():
            return _brings_ref(stimulus.result)
        case _:
            return False


def _brings_ref(value: Any) -> bool:
    """A value without any is not gone through."""
    return mentions_ref(value) and holds_ref(value)


def _in_patches(patches: Sequence[ContextPatch]) -> bool:
    return any(_brings_ref(patch.value) for patch in patches)


class Resolved(Mapping[str, Any]):
    """A mapping whose values are resolved when they are looked at.

    What stood for a larger value still answers to `_ref`, `_preview` and their companions."""

    def __init__(self, values: Mapping[str, Any], load: Load) -> None:
        self._values = values
        self._load = load

    def __getitem__(self, key: str) -> Any:
        return resolved(self._values[key], self._load)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values
