"""What a run may read of what the store keeps: payloads by their hash, the results of loops.

A worker writes what it likes into results, progress and context, so nothing that a value of the run
says gives a right. A right comes from the record:

    held     the payload was stored in this run, or in one that it descends from
    family   the loop is of this run, of one that it descends from, or of a child of it
    named    the definition, or the input that somebody started the run with, names it

The input of a run that another run has started counts as far as that one could read. Runs whose
definition, and that of every run before them, hands nothing to workers and begins no child (which
may) are free: all their values come from this engine.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, NotFound, Refused, StoreError
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.net.net import Net
from anabranch.net.reads import expressions_in, texts_in
from anabranch.runtime.nets import Nets
from anabranch.runtime.outage import waited_out
from anabranch.store.outages import passes
from anabranch.store.ports import Store
from anabranch.work.kinds.child import child_tasks
from anabranch.work.loops.results import Loops, run_of
from anabranch.work.run_at_work import run_at_work
from anabranch.work.values.payloads import StoredPayloads

DESCENT_MAX = 100  # how many runs back a descent is followed
STARTS_KEPT = 1000
ANY_POOL = "*"  # one that nobody names: outside, unless this engine does the work of all

_encode = msgspec.json.Encoder(enc_hook=str).encode
_LETTER = r"[0-9A-Za-z_./-]"  # what could be part of a longer name
Right = Callable[[str, str], bool]  # run, what it wants to read


class ReadRights:
    """One per engine. `outside` says whether the jobs of a pool are for workers elsewhere."""

    def __init__(self, store: Store, nets: Nets, outside: Callable[[str], bool]) -> None:
        self._store = store
        self._nets = nets
        self._outside = outside
        #: Several servers share the store, which may be away; work waits for it then.
        self.shared = getattr(store, "cluster", None) is not None
        self._starts: OrderedDict[str, e.RunStarted] = OrderedDict()
        self._lends: dict[str, bool] = {}  # fingerprint → workers may have a hand in its values

    # -- what work in this process asks ------------------------------------------------------

    def fetch(self, run: str) -> Callable[[str], bytes | None]:
        """How the payloads that values of the run stand for are fetched."""
        return partial(self.content, run)

    def content(self, run: str, sha256: str) -> bytes | None:
        """The payload, where the run may read it."""
        return self._store.payload(sha256) if self.payload(run, sha256) else None

    def payload(self, run: str, sha256: str) -> bool:
        return self.free(run) or self.strictly_payload(run, sha256)

    def loop(self, run: str, ref: str) -> bool:
        return self.free(run) or self.strictly_loop(run, ref)

    def free(self, run: str) -> bool:
        """No worker has a hand in it: everything in its values comes from this engine."""
        return not any(self._hands_out(one) for one in self.descent(run))

    def lends(self, net: Net) -> bool:
        """Whether a step of this net is done by workers, or begins a child that may have such."""
        known = self._lends.get(net.fingerprint)
        if known is None:
            works = [step.work for step in net.steps.values() if step.work is not None]
            known = any(self._outside(work.pool) for work in works)
            known = known or (self._outside(ANY_POOL) and any(any(child_tasks(w)) for w in works))
            if len(self._lends) >= STARTS_KEPT:
                self._lends.clear()  # it is soon found out again
            self._lends[net.fingerprint] = known
        return known

    # -- what workers ask --------------------------------------------------------------------

    def strictly_payload(self, run: str, sha256: str) -> bool:
        if self._store.holds_payload(sha256, self.descent(run)):
            return True
        return self.named(run, sha256, self.strictly_payload)

    def strictly_loop(self, run: str, ref: str) -> bool:
        other = run_of(ref)
        if not other:
            return False
        own = self.descent(run)
        if other in own or not {run, *self._origins(run)}.isdisjoint(self.descent(other)):
            return True
        return self.named(run, ref, self.strictly_loop)

    def named(self, run: str, text: str, before: Right | None = None) -> bool:
        """Whether the definition or the input of the run names this. `before` says whether the run
        that started it had the right itself."""
        start = self._start(run)
        if start is None:
            return False
        definition = self._store.definition(start.definition)
        whole = re.compile(rf"(?<!{_LETTER}){re.escape(text)}(?!{_LETTER})")
        if definition is not None and whole.search(definition.source):
            return True
        if not whole.search(_encode(start.workload).decode()):
            return False
        starter = self.starter(run)
        if not starter:
            return True
        return before(starter, text) if before is not None else self.named(starter, text)

    def wrote(self, run: str, text: str) -> bool:
        """Whether people wrote exactly this as a value, in the definition or in the input."""
        start = self._start(run)
        if start is None:
            return False
        net = self._nets.get(start.definition)
        if text in texts_in([*expressions_in(net), net.workload]):
            return True
        if text not in texts_in(start.workload):
            return False
        starter = self.starter(run)
        return not starter or self.wrote(starter, text)

    # -- descent -----------------------------------------------------------------------------

    def descent(self, run: str) -> list[str]:
        """The run, those that it goes on from, and those that started it."""
        found = {run: None}
        for one in found_so_far(found):
            start = self._start(one)
            if start is not None:
                found.update(dict.fromkeys(before(start)))
        return list(found)

    def _origins(self, run: str) -> Iterable[str]:
        for _ in range(DESCENT_MAX):
            start = self._start(run)
            if start is None or start.origin is None:
                return
            run = start.origin
            yield run

    def starter(self, run: str) -> str:
        """The run that has started this one, or the one that it goes on from; "" for somebody."""
        for one in (run, *self._origins(run)):
            start = self._start(one)
            if start is not None and (start.parent or start.begun_by):
                return start.begun_by or str(start.parent).partition("/")[0]
        return ""

    def require_begun_by(self, starter: str, run: str) -> None:
        """Whoever may choose ids could have been there before: what such a run comes to is no
        answer to a task."""
        start = self._start(run)
        if starter and start is not None and starter not in before(start):
            said = f"run {run} is there already, and run {starter} did not begin it"
            raise Refused(said, code="run_exists")

    def _hands_out(self, run: str) -> bool:
        start = self._start(run)
        if start is None:  # purged: nobody knows who had a hand in it
            return True
        try:
            return self.lends(self._nets.get(start.definition))
        except AnabranchError as error:
            if isinstance(error, StoreError) and passes(error):
                raise
            return True  # nor what a definition does that cannot be compiled any more

    def _start(self, run: str) -> e.RunStarted | None:
        """How the run began: the first event of its log, which never changes."""
        known = self._starts.get(run)
        if known is not None:
            return known
        for row in self._store.read(run, 0, 1):
            for event in e.decode_events(row.events):
                if isinstance(event, e.RunStarted):
                    self._starts[run] = event
                    while len(self._starts) > STARTS_KEPT:
                        self._starts.popitem(last=False)
                    return event
        return None


def before(start: e.RunStarted | s.Start) -> list[str]:
    """The runs that one which begins like this comes from."""
    parent = (start.parent or "").partition("/")[0]
    return [one for one in (start.origin or "", parent, start.begun_by) if one]


def found_so_far(found: dict[str, None]) -> Iterable[str]:
    """Each of them, those included that are added meanwhile."""
    at = 0
    while at < min(len(found), DESCENT_MAX):
        yield list(found)[at]
        at += 1


class RunPayloads(StoredPayloads):
    """Payloads as the work for a run may read them; whoever works for none may read all."""

    def __init__(self, store: Store, rights: ReadRights) -> None:
        super().__init__(store, aside=True)
        self._rights = rights

    async def get(self, sha256: str) -> bytes | None:
        if self._rights.shared:
            return await waited_out(partial(self._get, sha256))
        return await self._get(sha256)

    async def _get(self, sha256: str) -> bytes | None:
        run = run_at_work.get()
        if run and not self._rights.payload(run, sha256):
            return None
        return await super().get(sha256)

    async def put(self, content: bytes, run: str = "", scope: str = "job") -> str:
        if self._rights.shared:
            return await waited_out(partial(super().put, content, run, scope))
        return await super().put(content, run, scope)


class RunLoops:
    """The results of loops, likewise."""

    def __init__(self, loops: Loops, rights: ReadRights) -> None:
        self._loops = loops
        self._rights = rights

    async def size(self, ref: str) -> int:
        if self._rights.shared:
            return await waited_out(partial(self._size, ref))
        return await self._size(ref)

    async def results(self, ref: str, first: int, stop: int, bytes_max: int | None) -> list[Any]:
        if self._rights.shared:
            return await waited_out(partial(self._results, ref, first, stop, bytes_max))
        return await self._results(ref, first, stop, bytes_max)

    async def _size(self, ref: str) -> int:
        self._check(ref)
        return await self._loops.size(ref)

    async def _results(self, ref: str, first: int, stop: int, bytes_max: int | None) -> list[Any]:
        self._check(ref)
        return await self._loops.results(ref, first, stop, bytes_max)

    def _check(self, ref: str) -> None:
        run = run_at_work.get()
        if run and run_of(ref) and not self._rights.loop(run, ref):
            raise NotFound(f"run {run} knows of no loop {ref:.200}", code="no_loop")
