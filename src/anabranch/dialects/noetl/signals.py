"""What the filter of a wait sees: the names of a guard, the signal, and what the job knew.

The kernel evaluates a filter long after the work has parked. Of the item of a loop and of the
pipeline it has only what was put down then: `Seen` says which of it the filter names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.dialects.noetl.names import IDENTITY, Names
from anabranch.dialects.noetl.outcomes import EMPTY, Given
from anabranch.expressions.jinja.jinja import Derived, Jinja, ValueTemplate
from anabranch.expressions.port import Expression, Paths

SIGNAL = "signal"
_ITEM = frozenset({"iter", "vars", "step"})
_LAST = frozenset({"_prev", "output", "result", "response"})
_PLACE = frozenset({"loop", "loop_index"})


class SignalNames(Names):
    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        return self._given[SIGNAL] if key == SIGNAL else super().__getitem__(key)


def signal_view(names: Given) -> Given:
    if type(names) is SignalNames:
        return names
    return SignalNames(names._given if isinstance(names, Names) else names)


class Seen(Derived):
    """What a filter names of the item and the pipeline around its task, at the time of the wait."""

    __slots__ = ("_paths",)

    def __init__(self, inner: ValueTemplate, paths: Paths) -> None:
        super().__init__(inner)
        self._paths = paths

    @property
    def reads(self) -> Paths:
        return frozenset(path for path in self._paths if path[0] != SIGNAL)

    def derived(self, value: Any, names: Mapping[str, Any]) -> Any:  # noqa: ARG002 - of the inner
        given: Given = names._given if isinstance(names, Names) else names
        local: Given = given.get("local") or EMPTY
        own: Given = local.get("iter") or EMPTY
        results: Given = local.get("results") or EMPTY
        seen: dict[str, Any] = {}
        for root, *rest in self._paths:
            if root in _LAST:
                seen["prev"] = local.get("prev")
            elif root == "results":
                seen.setdefault("results", {}).update(_some(results, rest))
            elif root in results and root not in own:
                seen.setdefault("results", {})[root] = results[root]
            else:
                found = _of_item(own, root, rest)
                if found:
                    seen.setdefault("iter", {}).update(found)
        return seen


def _of_item(own: Given, root: str, rest: list[str]) -> dict[str, Any]:
    if root in _ITEM:
        found = _some(own, rest)
    elif root in _PLACE:
        found = _some(own, ["index"]) | _some(own, ["_first"])
    elif root == "args":
        found = _some(own, rest) if rest and rest[0] in IDENTITY else {}
    else:
        found = _some(own, [root])
    if "shard_id" in own and found.keys() & set(IDENTITY):  # they are read together
        found |= {name: own[name] for name in IDENTITY}
    return found


def _some(values: Given, path: list[str]) -> dict[str, Any]:
    """What is under the first part of the path, or all of it."""
    if not path:
        return dict(values)
    return {path[0]: values[path[0]]} if path[0] in values else {}


def seen_by(condition: Expression) -> Seen | None:
    """What the condition may see of the job; None where it names nothing but the signal."""
    paths: Paths = getattr(condition, "reads", None) or frozenset()
    if all(path[0] == SIGNAL for path in paths):
        return None
    inner = Jinja(signal_view).value("{{ none }}")
    assert isinstance(inner, ValueTemplate), "it is a template"
    return Seen(inner, paths)
