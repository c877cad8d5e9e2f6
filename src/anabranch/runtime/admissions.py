"""Runs that wait for a place under a limit: asks the store who begins, and tells them so.

A run is recorded as queued before anybody asks for its places, and has them before it is told. A
crash in between is made good by whoever owns the run next: recovery finds runs that have not asked,
and a look every few seconds finds those that were not told. Both may be done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence

import msgspec

from anabranch.errors import AnabranchError, Refused, StoreError
from anabranch.kernel import stimuli as s
from anabranch.kernel.limits import limits_of
from anabranch.kernel.step import workload_of
from anabranch.kernel.values import KeyLimit
from anabranch.net.net import Net
from anabranch.runtime.core import Core
from anabranch.runtime.effects import LeavePlaces, SeekPlaces
from anabranch.runtime.reactions import admissions_of
from anabranch.store.admission_ports import Admission, AdmissionTurn, SurplusRun
from anabranch.store.outages import UNSURE, passes

LOOK_SECONDS = 5.0
AGAIN_SECONDS = 1.0  # after the store was busy or away
ACTOR = "limit"
FULL = "limit_full"
WAITING_LOOKED_AT = 100  # runs, of those that wait under a key
COMING_MS = 5_000  # so long a start may take that another server makes

log = logging.getLogger("anabranch.limits")


class Asking(msgspec.Struct):
    """What to ask the store next."""

    asked: list[Admission] = []
    ended: list[str] = []
    keys: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.asked or self.ended or self.keys)


class RunAdmissions:
    """`note` takes what has happened; `asking`, `decide` and `tell` follow it up, in this order."""

    def __init__(self, core: Core, now: Callable[[], int], wake: Callable[[], None]) -> None:
        self._core = core
        self._store = core.store
        self._now = now
        self._wake = wake
        self._next = Asking()
        self._noted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._looked_at = 0
        self._waiting = 0  # runs, when it was looked last
        self._admitted = 0
        #: Key → runs that found room under it, and when.
        self._coming: dict[str, dict[str, int]] = {}
        self._coming_lock = threading.Lock()
        registry = core.engine_metrics.registry
        registry.gauge(
            "anabranch_runs_queued",
            "runs that wait for a place under a limit, in the whole store",
            lambda: self._waiting,
        )
        registry.gauge(
            "anabranch_runs_admitted_total",
            "runs that this engine has found a place for",
            lambda: self._admitted,
            kind="counter",
        )
        self.only: set[str] | None = None  # an engine for some runs admits no others

    # -- one after the other -----------------------------------------------------------------

    def note(self, effect: SeekPlaces | LeavePlaces) -> None:
        """A run is durably queued, or its end is durable."""
        match effect:
            case SeekPlaces():
                self._next.asked += effect.asked
                if self.only is not None:  # whoever is begun here is looked after here
                    self.only.add(effect.run)
            case LeavePlaces():
                self._next.ended.append(effect.run)
                self._next.keys += effect.keys
        self._noted.set()

    def asking(self) -> Asking:
        """What was noted since the last time, with queued runs that recovery has found."""
        found, self._core.found_queued = self._core.found_queued, []
        if found:
            known = self._store.admissions_known(found)
            for run in (run for run in found if run not in known):
                self._next.asked += self._asked_by(run)
        asking, self._next = self._next, Asking()
        return asking

    def _asked_by(self, run: str) -> Sequence[Admission]:
        try:
            state = self._core.run(run).state
        except AnabranchError:  # set aside, or another server's by now
            return ()
        return admissions_of(state) if state.queued_for_place else ()

    def decide(self, asking: Asking, *, look: bool = False) -> AdmissionTurn:
        """In any thread: which runs begin, and for which there is no place. With `look` also under
        every key that runs wait for, and those that were admitted and not told."""
        keys = [*asking.keys]
        if look:
            found = self._store.limited_keys()
            self._waiting = sum(one.waiting for one in found)
            keys += [one.key for one in found if one.waiting]
        turn = AdmissionTurn()
        if asking or keys:
            turn = self._store.admit(
                keys, self._now(), asked=asking.asked, ended=asking.ended, only=self.only
            )
        if self._coming:
            self._has_come(asking)
        if not look:
            return turn
        untold = self._store.admitted_and_queued()
        mine = [run for run in untold if self.only is None or run in self.only]
        return AdmissionTurn([*dict.fromkeys([*turn.admitted, *mine])], turn.surplus)

    def tell(self, turn: AdmissionTurn) -> None:
        """Whoever owns these runs hears of it; to hear of it twice changes nothing."""
        self._admitted += len(turn.admitted)
        for run in turn.admitted:
            self._core.offer(run, s.Admit())
        for one in turn.surplus:
            if self.only is None or one.run in self.only:
                self._core.offer(one.run, s.Cancel(ACTOR, reason_of(one)))
        if turn.admitted or turn.surplus:
            self._wake()

    # -- by itself ---------------------------------------------------------------------------

    def start(self, only: Collection[str] | None) -> None:
        self._closing = False
        self.only = None if only is None else set(only)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        self._closing = True  # before Python 3.12 a wake-up at the same moment hides a cancellation
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _run(self) -> None:
        while not self._closing:
            wait = LOOK_SECONDS
            asking = Asking()
            try:
                self._noted.clear()
                asking = self.asking()
                look = self._now() - self._looked_at >= LOOK_SECONDS * 1000
                self.tell(await asyncio.to_thread(self.decide, asking, look=look))
                self._looked_at = self._now() if look else self._looked_at
            except StoreError as error:  # it is asked again: to ask twice changes nothing
                log.warning("limits: %s", error.message)
                self._put_back(asking if passes(error) else await self._fit_of(asking))
                wait = AGAIN_SECONDS
            except Exception:  # a defect of ours must not end all limits for good
                log.exception("limits: a look failed")
                self._put_back(asking)
                wait = AGAIN_SECONDS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._noted.wait(), wait)

    async def _fit_of(self, asking: Asking) -> Asking:
        """What the store takes by itself. It would refuse the rest again and again, and everything
        that is asked together with it: such a run waits for a place that there cannot be."""
        fit = Asking()
        for one in asking.asked:
            if await self._is_fit(Asking([one])):
                fit.asked.append(one)
            else:
                reason = f"the store cannot keep its place under {one.key[:100]!r}"
                self._core.offer(one.run, s.Cancel(ACTOR, reason))
                self._wake()
        fit.ended += [run for run in asking.ended if await self._is_fit(Asking(ended=[run]))]
        fit.keys += [key for key in asking.keys if await self._is_fit(Asking(keys=[key]))]
        return fit

    async def _is_fit(self, asking: Asking) -> bool:
        try:
            self.tell(await asyncio.to_thread(self.decide, asking))
        except StoreError as error:
            return passes(error)
        return True

    def _put_back(self, asking: Asking) -> None:
        later = self._next
        self._next = Asking(
            asking.asked + later.asked, asking.ended + later.ended, asking.keys + later.keys
        )

    # -- before a run is recorded ------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def room_for(self, net: Net, start: s.Start) -> AsyncIterator[None]:
        """Around a start: one that is refused leaves free the room that it had found."""
        if net.limits:
            await asyncio.to_thread(self._require_room, net, start)
        try:
            yield
        except AnabranchError as error:
            if net.limits and error.code != UNSURE:
                self._comes_not(start.run)
            raise

    def _require_room(self, net: Net, start: s.Start) -> None:
        """In any thread: refuse a run that would not wait. Room that one has found here is its own
        until the store knows of it. Where another server is faster, it is recorded, and cancelled
        at once."""
        limits = limits_of(net, start, workload_of(net, start))
        rejecting = [one for one in limits if one.when_full == "reject"]
        with self._coming_lock:
            for one in rejecting:
                self._require_room_under(one)
            for one in rejecting:
                self._coming.setdefault(one.key, {})[start.run] = self._now()

    def _require_room_under(self, one: KeyLimit) -> None:
        there = self._taking(one)
        coming = self._coming.get(one.key, {})
        there += [run for run in coming if run not in there and self._still_comes(run, coming[run])]
        if len(there) >= one.limit:
            runs = f"{one.limit} run{'s' if one.limit > 1 else ''}"
            message = f"{one.key} is full: {runs} at once; {there[0]} is under way"
            raise Refused(message, code=FULL)

    def _taking(self, one: KeyLimit) -> list[str]:
        """Who has the places under this key, and who takes the next: of those that wait only the
        ones that find a place under each of their other keys."""
        found = self._store.admissions(one.key, one.limit + WAITING_LOOKED_AT)
        return [
            each.run
            for each in found
            if each.admitted_at is not None or self._waits_only_under(one.key, each.run)
        ]

    def _waits_only_under(self, key: str, run: str) -> bool:
        others = [place for place in self._store.places(run) if place.admission.key != key]
        return all(place.holding < place.admission.limit for place in others)

    def _still_comes(self, run: str, since: int) -> bool:
        """Not one that another server has begun, and that is over."""
        if run in self._core.live:
            return True
        if self._now() - since >= COMING_MS:
            return False
        head = self._store.head(run)
        return head is None or not head.finished

    def _comes_not(self, run: str) -> None:
        if run in self._core.live:
            return  # another call has begun it
        with self._coming_lock:
            for coming in self._coming.values():
                coming.pop(run, None)

    def _has_come(self, asking: Asking) -> None:
        """The store knows of these runs, or they are over."""
        over = {*asking.ended, *(one.run for one in asking.asked)}
        with self._coming_lock:
            for key, coming in list(self._coming.items()):
                for run in over & coming.keys():
                    del coming[run]
                if not coming:
                    del self._coming[key]


def reason_of(one: SurplusRun) -> str:
    if one.for_run:
        return f"run {one.for_run} takes its place: {one.key} has {one.limit}"
    return f"{one.key} is full: {one.limit} at once"
