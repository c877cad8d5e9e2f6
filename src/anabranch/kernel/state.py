"""The state of one run: what the events so far add up to.

Only `kernel.evolve` changes it. Finished tokens and discharged jobs leave it, so its size follows
what is unfinished (plus one status per step run), not what has happened.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from functools import cache
from threading import Lock
from typing import Any, Literal

import msgspec

from anabranch.kernel.empty import EMPTY
from anabranch.kernel.provenance import Provenance
from anabranch.kernel.tracker import Tracker
from anabranch.kernel.values import Answer, Ending, Fault, KeyLimit, Wait
from anabranch.net.net import GatherRule

ROOT_SCOPE = 0

TokenPhase = Literal["new", "held", "queued", "joining", "sleeping", "ready", "running", "deciding"]
JobPhase = Literal["scheduled", "running", "parked", "backoff", "answered", "cancelling"]


class Token(msgspec.Struct, gc=False):
    id: int
    step: str
    parent: int
    scope: int
    ordinal: int  # this is the n-th run of its step, from 0
    via: str
    args: Mapping[str, Any]
    payload: Mapping[str, Any]
    since: int  # when it entered its phase
    phase: TokenPhase = "new"
    wake: int = 0
    until: int = 0  # step timeout
    doomed: bool = False
    reason: str = ""  # why it is held or doomed
    gather: str = ""  # the open gather it waits for
    loop: str = ""  # the loop it runs
    fanin: dict[str, Any] | None = None  # what its loop came to
    jobs: int = 0  # its jobs that are not over
    attempt: int = 0  # the last attempt of its one job
    round: int = 0  # of a fan that asked everybody again: how often,
    asked: tuple[Any, ...] = ()  # and whom the last time
    admitted: bool = False
    decided: bool = False
    answers_itself: bool = False  # the decision is its answer: there was no work
    answer: Answer | None = None  # what its work came to
    source_asked: int = 0  # how often its decision source has been asked again
    hurries: bool = False  # `until` is shortly before the deadline of the run
    failures: int = 0  # tries of its work in earlier rounds that failed or were not accepted;
    timeouts: int = 0  # those of them that took too long


class Job(msgspec.Struct, gc=False):
    id: str
    token: int
    slot: int  # -1 for the one job of a plain step
    step: str
    attempt: int
    since: int
    phase: JobPhase = "scheduled"
    gather: str = ""  # the fan it fills a slot of
    failures: int = 0  # attempts that failed or took too long;
    timeouts: int = 0  # those of them that took too long
    losses: int = 0
    worker: str = ""
    lease: int = 0
    until: int = 0
    due: int = 0
    ticket: str = ""
    reason: str = ""
    answer: Answer | None = None
    memory: Any = None  # parked in the middle of its work: where that stood
    heard: Answer | None = None  # what it waited for there
    progress: Any = None  # how far it is; whoever does it again after a loss is told
    holder: str = ""  # the access token under which its worker claimed it
    postponed: int = 0  # how often it was put off because what it needs was away,
    postponed_ms: int = 0  # and how long that was in all, with the attempts that found it so
    workers_lost: int = 0  # those of its losses that were the end of a worker
    wait: Wait | None = None  # parked: what it waits for, where nobody outside is asked
    losses_in_place: int = 0  # since it was last heard to be further


class Delivery(msgspec.Struct, array_like=True, gc=False):
    slot: int
    producer: str
    order: int  # arrival
    outcome: str
    score: float | None
    value: Any


class FreeSlots:
    """The unfilled slots of a join or barrier, found without a search by who may fill them.

    Slots of one label and one `when` fill from the first to the last, so a list whose end is the
    next one to fill is enough.
    """

    __slots__ = ("_slots", "of_label")

    def __init__(self, gather: Gather) -> None:
        self._slots: dict[tuple[str, str], list[int]] = {}
        self.of_label: dict[str, int] = {}
        for slot in range(len(gather.labels) - 1, -1, -1):
            if slot not in gather.filled and slot not in gather.lost:
                label = gather.labels[slot]
                self._slots.setdefault((label, gather.when(slot)), []).append(slot)
                self.of_label[label] = self.of_label.get(label, 0) + 1

    def first(self, label: str, when: str) -> int | None:
        slots = self._slots.get((label, when))
        return slots[-1] if slots else None

    def fill_first(self, label: str, when: str) -> None:
        self._slots[label, when].pop()
        self.of_label[label] -= 1
        if not self.of_label[label]:
            del self.of_label[label]


class Gather(msgspec.Struct, dict=True):
    """See `kernel.gather` for how it decides."""

    id: str
    kind: Literal["join", "fan", "barrier"]
    token: int
    target: str  # the step that waits
    rule: GatherRule
    labels: list[str]
    whens: list[str]
    values: list[Any]
    opened_at: int
    filled: dict[int, Delivery] = {}
    lost: dict[int, str] = {}  # slot → why
    excluded: int = 0
    late: int = 0
    next_slot: int = 0  # fans: the first slot without a job
    verdict: Literal["open", "closed", "impossible", "expired"] = "open"
    selected: list[int] = []
    reason: str = ""
    settled_at: int = 0

    def when(self, slot: int) -> str:
        """The outcome this slot takes."""
        return self.whens[slot] if self.whens else "any"

    @property
    def free(self) -> FreeSlots:
        """Worked out from the fields at the first question, kept up to date by `evolve`."""
        free: FreeSlots | None = self.__dict__.get("free_slots")
        if free is None:
            free = self.__dict__["free_slots"] = FreeSlots(self)
        return free


class Scope(msgspec.Struct, gc=False):
    """The join group below one join target; its id is that token's id."""

    id: int
    live: dict[str, int] = {}  # step → how many unfinished members stand there
    members: dict[int, bool] = {}
    gather: str = ""
    takes: dict[str, list[str]] = EMPTY  # what its join has slots for: step → outcomes
    barriers: dict[str, int] = EMPTY  # step → the token that gathers there
    closed: bool = False


