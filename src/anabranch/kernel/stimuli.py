"""What the world tells the kernel. The instant comes with the call, not inside.

A stimulus that does not fit the state is answered with `Refused` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from anabranch.kernel.values import Answer, ContextPatch, Wait


class _Stimulus(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    pass


class Start(_Stimulus, frozen=True, tag="start", kw_only=True):
    run: str
    input: Mapping[str, Any] = {}
    step: str | None = None  # instead of the net's entry
    labels: Mapping[str, str] = {}
    parent: str | None = None
    origin: str | None = None  # the run this one redrives
    #: What succeeded in the origin, by `kernel.reuse` key; taken instead of working again.
    reuse: Mapping[str, list[Answer]] = {}
    first_run: str = ""  # of a redrive: the run with which its line of redrives began
    known_keys: Mapping[str, Sequence[str]] = {}  # of a redrive: see `kernel.idempotency`
    returns: str = ""  # of a child: the step whose result it answers with
    trace: str = ""  # the span (W3C `traceparent`) of whoever begins it
    sealed: tuple[str, ...] = ()  # keys of the input in which marks stand for secrets
    begun_by: str = ""  # the run whose task begins it
    depth: int = 0  # of a child: how many runs above it began one another
    started_with: Mapping[str, str] = {}  # parts of its engine, as hints for the next one
    priority: int | None = None  # instead of the net's
    held: tuple[str, ...] = ()  # of a child: keys of limits whose places the runs above it have


class Admit(_Stimulus, frozen=True, tag="admit"):
    """The run has a place under each of its limits: it begins."""


class Tick(_Stimulus, frozen=True, tag="tick"):
    """Time has passed: whatever is due happens."""


class JobStart(_Stimulus, frozen=True, tag="job.start"):
    """A worker takes the job. `lease_until` is 0 for work inside the engine's own process."""

    job: str
    attempt: int
    worker: str = ""
    lease_until: int = 0
    holder: str = ""  # the id of the access token of whoever claims it
    queued: bool = False  # it waits for a place to be done: its time has not begun


class JobExtend(_Stimulus, frozen=True, tag="job.extend"):
    """The worker is alive: its lease moves."""

    job: str
    attempt: int
    lease_until: int
    began: bool = False  # what was queued is being done: its time begins


class JobProgress(_Stimulus, frozen=True, tag="job.progress"):
    """The worker says how far it is; small JSON, for people and for whoever goes on."""

    job: str
    attempt: int
    progress: Any = None


class JobPark(_Stimulus, frozen=True, tag="job.park"):
    """The answer will come later from outside; the job holds no worker from here on."""

    job: str
    attempt: int
    ticket: str = ""  # what it waits for: a child run, an order
    until: int = 0
    #: Where the work stood. With it the answer from outside is not the answer of the job: the job
    #: goes on from there, on some worker, with the answer in hand.
    memory: Any = None
    limit_ms: int = 0  # instead of `until`: how long to wait
    wait: Wait | None = None  # nobody outside is asked: the kernel ends this wait


class JobReport(_Stimulus, frozen=True, tag="job.report"):
    job: str
    attempt: int
    answer: Answer


class JobLose(_Stimulus, frozen=True, tag="job.lose"):
    """Whoever had the job is gone (crash, lost lease)."""

    job: str
    attempt: int
    reason: str = "lost"
    counted: bool = True  # false where it was handed back in order: that is no sign of trouble
    worker: bool = False  # the worker that had it is gone, not the engine
    unbegun: bool = False  # nothing of this attempt was done: it was taken from a queue


class JobLate(_Stimulus, frozen=True, tag="job.late"):
    """An attempt that was given up has come to its end all the same. Nothing follows from it."""

    job: str
    attempt: int
    worker: str = ""
    outcome: str = ""  # how it ended: of an answer its outcome, or else its status


class JobDischarge(_Stimulus, frozen=True, tag="job.discharge"):
    """A job that was told to stop has stopped."""

    job: str


class Decide(_Stimulus, frozen=True, tag="decide"):
    """Somebody answers a gate. `gate` is its id or, where only one is open there, its step.

    Where a declared source decides, only the source can be asked again; `override` answers in its
    place, and is recorded as that.
    """

    gate: str
    verdict: Literal["fulfil", "reject", "ask_again"]
    actor: str = ""
    reason: str = ""
    evidence: Any = None
    override: bool = False


class PatchContext(_Stimulus, frozen=True, tag="patch"):
    patches: tuple[ContextPatch, ...]
    actor: str = ""


class Pause(_Stimulus, frozen=True, tag="pause"):
    actor: str = ""
    reason: str = ""


class Resume(_Stimulus, frozen=True, tag="resume"):
    actor: str = ""


class Cancel(_Stimulus, frozen=True, tag="cancel"):
    actor: str = ""
    reason: str = ""


class Wake(_Stimulus, frozen=True, tag="wake"):
    """Sleeping tokens run now: one by id, or all that sleep at a step."""

    token: int = 0
    step: str = ""
    payload: Mapping[str, Any] = {}
    actor: str = ""
    #: How it came: "" is whoever has the store; of others the wake policy of the net is asked.
    way: Literal["", "rpc", "internal"] = ""
    asker: str = ""  # on whose behalf
    rule: str = ""  # internal: the rule contract that asks
    runner: str | None = None  # internal: the owner whose run is meant; None is not compared


class Signal(_Stimulus, frozen=True, tag="signal"):
    """Something that the run may wait for has happened. Once more under the same id it is heard,
    and changes nothing."""

    id: str
    name: str
    payload: Any = None
    actor: str = ""
    ttl_ms: int = 0  # how long it is kept for a wait; 0 is until the end of the run


class TuneLoop(_Stimulus, frozen=True, tag="loop.tune"):
    """Change a loop that is under way, by its id or its step: its window, or that it stops."""

    loop: str
    window: int = 0  # shards at work at once from now on; 0 leaves it
    stop: bool = False  # begin nothing more; what is out is finished
    actor: str = ""
    reason: str = ""


class RetryNow(_Stimulus, frozen=True, tag="retry"):
    """Whatever waits for its next try at this step is tried now; with `token` only that step run.

    A job keeps its count of failures: the next one may be the last."""

    step: str
    token: int = 0
    actor: str = ""
    reason: str = ""


class Skip(_Stimulus, frozen=True, tag="skip"):
    """The one unfinished run of this step, or the one with this token, ends without its work.

    It counts as skipped or, with a result (`answered`), as done with that result."""

    step: str
    token: int = 0
    actor: str = ""
    reason: str = ""
    answered: bool = False
    result: Any = None
    #: By which right: "" has the store. Others pass by a question only if they may answer it.
    right: Literal["", "operate", "decide"] = ""


class Overrun(_Stimulus, frozen=True, tag="overrun"):
    """The run is larger than its engine allows; the reason names the limit."""

    reason: str


Stimulus = (
    Start
    | Admit
    | Tick
    | JobStart
    | JobExtend
    | JobProgress
    | JobPark
    | JobReport
    | JobLose
    | JobLate
    | JobDischarge
    | Decide
    | PatchContext
    | Pause
    | Resume
    | Cancel
    | Wake
    | Signal
    | TuneLoop
    | RetryNow
    | Skip
    | Overrun
)
