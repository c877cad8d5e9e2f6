"""What happened in a run, in the shapes that pages draw: lanes of a timeline, and gathers.

A timeline reads the log once and then only what is new. A loop is one bar however many items it
has. Of very long runs the last lanes and gathers are kept, and how many are not is said.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any

import msgspec

from anabranch.kernel import events as e
from anabranch.kernel.step_status import ended_word
from anabranch.operations.read.gathers import Gathers
from anabranch.operations.read.paths_taken import Paths
from anabranch.store.damage import events_of
from anabranch.store.ports import Head, Journal, Record

LANES_KEPT = 2000
RUNS_KEPT = 32
ROWS_AT_ONCE = 256


class Segment(msgspec.Struct):
    kind: str  # queued, running, retry, waiting, deciding, sleeping, parked, loop
    start: int
    end: int = 0  # 0: goes on
    note: str = ""
    good: bool = True


class Lane(msgspec.Struct):
    """One step run, or one job of a step that asks several at once."""

    id: str
    step: str
    label: str
    start: int
    end: int = 0
    status: str = "running"
    attempts: int = 0
    by_error: str = ""  # why its outcome is a no although no rule said so
    loop: str = ""
    after: list[str] = []  # the lanes that had to end before it could go on
    segments: list[Segment] = []

    @property
    def is_waiting(self) -> bool:
        """For its join or its admission: others are to move first."""
        return bool(self.segments) and self.segments[-1].kind == "waiting"

    def begin(self, kind: str, at: int, note: str = "") -> None:
        self.close(at)
        self.segments.append(Segment(kind, at, note=note))

    def close(self, at: int, note: str = "", *, good: bool = True) -> None:
        if self.segments and not self.segments[-1].end:
            last = self.segments[-1]
            last.end, last.good = max(at, last.start), good
            last.note = note or last.note


_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode = msgspec.json.Decoder(e.Event).decode
_OF_SHARDS = (b'["loop.shard_', b'["loop.cut')
_OF_JOBS = b'["job.'


def _token_of(event: bytes) -> bytes:
    """The token that a job belongs to: `["job.started","7.0",…` is of token 7."""
    return event.split(b'"', 4)[3].partition(b".")[0]


class Timeline:
    """Everything it knows comes from `see`, event by event in their order."""

    def __init__(self) -> None:
        self.seq = 0
        self.lanes: OrderedDict[str, Lane] = OrderedDict()
        self.dropped = 0
        self.gathers = Gathers()
        self.paths = Paths()
        self._jobs: dict[str, str] = {}  # job → lane
        self._loops: dict[str, str] = {}
        self._gates: dict[str, str] = {}
        self._gathering: dict[str, str] = {}  # open joins and barriers → lane
        self._labels: dict[int, list[str]] = {}  # token → whom its jobs ask
        self._looping: set[bytes] = set()  # tokens whose jobs are shards
        self.lock = Lock()

    def catch_up(self, log: Journal, run: str) -> Timeline:
        """Read what is new; safe from any thread."""
        with self.lock:
            while True:
                rows = log.read(run, self.seq, ROWS_AT_ONCE)
                for row in rows:
                    try:
                        self._read(row)
                    except ValueError:
                        events_of(run, row)  # says which row of which run is damaged
                        raise
                if len(rows) < ROWS_AT_ONCE:
                    return self

    def _read(self, row: Record) -> None:
        """Of a loop with very many shards nearly everything is about these: that is passed over
        before it is even decoded."""
        for raw in _split(row.events)[max(0, self.seq + 1 - row.first_seq) :]:
            text = bytes(raw)
            if not self._of_a_shard(text):
                self.see(row.at, _decode(text))
            self.seq += 1

    def _of_a_shard(self, text: bytes) -> bool:
        if text.startswith(_OF_SHARDS):
            return True
        return text.startswith(_OF_JOBS) and _token_of(text) in self._looping

    def see(self, at: int, event: e.Event) -> None:
        self.gathers.see(at, event)
        self.paths.see(event)
        match event:
            case e.TokenCreated():
                after = [str(event.parent)] if event.parent else []
                self._add(Lane(str(event.token), event.step, event.step, at, after=after))
            case e.Delivered():
                self._delivered(event)
            case e.TokenHeld():
                self._of(event.token, "waiting", at, event.reason or "held by admission")
            case e.TokenSlept():
                self._of(event.token, "sleeping", at, "until its wake time")
            case e.TokenRetriedNow() | e.TokenSkipped():
                self._by_hand(at, event)
            case e.TokenAdmitted() | e.TokenWoken() | e.TokenReleased():
                self._close(event.token, at)
            case e.TokenFinished():
                self._finished(at, event)
            case e.RunFinished():
                for lane in self.lanes.values():
                    if not lane.end:
                        self._end(lane, at, "ended")
            case e.GatherOpened():
                self._gather(at, event)
            case e.GatherSettled():
                self._gathering.pop(event.gather, None)
            case e.LoopOpened():
                self._opened(event)
                self._looping.add(str(event.token).encode())
                size = f"{event.size:,} items" if event.size >= 0 else "items"
                self._of(event.token, "loop", at, size)
            case e.LoopSettled():
                note = event.reason or event.status
                self._settle(self._loops, event.loop, at, note, event.status != "failed")
            case e.GateOpened():
                self._gates[event.gate] = str(event.token)
                self._of(event.token, "deciding", at, event.ask)
            case e.GateDecided():
                said = f"{event.verdict} by {event.actor or 'an unnamed caller'}"
                said += ", overriding the source" if event.override else ""
                self._settle(self._gates, event.gate, at, said, event.verdict == "fulfil")
            case e.GateAskedAgain():
                said = f"asked again by {event.actor or 'an unnamed caller'}"
                self._settle(self._gates, event.gate, at, said, True)
            case _:
                self._job(at, event)

    # -- jobs --------------------------------------------------------------------------------

    def _job(self, at: int, event: e.Event) -> None:
        if isinstance(event, e.JobScheduled):
            self._scheduled(at, event)
            return
        lane = self.lanes.get(self._jobs.get(getattr(event, "job", ""), ""))
        if lane is None:
            return
        match event:
            case e.JobStarted():
                lane.attempts, lane.status = event.attempt, "running"
                lane.begin("running", at, f"attempt {event.attempt} on {event.worker}")
            case e.JobReported():
                fault = event.answer.fault
                note = fault.message if fault is not None else ""
                lane.close(at, note, good=event.answer.status == "ok")
                lane.status, lane.by_error = "running", event.answer.by_error
                self._over(event.job, lane, at, event.answer.status)
            case e.JobRetrying():
                lane.status = "retrying"
                lane.end = 0
                lane.begin("retry", at, f"before attempt {event.attempt}")
            case e.JobParked():
                lane.status = "parked"
                lane.begin("parked", at, event.ticket)
            case e.JobContinued():
                lane.status = "queued"
                lane.begin("queued", at)
            case e.JobTimedOut():
                lane.close(at, "timed out", good=False)
            case e.JobLost():
                lane.close(at, event.reason, good=False)
            case e.JobCancelling():
                lane.begin("waiting", at, f"stopping: {event.reason}")
            case e.JobDischarged():
                lane.close(at)
                self._over(event.job, lane, at, "stopped")
            case _:
                pass

    def _scheduled(self, at: int, event: e.JobScheduled) -> None:
        token = str(event.token)
        if event.job in self._jobs:
            lane = self.lanes.get(self._jobs[event.job])
        elif event.slot < 0:
            self._jobs[event.job] = token
            lane = self.lanes.get(token)
        else:
            labels = self._labels.get(event.token, [])
            label = labels[event.slot] if event.slot < len(labels) else str(event.slot)
            owner = self.lanes.get(token)
            step = owner.step if owner is not None else ""
            lane = Lane(event.job, step, f"{step} → {label}", at)
            self._jobs[event.job] = lane.id
            self._add(lane)
        if lane is not None:
            lane.status = "queued"
            lane.begin("queued", at)

    def _over(self, job: str, lane: Lane, at: int, status: str) -> None:
        """The lane of a slot's job ends with it; that of a step run goes on."""
        if lane.id == job:
            lane.end = at
            lane.status = {"ok": "done", "error": "failed"}.get(status, status)

    # -- tokens ------------------------------------------------------------------------------

    def _gather(self, at: int, event: e.GatherOpened) -> None:
        self._labels[event.token] = list(event.labels)
        if event.kind != "fan":
            self._gathering[event.gather] = str(event.token)
            self._of(event.token, "waiting", at, "for its join")

    def _opened(self, event: e.LoopOpened) -> None:
        self._loops[event.loop] = str(event.token)
        lane = self.lanes.get(str(event.token))
        if lane is not None:
            lane.loop = event.loop

    def _delivered(self, event: e.Delivered) -> None:
        """A join or a barrier goes on when the last of those whom it waits for has come."""
        lane = self.lanes.get(self._gathering.get(event.gather, ""))
        if lane is not None and event.producer in self.lanes and event.producer != lane.id:
            lane.after.append(event.producer)

    def _of(self, token: int, kind: str, at: int, note: str = "") -> None:
        lane = self.lanes.get(str(token))
        if lane is not None:
            lane.begin(kind, at, note)

    def _settle(self, which: dict[str, str], key: str, at: int, note: str, good: bool) -> None:
        """The loop or the gate at which a step run stood is over."""
        lane = self.lanes.get(which.pop(key, ""))
        if lane is not None:
            lane.close(at, note, good=good)

    def _by_hand(self, at: int, event: e.TokenRetriedNow | e.TokenSkipped) -> None:
        """An operator ended what it stood at."""
        lane = self.lanes.get(str(event.token))
        if lane is not None:
            done = "retried now" if isinstance(event, e.TokenRetriedNow) else "skipped"
            lane.close(at, f"{done} by {event.actor or 'an unnamed caller'}")

    def _close(self, token: int, at: int) -> None:
        lane = self.lanes.get(str(token))
        if lane is not None:
            lane.close(at)

    def _finished(self, at: int, event: e.TokenFinished) -> None:
        self._labels.pop(event.token, None)
        self._looping.discard(str(event.token).encode())
        lane = self.lanes.get(str(event.token))
        if lane is not None:
            self._end(lane, at, ended_word(event.ending, event.outcome, lane.by_error))

    @staticmethod
    def _end(lane: Lane, at: int, status: str) -> None:
        lane.close(at)
        lane.end, lane.status = at, status

    def _add(self, lane: Lane) -> None:
        self.lanes[lane.id] = lane
        if len(self.lanes) > LANES_KEPT:
            gone, _ = self.lanes.popitem(last=False)
            self._jobs.pop(f"{gone}.0", None)
            self.dropped += 1

    # -- out ---------------------------------------------------------------------------------

    def critical_path(self) -> list[str]:
        """The step runs that the end of the run waited for, the first one first: from the last to
        end back to whoever it had to wait for longest, as far as their lanes are kept."""
        runs = [one for one in self.lanes.values() if one.id.isdecimal()]
        runs = [one for one in runs if one.status not in ("discarded", "skipped")] or runs
        if not runs:
            return []
        moving = [one for one in runs if not one.end and not one.is_waiting]
        lane: Lane | None = max(moving or runs, key=_ends)
        path: list[str] = []
        while lane is not None and lane.id not in path:
            path.append(lane.id)
            before = [self.lanes[one] for one in lane.after if one in self.lanes]
            lane = max(before, key=_ends, default=None)
        return path[::-1]

    def ways(self) -> list[list[Any]]:
        """From, to, with which outcome, how often: for the picture."""
        with self.lock:
            return [[*way, count] for way, count in self.paths.taken.items()]


def _ends(lane: Lane) -> tuple[bool, int, int]:
    """What goes on ends last."""
    return not lane.end, lane.end, int(lane.id)


class Timelines:
    """Those of the runs that were looked at last; for any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Timeline] = OrderedDict()
        self._lock = Lock()

    def of(self, log: Journal, head: Head) -> Timeline:
        """Up to date. May read a long log: not for the event loop."""
        key = head.run, head.created_at  # a purged run may have given its id to another
        with self._lock:
            timeline = self._kept.setdefault(key, Timeline())
            self._kept.move_to_end(key)
            if len(self._kept) > RUNS_KEPT:
                self._kept.popitem(last=False)
        return timeline.catch_up(log, head.run)
