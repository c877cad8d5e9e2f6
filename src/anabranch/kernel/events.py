"""What the kernel recorded. The set is closed; `evolve` handles each kind and nothing else.

Events are small arrays on disk, `["job.started", "7.0", 1, "engine"]`, several to a row; the
instant belongs to the row. Fields are only ever appended, with a default, so that old logs keep
their meaning. What can be worked out from the state is not repeated in an event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

import msgspec

from anabranch.errors import AnabranchError
from anabranch.kernel.tracker import Shard
from anabranch.kernel.values import Answer, Cause, ContextPatch, Ending, Fault, KeyLimit, Wait
from anabranch.literals import Reducer
from anabranch.net.net import GatherRule


class _Event(msgspec.Struct, frozen=True, array_like=True, gc=False): ...


# -- the run ---------------------------------------------------------------------------------


class RunStarted(_Event, frozen=True, tag="run.started"):
    run: str
    definition: str
    name: str
    workload: Mapping[str, Any]
    deadline: int = 0
    parent: str | None = None
    origin: str | None = None
    labels: Mapping[str, str] = {}
    reuse: Mapping[str, list[Answer]] = {}
    returns: str = ""  # of a child: the step whose result it answers with
    trace: str = ""  # the span (W3C `traceparent`) of whoever began it, if they told
    sealed: Sequence[str] = ()  # keys of the workload with secrets in them: marks stand for these
    begun_by: str = ""  # the run whose task began it, also where that does not wait for it
    depth: int = 0  # of a child: how many runs above it began one another
    started_with: Mapping[str, str] = {}  # parts of its engine, as hints for the next one
    priority: int = 0  # where its jobs or itself wait with others: the highest goes first
    held: Sequence[str] = ()  # of a child: keys of limits whose places the runs above it have
    first_run: str = ""  # of a redrive: the run with which its line of redrives began
    known_keys: Mapping[str, Sequence[str]] = {}  # of a redrive: see `kernel.idempotency`


class RunQueued(_Event, frozen=True, tag="run.queued"):
    limits: Sequence[KeyLimit]  # it waits for a place under each; nothing of it begins before
    entry: str = ""  # the step it will begin at, where that is not the entry of the net


class RunAdmitted(_Event, frozen=True, tag="run.admitted"):
    deadline: int = 0  # it begins: its time runs from here


class RunPaused(_Event, frozen=True, tag="run.paused"):
    actor: str
    reason: str
    gate: str = ""  # where the engine stopped for a gate: deciding it resumes the run


class RunResumed(_Event, frozen=True, tag="run.resumed"):
    actor: str


class RunEnding(_Event, frozen=True, tag="run.ending"):
    """From here on the run only winds down; it will finish with this status."""

    status: str
    reason: str
    actor: str = ""


class RunFinished(_Event, frozen=True, tag="run.finished"):
    status: str
    problem: Fault | None = None


class ContextPatched(_Event, frozen=True, tag="context.patched"):
    patches: Sequence[ContextPatch]
    by: str  # an actor, or "token N"


# -- tokens ----------------------------------------------------------------------------------


class TokenCreated(_Event, frozen=True, tag="token.created"):
    token: int
    step: str
    parent: int
    scope: int
    via: Literal["entry", "arc", "join", "barrier", "final"]
    args: Mapping[str, Any] = {}
    payload: Mapping[str, Any] = {}
    wake: int = 0


class TokenHeld(_Event, frozen=True, tag="token.held"):
    """Admission said no, for now."""

    token: int
    reason: str


class TokenAdmitted(_Event, frozen=True, tag="token.admitted"):
    token: int
    by: str


class TokenQueued(_Event, frozen=True, tag="token.queued"):
    """As many step runs are under way as there may be."""

    token: int


class TokenSlept(_Event, frozen=True, tag="token.slept"):
    """The token goes on when its wake time comes."""

    token: int


class TokenWoken(_Event, frozen=True, tag="token.woken"):
    token: int
    by: str
    payload: Mapping[str, Any] = {}


class TokenTimed(_Event, frozen=True, tag="token.timed"):
    """The step timeout runs from here; with 0 it no longer runs."""

    token: int
    until: int
    hurry: bool = False  # it is not a limit of the step: the deadline of the run comes near


class TokenRetrying(_Event, frozen=True, tag="token.retrying"):
    """A fan came to nothing, or its work was not accepted: the step begins anew at `due`."""

    token: int
    round: int  # the one to come
    due: int
    reason: str = ""
    counted: bool = False  # as a try of its work, which with the failed ones has one budget


class TokenRetriedNow(_Event, frozen=True, tag="token.retried_now"):
    """An operator ended the wait before the next try; the try itself follows."""

    token: int
    actor: str
    reason: str = ""


class TokenSkipped(_Event, frozen=True, tag="token.skipped"):
    """An operator ended the step run without its work, which is told to stop where it runs."""

    token: int
    actor: str
    reason: str = ""
    answered: bool = False  # with a result in the place of its own: the step run counts as done
    result: Any = None


class TokenAnswered(_Event, frozen=True, tag="execution.completed"):
    """The work of the step is done; whether the task is, is another question."""

    token: int


class TaskJudged(_Event, frozen=True, tag="task.judged"):
    """Whether the task counts as fulfilled, and who said so."""

    token: int
    fulfilled: bool
    policy: str
    actor: str = ""
    reason: str = ""
    evidence: Any = None
    goes_on: bool = False  # not fulfilled, and the step ends all the same
    override: bool = False  # somebody answered in the place of the declared source


class TokenReleased(_Event, frozen=True, tag="token.released"):
    """A join or barrier let its token go on, with what it gathered."""

    token: int


class TokenDoomed(_Event, frozen=True, tag="token.doomed"):
    """Killed while its work runs: whatever it still does stays without effect."""

    token: int
    reason: str


class TokenInvalidated(_Event, frozen=True, tag="token.invalidated"):
    """What this step run of a redriven run reads is not what it was: it takes nothing over."""

    token: int
    cause: Cause


class TokenFinished(_Event, frozen=True, tag="token.finished"):
    token: int
    ending: Ending
    outcome: str = ""
    #: How the branch went on: "" (it did), "leaf", "no_match", "killed", "stopped".
    end: str = ""
    fault: Fault | None = None
    #: An arc leads to the final step, where the branch ends: the args it gives.
    handed: Mapping[str, Any] | None = None


# -- jobs ------------------------------------------------------------------------------------


class JobScheduled(_Event, frozen=True, tag="job.scheduled"):
    job: str
    token: int
    slot: int
    attempt: int


class WorkKeyed(_Event, frozen=True, tag="work.keyed"):
    """In a redriven run: under which idempotency key a job is done, or the items of a loop are."""

    work: str  # the job or the loop
    key: str
    given: str  # what it is given, as a hash: see `kernel.idempotency`


class JobStarted(_Event, frozen=True, tag="job.started"):
    job: str
    attempt: int
    worker: str
    lease: int = 0
    until: int = 0
    holder: str = ""  # the id of the access token that claimed it; "" where none was shown


class JobExtended(_Event, frozen=True, tag="job.extended"):
    job: str
    lease: int
    until: int = 0  # the time of the attempt runs until then, from here on


class JobProgressed(_Event, frozen=True, tag="job.progressed"):
    """How far its worker is, in the worker's own words."""

    job: str
    attempt: int
    progress: Any