class Gate(msgspec.Struct, gc=False):
    id: str
    token: int
    step: str
    ask: str
    actors: list[str]
    since: int
    failed: bool = False


class KeptSignal(msgspec.Struct, gc=False):
    """A signal that no wait has taken yet."""

    id: str
    name: str
    payload: Any
    actor: str
    at: int
    expires: int
    digest: str
    size: int
    problem: str = ""  # why the filter of a wait could not be evaluated for it, the first time


class PastSignal(msgspec.Struct, gc=False):
    """What became of a signal that is kept no more."""

    name: str
    digest: str
    status: Literal["taken", "expired", "dropped"]  # dropped: the run ended first
    received_at: int
    at: int
    job: str = ""  # that took it
    step: str = ""


class Judgement(msgspec.Struct, gc=False):
    """What was said about the task of a step run, the last of each step."""

    token: int
    fulfilled: bool
    policy: str
    actor: str
    reason: str
    evidence: Any
    at: int
    override: bool = False


#: The end of the year 9999. Instants come from workers, too, and no store holds numbers of any
#: size: what is due later would keep all runs of a turn from being written.
LATEST_MS = 253_402_300_799_999


class Timers(msgspec.Struct, dict=True):
    """What is due when. `due` is the truth, in the order in which timers were set; a heap beside it
    only finds the earliest fast. Of one instant, timers of a kind come in that order."""

    due: dict[str, int] = EMPTY

    @property
    def _heap(self) -> list[_Entry]:
        heap: list[_Entry] | None = self.__dict__.get("heap")
        if heap is None:
            heap = self.__dict__["heap"] = []
            for key, at in self.due.items():
                heap.append(self._entry(key, at))
            heapq.heapify(heap)
        return heap

    def _entry(self, key: str, at: int) -> _Entry:
        number = self.__dict__["number"] = self.__dict__.get("number", 0) + 1
        return at, key.partition(":")[0], number, key

    def set(self, key: str, at: int) -> None:
        at, heap = max(0, min(at, LATEST_MS)), self._heap
        self.due.pop(key, None)  # whoever is set again comes behind those that were set before
        self.due |= {key: at}
        heapq.heappush(heap, self._entry(key, at))
        if len(heap) > 64 + 4 * len(self.due):
            del self.__dict__["heap"]  # mostly dropped ones by now: build it anew

    def drop(self, key: str) -> None:
        if self.due.pop(key, None) is not None and not self.due:
            self._heap.clear()

    def earliest(self) -> int | None:
        if not self.due:
            return None
        heap = self._heap
        while self.due.get(heap[0][-1]) != heap[0][0]:
            heapq.heappop(heap)  # replaced or dropped meanwhile
        return heap[0][0]

    def due_by(self, now: int) -> list[str]:
        """The keys that are due: earliest first, then by kind, then as they were set."""
        heap = self._heap
        ready: dict[str, _Entry] = {}
        while heap and heap[0][0] <= now:
            entry = heapq.heappop(heap)
            if self.due.get(entry[-1]) == entry[0]:
                ready[entry[-1]] = entry  # of one that was set twice, the later
        for entry in ready.values():
            heapq.heappush(heap, entry)
        return [entry[-1] for entry in sorted(ready.values())]


