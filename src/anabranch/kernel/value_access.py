"""How a turn reads values that are kept beside the log, and has large ones kept there.

A large value is recorded as a *stand-in*: where the value is, and a preview. Its size must not
change what a definition means, so an expression never meets one: what it reads is the value.
Nor is a large value recorded inline only because an expression made it.

The kernel knows neither sizes nor places. The runtime brings a `ValueAccess`; fetching by content
hash gives the same value for ever, so deciding stays a function of what was recorded. `INLINE`
keeps everything in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from anabranch.kernel.reducers import check_patch, reduce_into
from anabranch.kernel.values import ContextPatch


class ValueAccess(Protocol):
    @property
    def lazy(self) -> bool:
        """Whether any value of the run may stand for a larger one; `view` is for these runs."""
        ...

    def view(self, values: Mapping[str, Any], /) -> Mapping[str, Any]:
        """The same mapping, with whole values; each is fetched when it is looked at."""
        ...

    def whole(self, value: Any, /) -> Any:
        """The value with every stand-in in it replaced by what it stands for."""
        ...

    def stands_in(self, value: Any, /) -> bool:
        """Is this, as a whole, the stand-in for a larger value?"""
        ...

    def fit(self, value: Any, /) -> Any:
        """The value as it is recorded: itself, or its stand-in where it is too large."""
        ...

    def fit_fields(self, values: Mapping[str, Any], /) -> Mapping[str, Any]:
        """The same for a mapping whose keys are read one by one: it stays a mapping."""
        ...


class Inline:
    """Every value is in the log, whatever its size."""

    lazy = False

    def view(self, values: Mapping[str, Any], /) -> Mapping[str, Any]:
        return values

    def whole(self, value: Any, /) -> Any:
        return value

    def stands_in(self, value: Any, /) -> bool:  # noqa: ARG002
        return False

    def fit(self, value: Any, /) -> Any:
        return value

    def fit_fields(self, values: Mapping[str, Any], /) -> Mapping[str, Any]:
        return values


INLINE = Inline()


def fit_patches(
    ctx: Mapping[str, Any], patches: Iterable[ContextPatch], values: ValueAccess
) -> tuple[ContextPatch, ...]:
    """The patches as they are recorded.

    A stand-in cannot be combined with anything when a log is replayed, so what a reducer makes of
    one is worked out now and recorded as what the key is set to.
    """
    fitted: list[ContextPatch] = []
    changed: dict[str, Any] = {}  # keys that these patches have set
    for patch in patches:
        old = changed[patch.key] if patch.key in changed else ctx.get(patch.key)
        if _combines_stand_in(old, patch, values):
            made = ContextPatch(patch.key, values.fit(_combined(old, patch, values)))
        elif patch.reducer == "merge" and isinstance(patch.value, Mapping):
            made = ContextPatch(patch.key, values.fit_fields(patch.value), patch.reducer)
        else:
            made = ContextPatch(patch.key, values.fit(patch.value), patch.reducer)
        if made.reducer == "set":
            changed[made.key] = made.value
        fitted.append(made)
    return tuple(fitted)


def _combines_stand_in(old: Any, patch: ContextPatch, values: ValueAccess) -> bool:
    if patch.reducer == "merge":
        return values.stands_in(old) or values.stands_in(patch.value)
    return patch.reducer == "append" and values.stands_in(old)


def _combined(old: Any, patch: ContextPatch, values: ValueAccess) -> Any:
    before = {} if old is None else {patch.key: values.whole(old)}
    whole = ContextPatch(patch.key, values.whole(patch.value), patch.reducer)
    check_patch(before, whole)
    reduce_into(before, whole)
    return before[patch.key]