class JobParked(_Event, frozen=True, tag="job.parked"):
    job: str
    attempt: int
    ticket: str
    until: int = 0
    memory: Any = None  # where the work stood; it goes on from there
    wait: Wait | None = None  # what ends the wait, where nobody outside is asked


class JobContinued(_Event, frozen=True, tag="job.continued"):
    """What a parked job waited for has come, or its time was up: its work goes on."""

    job: str
    attempt: int  # the one to come
    answer: Answer
    ticket: str = ""  # what it waited for in vain


class JobReported(_Event, frozen=True, tag="job.reported"):
    job: str
    attempt: int
    answer: Answer


class JobReused(_Event, frozen=True, tag="job.reused"):
    """The origin of a redriven run had this answer already."""

    job: str
    token: int
    slot: int
    answer: Answer
    key: str
    settled: str = ""  # under which key the origin has whose answer it is and who judged it


class JobRetrying(_Event, frozen=True, tag="job.retrying"):
    job: str
    attempt: int  # the one to come
    due: int


class JobTimedOut(_Event, frozen=True, tag="job.timed_out"):
    job: str
    attempt: int
    ticket: str = ""  # what a parked job waited for


class JobLost(_Event, frozen=True, tag="job.lost"):
    job: str
    attempt: int
    reason: str
    counted: bool = True
    worker: bool = False  # the worker that had it is gone, not the engine


