"""Which run needs which payloads, gathered during a turn and written with its batch.

A value that a run is given or reports may stand for a payload; from then on the run holds it, if it
had a right to it: it was stored in this run or in one that it comes from, or somebody who operates
it has said so. What a worker makes up holds nothing. For how long says the scope in the ref:

    step        until the run has ended
    execution   for the time of retention after that
    workflow    as long as the run is known that this one is a part of (itself, if of none)
    permanent   for ever
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.kernel.state import LATEST_MS, State
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.values.payloads import mentions_ref
from anabranch.runtime.values.read_rights import ReadRights
from anabranch.store.ports import Batch, Hold
from anabranch.work.values.payloads import KIND, PLACE, containers

_encode = msgspec.json.Encoder().encode
_SCOPES = frozenset({"step", "execution", "workflow", "permanent"})
_PLACES = re.compile(PLACE.encode() + rb"([0-9a-f]{64})")
_PLACE = re.compile(PLACE + r"[0-9a-f]{64}")
#: More than are granted in the batches that are not durable yet.
GRANTS_KEPT = 20_000


class PayloadRefs:
    """`rights` says what a run may read; without it every ref is good (nobody works elsewhere)."""

    def __init__(self, retention_ms: int, rights: ReadRights | None = None) -> None:
        self._retention_ms = retention_ms
        self._rights = rights
        self._new: dict[Hold, None] = {}
        self._ended: dict[str, tuple[int, int]] = {}
        self._granted: OrderedDict[tuple[str, str], None] = OrderedDict()  # perhaps not durable yet

    def stored(self, run: str, sha256: str) -> None:
        """A payload is written for a run; what refers to it is recorded a moment later."""
        self._new[Hold(sha256, run, "job")] = None
        self._grant(run, sha256)

    def found(self, live: LiveRun, value: Any) -> bool:
        """Hold what the value stands for, as far as the run may read it; is there anything?"""
        if value is None or not mentions_ref(value):  # on the way of every answer
            return False
        run = live.state.run
        return self._found(live.state, value, lambda sha256: self.entitled(run, sha256))

    def given(self, live: LiveRun, value: Any, before: Sequence[str] = ()) -> bool:
        """The same for what a run begins with, or an operator wrote into it; as far as the runs
        `before` may read it, where it comes from such."""
        if not mentions_ref(value):
            return False
        rights = self._rights
        if not before or rights is None:
            return self._found(live.state, value, lambda _sha256: True)
        free = not rights.lends(live.net) and all(map(rights.free, before))
        return self._found(
            live.state,
            value,
            lambda sha256: free or any(self.entitled(run, sha256) for run in before),
        )

    def begins(self, run: str, value: Any, before: Sequence[str]) -> None:
        """The same before the first event of a run, whose expressions read it at once."""
        if self._rights is None or value is None or not mentions_ref(value):
            return
        for ref in refs_in(value):
            sha256 = _hash_in(ref)
            if not before or any(self.entitled(one, sha256) for one in before):
                self._grant(run, sha256)

    def placed(self, state: State, value: Any) -> None:
        """An operator has named payloads in plain text: the run may read them while it lasts."""
        for sha256 in _PLACES.findall(_encode(value)):
            self._new[Hold(sha256.decode(), state.run, "step")] = None

    def passed_on(self, child: str, parent: str, value: Any) -> None:
        """A child answers its parent: what it stands for becomes the parent's as well."""
        if value is None:
            return
        for found in set(_PLACES.findall(_encode(value))):
            sha256 = found.decode()
            if self.entitled(child, sha256):  # a ref says itself for how long, a plain text cannot
                self._new[Hold(sha256, parent, "step")] = None
                self._grant(parent, sha256)

    def _found(self, state: State, value: Any, entitled: Callable[[str], bool]) -> bool:
        refs = list(refs_in(value))
        for ref in refs:
            if entitled(_hash_in(ref)):
                for hold in _holds(state, ref):
                    self._new[hold] = None
        return bool(refs)

    def entitled(self, run: str, sha256: str) -> bool:
        """Whether the run may read it, also what the batches to come give it."""
        if self._rights is None or (run, sha256) in self._granted:
            return True
        return self._rights.payload(run, sha256)

    def _grant(self, run: str, sha256: str) -> None:
        self._granted[run, sha256] = None
        if len(self._granted) > GRANTS_KEPT:
            self._granted.popitem(last=False)

    def end(self, run: str, at: int) -> None:
        self._ended[run] = (at, at + self._retention_ms)

    def write_to(self, batch: Batch) -> None:
        batch.holds, batch.ended = list(self._new), self._ended
        self._new, self._ended = {}, {}


def refs_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every ref in a value, however deep. Only containers are looked into. Anybody may have written
    one: what names no hash is none."""
    if isinstance(value, Mapping):
        if value.get("kind") == KIND and _PLACE.fullmatch(str(value.get("ref"))):
            yield value
            return
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for each in containers(value):
        yield from refs_in(each)


def _hash_in(ref: Mapping[str, Any]) -> str:
    return str(ref["ref"]).removeprefix(PLACE)


def _holds(state: State, ref: Mapping[str, Any]) -> Iterator[Hold]:
    scope = ref.get("scope")
    known = scope if isinstance(scope, str) and scope in _SCOPES else "execution"
    run, sha256 = state.run, _hash_in(ref)
    if known == "permanent":
        yield Hold(sha256, run, "execution")  # what is everybody's to keep is its own to read
        run = ""
    elif known == "workflow" and state.parent:
        run = state.parent.partition("/")[0]
    yield Hold(sha256, run, known, _until(state.updated_at, ref.get("ttl_seconds")))


def _until(now: int, seconds: Any) -> int:
    """0 is without end. Anybody may have written how long it is kept, and how much that is."""
    if not (isinstance(seconds, int | float) and seconds > 0):
        return 0
    return min(now + int(min(seconds, LATEST_MS) * 1000), LATEST_MS)
