"""The state of one run: what the events so far add up to.

Only `kernel.evolve` changes it. Finished tokens and discharged jobs leave it, so its size follows
what is unfinished (plus one status per step run), not what has happened.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from anabranch.kernel.values import Answer, Ending, Fault
from anabranch.net.net import GatherRule

ROOT_SCOPE = 0

TokenPhase = Literal["new", "held", "joining", "sleeping", "ready", "running", "deciding"]
JobPhase = Literal["scheduled", "running", "parked", "backoff", "answered", "cancelling"]


class Token(msgspec.Struct):
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
    jobs: int = 0  # its jobs that are not over
    attempt: int = 0  # the last attempt of its one job
    admitted: bool = False
    decided: bool = False
    answer: Answer | None = None  # what its work came to


class Job(msgspec.Struct):
    id: str
    token: int
    slot: int  # -1 for the one job of a plain step
    step: str
    attempt: int
    since: int
    phase: JobPhase = "scheduled"
    failures: int = 0
    losses: int = 0
    worker: str = ""
    lease: int = 0
    until: int = 0
    due: int = 0
    ticket: str = ""
    reason: str = ""
    answer: Answer | None = None


class Delivery(msgspec.Struct, array_like=True):
    slot: int
    producer: str
    order: int  # arrival
    outcome: str
    score: float | None
    value: Any


class Gather(msgspec.Struct):
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


class Scope(msgspec.Struct):
    """The join group below one join target; its id is that token's id."""

    id: int
    live: dict[str, int] = {}  # step → how many unfinished members stand there
    members: dict[int, bool] = {}
    gather: str = ""
    takes: list[str] = []  # the steps whose end its join has slots for
    closed: bool = False


class Gate(msgspec.Struct):
    id: str
    token: int
    step: str
    ask: str
    actors: list[str]
    since: int


class Timers(msgspec.Struct, dict=True):
    """What is due when. `due` is the truth; a heap beside it only finds the earliest fast."""

    due: dict[str, int] = {}

    @property
    def _heap(self) -> list[tuple[int, str]]:
        heap: list[tuple[int, str]] | None = self.__dict__.get("heap")
        if heap is None:
            heap = self.__dict__["heap"] = [(at, key) for key, at in self.due.items()]
            heapq.heapify(heap)
        return heap

    def set(self, key: str, at: int) -> None:
        self.due[key] = at
        heapq.heappush(self._heap, (at, key))

    def drop(self, key: str) -> None:
        if self.due.pop(key, None) is not None and not self.due:
            self._heap.clear()

    def earliest(self) -> int | None:
        if not self.due:
            return None
        heap = self._heap
        while self.due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)  # replaced or dropped meanwhile
        return heap[0][0]

    def due_by(self, now: int) -> list[str]:
        """The keys that are due, earliest first."""
        heap, ready = self._heap, []
        while heap and heap[0][0] <= now:
            entry = heapq.heappop(heap)
            if self.due.get(entry[1]) == entry[0]:
                ready.append(entry)
        for entry in ready:
            heapq.heappush(heap, entry)
        return list(dict.fromkeys(key for _, key in ready))


class StepTally(msgspec.Struct):
    runs: int = 0
    statuses: list[str] = []  # one per run, in creation order; the phase word while unfinished


class JoinRecord(msgspec.Struct):
    """What became of a gather, kept after its token is gone."""

    target: str
    verdict: str
    selected: list[str]
    late: int
    kind: str


class Counts(msgspec.Struct):
    """Tallies for the completion rule, the summary and the laws."""

    created: int = 0
    finished: int = 0
    failed: int = 0
    handled: int = 0  # failed, but a route followed
    aborted: int = 0
    timed_out: int = 0
    branch_ends: int = 0


class State(msgspec.Struct):
    run: str = ""
    definition: str = ""
    name: str = ""
    seq: int = 0
    started_at: int = 0
    updated_at: int = 0
    finished_at: int = 0
    deadline: int = 0
    parent: str | None = None
    origin: str | None = None
    labels: dict[str, str] = {}
    workload: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    results: dict[str, Any] = {}  # step → its last result
    reuse: dict[str, list[Answer]] = {}
    tokens: dict[int, Token] = {}
    jobs: dict[str, Job] = {}
    gathers: dict[str, Gather] = {}
    scopes: dict[int, Scope] = {}
    barriers: dict[str, int] = {}  # "scope:step" → the token that gathers there
    gates: dict[str, Gate] = {}
    timers: Timers = msgspec.field(default_factory=Timers)
    steps: dict[str, StepTally] = {}
    joins: dict[str, JoinRecord] = {}
    counts: Counts = msgspec.field(default_factory=Counts)
    next_token: int = 1
    paused: bool = False
    pause_reason: str = ""
    ending: str = ""  # the status a winding-down run will finish with
    ending_reason: str = ""
    finalised: bool = False  # the final step has had its token
    final_ending: Ending | None = None
    status: str = ""  # set once, when finished
    problem: Fault | None = None
    faults: list[tuple[str, Fault]] = []  # the first few failures: (step, why)
    ends: dict[str, Any] = {}  # leaf step → result, for the result of the run
    final_result: Any = None

    @property
    def finished(self) -> bool:
        return bool(self.status)


FAULTS_KEPT = 20

_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(State)


def encode_state(state: State) -> bytes:
    return _encoder.encode(state)


def decode_state(data: bytes) -> State:
    return _decoder.decode(data)


def join_names(gather: Gather, slots: Sequence[int]) -> list[str]:
    """Slots as people know them: labels, or producers where a barrier has no labels."""
    return [gather.labels[slot] if slot < len(gather.labels) else str(slot) for slot in slots]