class JobLate(_Event, frozen=True, tag="job.late"):
    """The result of an attempt that was given up before: recorded, and nothing else."""

    job: str
    attempt: int
    worker: str
    outcome: str


class JobCancelling(_Event, frozen=True, tag="job.cancelling"):
    """The intent: whoever works on it is told to stop."""

    job: str
    reason: str
    attempt: int = 0
    ticket: str = ""  # of a parked job: what it waited for


class JobDischarged(_Event, frozen=True, tag="job.discharged"):
    """The end of a cancelled job: nobody works on it any more, or nobody waits for whoever does.
    A shard that is `put_back` goes out later, in another job."""

    job: str
    how: Literal["stopped", "unstarted", "reported", "lost", "abandoned", "put_back"]
    reason: str = ""


# -- gathers ---------------------------------------------------------------------------------


class GatherOpened(_Event, frozen=True, tag="gather.opened"):
    gather: str
    kind: Literal["join", "fan", "barrier"]
    token: int  # who waits for it
    rule: GatherRule
    labels: Sequence[str]
    whens: Sequence[str] = ()  # joins: the outcome each slot takes
    values: Sequence[Any] = ()  # fans: what each slot's job gets, where that is not its label


class Delivered(_Event, frozen=True, tag="gather.delivered"):
    gather: str
    slot: int
    producer: str
    outcome: str
    score: float | None = None
    value: Any = None  # joins and barriers; a fan's value is its job's result
    wake: int = 0  # barriers: not to go on before


class SlotLost(_Event, frozen=True, tag="gather.slot_lost"):
    """The slot can no longer be filled."""

    gather: str
    slot: int
    producer: str
    reason: str
    excluded: bool = False


class DeliveryLate(_Event, frozen=True, tag="gather.late"):
    """Came after the verdict: recorded, and nothing else."""

    gather: str
    producer: str
    outcome: str


class GatherSettled(_Event, frozen=True, tag="gather.settled"):
    gather: str
    verdict: Literal["closed", "impossible", "expired"]
    selected: Sequence[int]
    reason: str = ""


# -- loops -----------------------------------------------------------------------------------


class LoopOpened(_Event, frozen=True, tag="loop.opened"):
    """A step begins to work through a collection."""

    loop: str
    token: int
    mode: Literal["local", "fanout"]
    source: Any  # the list itself, or the description of a collection
    size: int  # -1: not known before its end was read
    window: int
    shard_size: int
    automatic: bool
    keep_results: bool = True
    reducers: Mapping[str, Reducer] = {}
    carried: Mapping[str, Any] | None = None  # what a redriven run takes over
    key: str = ""  # under which it was found
    queue_ttl: int = 0  # milliseconds that a shard may wait for a worker
    side_by_side: bool = False  # items of one shard do not wait for each other


class LoopCutting(_Event, frozen=True, tag="loop.cutting"):
    """A worker is asked to read ahead in the collection."""

    job: str
    token: int
    attempt: int = 1  # goes on from cut to cut: a report of the last one is stale


class LoopCut(_Event, frozen=True, tag="loop.cut"):
    """The reader found these shards."""

    loop: str
    shards: Sequence[Shard]
    cursor: Any = None
    end: bool = False
    size: int = -1
    source: Any = None  # the collection as the reader recognised it, at the first time
    failed: bool = False  # it found nothing, and nobody knows what there is behind the last cut


class ShardScheduled(_Event, frozen=True, tag="loop.shard_scheduled"):
    job: str
    token: int
    shard: Shard


class ShardClosed(_Event, frozen=True, tag="loop.shard_closed"):
    """The shard's job is over; `again` lists the items that go out once more."""

    job: str
    loop: str
    again: Sequence[int] = ()
    fault: Fault | None = None  # the job as a whole failed, and all its items with it
    whole: bool = False  # …but they go out once more, all of them
    lost: int = 0  # …in two halves: so often they were out with a worker that was lost


class LoopStopped(_Event, frozen=True, tag="loop.stopped"):
    """No further shard is begun."""

    loop: str
    reason: str


class LoopTuned(_Event, frozen=True, tag="loop.tuned"):
    """Somebody changed how many shards are at work at once."""

    loop: str
    window: int
    actor: str = ""


class LoopSettled(_Event, frozen=True, tag="loop.settled"):
    loop: str
    status: Literal["complete", "partial", "failed"]
    reason: str = ""