_Entry = tuple[int, str, int, str]  # an instant, the kind of timer, when it was set, its key


class StepTally(msgspec.Struct, gc=False):
    runs: int = 0
    #: Of the last runs, in creation order; the phase word while unfinished.
    statuses: list[str] = []
    dropped: int = 0  # how many came before those
    earlier: dict[str, int] = EMPTY  # of these, the ones that have ended, by how
    outcome: str = ""  # what the last one that was done came to, in the words of its work
    by_error: str = ""  # the error that this outcome, or a skip, comes from, where one did


class JoinRecord(msgspec.Struct, gc=False):
    """What became of a gather, kept after its token is gone."""

    target: str
    verdict: str
    selected: list[str]
    late: int
    kind: str


class LoopRecord(msgspec.Struct, gc=False):
    """What became of a loop, kept after its token is gone."""

    step: str
    mode: str
    status: str = "open"
    total: int = -1
    succeeded: int = 0
    failed: int = 0
    retries: int = 0
    shards: int = 0
    opened_seq: int = 0  # the event that opened it; 0 in a state from before this was noted
    scheduled_seq: int = 0  # and the last that sent out a shard


class Counts(msgspec.Struct, gc=False):
    """Tallies for the completion rule, the summary and the laws."""

    created: int = 0
    finished: int = 0
    failed: int = 0
    handled: int = 0  # failed, but a route followed
    aborted: int = 0
    timed_out: int = 0  # failed, because the step took too long
    timed_out_handled: int = 0
    branch_ends: int = 0
    problems: int = 0  # step runs that ended badly, and nothing took care of it
    tolerated: int = 0  # those that did not do all they should, and the run went on by its policy


