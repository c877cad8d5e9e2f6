"""Context patches: who writes last wins, or a reducer combines old and new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.kernel.values import ContextPatch
from anabranch.literals import Reducer


def reduce_into(ctx: dict[str, Any], patch: ContextPatch) -> None:
    """Apply a patch that `check_patch` let through."""
    if patch.reducer == "set" or patch.key not in ctx:
        ctx[patch.key] = [patch.value] if patch.reducer == "append" else patch.value
    else:
        ctx[patch.key] = _REDUCERS[patch.reducer](ctx[patch.key], patch.value)


def preview(ctx: Mapping[str, Any], patches: Iterable[ContextPatch]) -> dict[str, Any]:
    """The context as it will be; refuses patches that do not fit."""
    after, ours = dict(ctx), set[str]()
    for patch in patches:
        check_patch(after, patch)
        _reduce(after, patch, ours)
    return after


def reduce_all(ctx: dict[str, Any], patches: Iterable[ContextPatch]) -> None:
    """Apply patches that `preview` let through."""
    ours = set[str]()
    for patch in patches:
        _reduce(ctx, patch, ours)


def _reduce(ctx: dict[str, Any], patch: ContextPatch, ours: set[str]) -> None:
    """Many appends to one key copy its list once, at the first: it may be somebody else's."""
    if patch.reducer == "append" and patch.key in ours:
        ctx[patch.key].append(patch.value)
        return
    reduce_into(ctx, patch)
    if patch.reducer == "append":
        ours.add(patch.key)
    else:
        ours.discard(patch.key)


def fold(into: dict[str, Any], key: str, value: Any, reducer: Reducer) -> None:
    """Take what was reduced over a part into what is reduced over the whole."""
    if reducer != "append":
        reduce_into(into, ContextPatch(key, value, reducer))
    elif key in into:
        into[key].extend(value)  # a list of ours: made here, at the first part
    else:
        into[key] = list(value)


def fold_all(
    into: dict[str, Any], parts: Mapping[str, Any], reducers: Mapping[str, Reducer]
) -> None:
    for key, value in parts.items():
        fold(into, key, value, reducers.get(key, "set"))


_OF_NUMBERS = frozenset({"sum", "min", "max"})


def check_fold(into: Mapping[str, Any], key: str, value: Any, reducer: Reducer) -> None:
    """Refuse a part that could not be taken in, before anything is recorded."""
    if type(value) is int and type(into.get(key, 0)) is int and key and reducer in _OF_NUMBERS:
        return  # most loops count
    if reducer != "append":
        check_patch(into, ContextPatch(key, value, reducer))
    elif not isinstance(value, list):
        raise InputError(f"what was appended to {key!r} is no list", code="patch")


def check_patch(ctx: Mapping[str, Any], patch: ContextPatch) -> None:
    """Refuse a patch that could not be applied, before anything is recorded."""
    if not patch.key or not isinstance(patch.key, str):
        raise InputError("a context patch needs a key", code="patch")
    if not _fits(ctx, patch):
        old = ctx.get(patch.key)
        raise InputError(
            f"context key {patch.key!r}: {patch.reducer} cannot combine "
            f"{type(old).__name__} with {type(patch.value).__name__}",
            code="patch",
        )


def _fits(ctx: Mapping[str, Any], patch: ContextPatch) -> bool:
    fresh, old = patch.key not in ctx, ctx.get(patch.key)
    match patch.reducer:
        case "set":
            return True
        case "sum" | "min" | "max":
            return _number(patch.value) and (fresh or _number(old))
        case "append":
            return fresh or isinstance(old, list)
        case "merge":
            return isinstance(patch.value, Mapping) and (fresh or isinstance(old, Mapping))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _append(old: Any, new: Any) -> Any:
    return [*old, new]


def _merge(old: Any, new: Any) -> Any:
    return {**old, **new}


_REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda old, new: old + new,
    "min": lambda old, new: min(old, new),
    "max": lambda old, new: max(old, new),
    "append": _append,
    "merge": _merge,
}