# -- signals ---------------------------------------------------------------------------------


class SignalReceived(_Event, frozen=True, tag="signal.received"):
    """It is kept until a wait takes it, its time is over or the run ends."""

    signal: str  # its id
    name: str
    payload: Any
    actor: str = ""
    expires: int = 0  # 0 is never
    digest: str = ""  # of name and payload: another signal under this id is told apart
    size: int = 0  # bytes of the payload as it is recorded


class SignalTaken(_Event, frozen=True, tag="signal.taken"):
    signal: str
    job: str


class SignalExpired(_Event, frozen=True, tag="signal.expired"):
    signal: str


class SignalUnmatched(_Event, frozen=True, tag="signal.unmatched"):
    """The filter of a wait failed for this signal, which is taken as: it does not match."""

    signal: str
    job: str
    reason: str


# -- gates -----------------------------------------------------------------------------------


class GateOpened(_Event, frozen=True, tag="gate.opened"):
    gate: str
    token: int
    ask: str
    actors: Sequence[str] = ()
    failed: bool = False  # the work failed: is it tried again, or given up?


class GateDecided(_Event, frozen=True, tag="gate.decided"):
    gate: str
    verdict: Literal["fulfil", "reject"]
    actor: str
    reason: str = ""
    evidence: Any = None
    override: bool = False  # in the place of the declared source


class GateAskedAgain(_Event, frozen=True, tag="gate.asked_again"):
    """The gate is gone, and the declared source decides once more."""

    gate: str
    token: int
    asked: int  # how often it has been asked again
    actor: str = ""
    reason: str = ""


_OfRuns = RunStarted | RunQueued | RunAdmitted | RunPaused | RunResumed | RunEnding | RunFinished
_OfTokens = TokenCreated | TokenHeld | TokenAdmitted | TokenQueued | TokenSlept | TokenWoken
_OfTries = TokenTimed | TokenRetrying | TokenRetriedNow | TokenSkipped | TokenAnswered | TaskJudged
_OfEnds = ContextPatched | TokenReleased | TokenDoomed | TokenInvalidated | TokenFinished
_OfJobs = JobScheduled | WorkKeyed | JobStarted | JobExtended | JobProgressed | JobParked
_OfAnswers = JobContinued | JobReported | JobReused | JobRetrying | JobTimedOut | JobLost | JobLate
_OfStops = JobCancelling | JobDischarged
_OfGathers = GatherOpened | Delivered | SlotLost | DeliveryLate | GatherSettled
_OfLoops = LoopOpened | LoopCutting | LoopCut | LoopStopped | LoopTuned | LoopSettled
_OfShards = ShardScheduled | ShardClosed
_OfSignals = SignalReceived | SignalTaken | SignalExpired | SignalUnmatched
_OfGates = GateOpened | GateAskedAgain | GateDecided
_OfSteps = _OfTokens | _OfTries | _OfEnds | _OfJobs | _OfAnswers | _OfStops
Event = _OfRuns | _OfSteps | _OfGathers | _OfLoops | _OfShards | _OfSignals | _OfGates

_encoder = msgspec.json.Encoder()
_decoder = cache(lambda: msgspec.json.Decoder(list[Event]))  # takes long: made with the first use


#: Of a row of the log, and of a snapshot. SQLite holds 1,000,000,000 bytes in one value, PostgreSQL
#: 1 GiB; what they refuse would keep all runs of its turn from being written.
VALUE_BYTES_MAX = 900_000_000


def encode_events(events: Sequence[Event]) -> bytes:
    """What a turn recorded of one run, as a row of the log."""
    row = _encoder.encode(events)
    if len(row) > VALUE_BYTES_MAX:
        said = f"what one turn recorded of it has {len(row):,} bytes, over the limit of"
        raise AnabranchError(f"{said} {VALUE_BYTES_MAX:,}", code="too_large")
    return row


def decode_events(row: bytes) -> list[Event]:
    return _decoder().decode(row)


def kind_of(event: Event) -> str:
    """The event's name, such as `job.started`."""
    return str(type(event).__struct_config__.tag)


def fields_of(event: Event) -> dict[str, Any]:
    """The event as plain data, for people and for JSON output."""
    values = msgspec.to_builtins(event)[1:]  # behind its kind
    named = zip(event.__struct_fields__, values, strict=True)
    return {name: value for name, value in named if value is not None}