class State(msgspec.Struct, gc=False):
    run: str = ""
    definition: str = ""
    name: str = ""
    seq: int = 0
    started_at: int = 0
    updated_at: int = 0
    finished_at: int = 0
    deadline: int = 0
    parent: str | None = None
    begun_by: str = ""  # the run whose task began it, also where that does not wait for it
    origin: str | None = None
    labels: dict[str, str] = EMPTY
    workload: dict[str, Any] = EMPTY
    ctx: dict[str, Any] = EMPTY
    results: dict[str, Any] = EMPTY  # step → its last result
    reuse: dict[str, list[Answer]] = EMPTY
    tokens: dict[int, Token] = {}
    jobs: dict[str, Job] = EMPTY
    gathers: dict[str, Gather] = EMPTY
    scopes: dict[int, Scope] = {}
    gates: dict[str, Gate] = EMPTY
    held: dict[int, bool] = EMPTY  # the tokens at an admission gate
    queued: dict[int, bool] = EMPTY  # the tokens for which there is no room yet
    phases: dict[str, int] = {}  # phase → how many tokens are in it
    busy: int = 0  # jobs that are not parked
    timers: Timers = msgspec.field(default_factory=Timers)
    steps: dict[str, StepTally] = {}
    joins: dict[str, JoinRecord] = EMPTY
    loops: dict[str, Tracker] = EMPTY
    looped: dict[str, LoopRecord] = EMPTY
    counts: Counts = msgspec.field(default_factory=Counts)
    next_token: int = 1
    paused: bool = False
    paused_at: int = 0
    pause_reason: str = ""
    paused_gate: str = ""  # the gate for which the engine paused the run
    judged: dict[str, Judgement] = EMPTY  # step → what was said about its task
    ending: str = ""  # the status a winding-down run will finish with
    ending_at: int = 0
    ending_reason: str = ""
    finalised: bool = False  # the final step has had its token
    final_ending: Ending | None = None
    final_fault: Fault | None = None
    status: str = ""  # set once, when finished
    problem: Fault | None = None
    faults: tuple[tuple[str, Fault], ...] = ()  # the first few failures and aborts: (step, why)
    #: Where they come from, by their place in `faults`: (token, its parent, its scope).
    fault_sources: dict[int, tuple[int, int, int]] = EMPTY
    failure: Fault | None = None  # why the first step run failed
    unhandled: Fault | None = None  # why the first one failed that no route followed
    ends: dict[str, Any] = EMPTY  # leaf step → result, for the result of the run
    final_result: Any = None
    returns: str = ""  # of a child: the step whose result it answers with
    trace: str = ""  # the span of whoever began it
    sealed: tuple[str, ...] = ()  # keys of the workload in which marks stand for secrets
    redacted: dict[str, int] = EMPTY  # step → places in its answers with stars for a secret
    joins_settled: int = 0  # of those in `joins`
    joins_dropped: int = 0  # settled long ago, and in `joins` no more
    provenance: Provenance | None = None  # of a run that has something to reuse
    depth: int = 0  # of a child: how many runs above it began one another
    answered_by: dict[str, str] = EMPTY  # step → whose answer its fan chose, where it is one's
    abandoned: int = 0  # jobs that did not stop when they were told to,
    left_behind: tuple[tuple[str, str], ...] = ()  # and the first few of them: (step, why)
    started_with: dict[str, str] = EMPTY  # parts of the engine that began it
    final_args: dict[str, Any] = EMPTY  # what arcs to the final step hand on
    signals: dict[str, KeptSignal] = EMPTY  # by id, in the order in which they came
    past_signals: dict[str, PastSignal] = EMPTY  # the last ones that are kept no more
    priority: int = 0
    limits: tuple[KeyLimit, ...] = ()  # that it has places under, or waits for
    queued_for_place: bool = False  # it is recorded, and not admitted yet
    entry: str = ""  # of a run that waits: the step it will begin at, if not that of the net
    held_above: tuple[str, ...] = ()  # keys of limits whose places the runs above a child have
    first_run: str = ""  # of a redrive: the run with which its line of redrives began
    known_keys: dict[str, list[str]] = EMPTY  # what is given → the keys under which it was done
    keyed: dict[str, str] = EMPTY  # of a redrive: job or loop → its idempotency key
    given: dict[str, int] = EMPTY  # of a redrive: what was given, how often
    waits: dict[str, dict[str, bool]] = EMPTY  # signal name → the jobs that wait, the longest first

    @property
    def finished(self) -> bool:
        return bool(self.status)

    @property
    def root_run(self) -> str:
        """With which its line of redrives begins: itself, where it redrives none."""
        return self.first_run or self.run


FAULTS_KEPT = 20
#: A session may open joins for as long as it lives; the log has them all, the state the last ones.
JOINS_KEPT = 500
#: The same for the runs of one step.
STATUSES_KEPT = 500
#: Ids of signals that are remembered after the signal is gone: one that is sent again is the same.
PAST_SIGNALS_KEPT = 1_000

#: Keeps the order of every mapping: a run that goes on from its snapshot meets its tokens, jobs
#: and members in the order in which the live one does.
_encoder = msgspec.json.Encoder()
_making = Lock()


@cache
def _decoder() -> msgspec.json.Decoder[State]:
    """Made when it is needed: it looks at the types of all fields, and few commands read states.
    Two threads that make one at once can end the process."""
    with _making:
        return msgspec.json.Decoder(State)


def encode_state(state: State) -> bytes:
    return _encoder.encode(state)


def decode_state(data: bytes) -> State:
    return _decoder().decode(data)


def join_names(gather: Gather, slots: Sequence[int]) -> list[str]:
    """Slots as people know them: labels, or producers where a barrier has no labels."""
    return [gather.labels[slot] if slot < len(gather.labels) else str(slot) for slot in slots]
