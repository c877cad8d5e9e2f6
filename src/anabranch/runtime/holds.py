"""Which run needs which payloads, gathered during a turn and written with its batch.

A value that a run is given or reports may stand for a payload; from then on the run holds it. For
how long says the scope in the ref:

    step        until the run has ended
    execution   for the time of retention after that
    workflow    as long as the run is known that this one is a part of (itself, if of none)
    permanent   for ever
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from anabranch.kernel.state import State
from anabranch.store.ports import Batch, Hold
from anabranch.work.payloads import KIND, PLACE

_encode = msgspec.json.Encoder().encode
_MARK = _encode(KIND)
_SCOPES = frozenset({"step", "execution", "workflow", "permanent"})


class Holds:
    def __init__(self, retention_ms: int) -> None:
        self._retention_ms = retention_ms
        self._new: dict[Hold, None] = {}
        self._ended: dict[str, tuple[int, int]] = {}

    def stored(self, run: str, sha256: str) -> None:
        """A payload is written for a run; what refers to it is recorded a moment later."""
        self._new[Hold(sha256, run, "job")] = None

    def found(self, state: State, value: Any) -> bool:
        """Hold whatever the value stands for; is there anything?"""
        if value is None or _MARK not in _encode(value):
            return False  # at the speed of C: this is on the way of every answer
        refs = list(refs_in(value))
        for ref in refs:
            self._new[_hold(state, ref)] = None
        return bool(refs)

    def end(self, run: str, at: int) -> None:
        self._ended[run] = (at, at + self._retention_ms)

    def write_to(self, batch: Batch) -> None:
        batch.holds, batch.ended = list(self._new), self._ended
        self._new, self._ended = {}, {}


def refs_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every ref in a value, however deep. Only containers are looked into."""
    if isinstance(value, Mapping):
        if value.get("kind") == KIND and str(value.get("ref")).startswith(PLACE):
            yield value
            return
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for each in value:
        if isinstance(each, dict | list):
            yield from refs_in(each)


def _hold(state: State, ref: Mapping[str, Any]) -> Hold:
    scope = ref.get("scope")
    known = scope if isinstance(scope, str) and scope in _SCOPES else "execution"
    run = state.run
    if known == "permanent":
        run = ""
    elif known == "workflow" and state.parent:
        run = state.parent.partition("/")[0]
    seconds = ref.get("ttl_seconds")
    limited = isinstance(seconds, int | float) and seconds > 0
    until = state.updated_at + int(seconds * 1000) if limited and seconds is not None else 0
    return Hold(str(ref["ref"]).removeprefix(PLACE), run, known, until)
