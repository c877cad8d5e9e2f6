"""Context patches: who writes last wins, or a reducer combines old and new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.kernel.values import ContextPatch


def reduce_into(ctx: dict[str, Any], patch: ContextPatch) -> None:
    """Apply a patch that `check_patch` let through."""
    if patch.reducer == "set" or patch.key not in ctx:
        ctx[patch.key] = [patch.value] if patch.reducer == "append" else patch.value
    else:
        ctx[patch.key] = _REDUCERS[patch.reducer](ctx[patch.key], patch.value)


def preview(ctx: Mapping[str, Any], patches: Iterable[ContextPatch]) -> dict[str, Any]:
    """The context as it will be; refuses patches that do not fit."""
    after = dict(ctx)
    for patch in patches:
        check_patch(after, patch)
        reduce_into(after, patch)
    return after


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
