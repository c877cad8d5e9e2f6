"""What a Dask worker runs: our entry in one of its threads, and two questions that Dask relays.

    run(submission)     announce the start ─▶ perform, which tells its progress ─▶ Answer, sent
    anabranch_take      what jobs have told since it was last asked
    anabranch_stop      these jobs are to stop

What Dask keeps and shows (keys, events, logs, the arguments of a failed task) holds tickets and
sizes only. So progress is announced by an event without content and then fetched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pickle import PickleBuffer
from typing import Any

import msgspec
from distributed import get_worker
from distributed.protocol.serialize import Serialize
from distributed.utils import sync

from anabranch.pools.dask.scheduler import ANSWER
from anabranch.pools.fitness import misfit

#: A job whose task Dask has dropped (its engine is gone, or it runs elsewhere) stops this soon.
LOOK_SECONDS = 1.0

SMALL_BYTES = 16 * 1024  # of an outcome that is sent ahead

_sealed: Any = Serialize  # which has no types

TAKE, STOP = "anabranch_take", "anabranch_stop"


class Opaque:
    """Bytes that nobody prints by accident, and that Dask passes on without copying them."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | memoryview | bytearray) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Opaque, (PickleBuffer(self.data) if protocol >= 5 else bytes(self.data),)

    @property
    def size(self) -> int:
        return memoryview(self.data).nbytes

    def __repr__(self) -> str:
        return f"<{self.size} bytes>"

    def __sizeof__(self) -> int:
        return self.size + object.__sizeof__(self)


@dataclass(frozen=True, slots=True)
class Submission:
    """What a task of Dask gets."""

    ticket: str  # also the key of the task
    entry: str  # the module with `perform`, `stop` and `probe`
    topic: str  # of the events about the ticket
    engine: dict[str, str]  # the versions of who sends it
    blob: Opaque
    client: str = ""  # to whom the scheduler passes small answers on; "": it passes none on


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What a task of Dask returns, or sends ahead, in bytes of ours: whoever reads it must not have
    to run what it says. Exactly one of the last three is set, and none where it was sent ahead."""

    worker: str
    told: list[bytes]  # progress that nobody has fetched
    outcome: bytes | None = None
    refused: str = ""  # the entry broke its word
    unfit: str = ""  # this process must not do it

    @property
    def small(self) -> bool:
        """Whether it can travel beside Dask's own messages, of which Dask keeps the last thousand:
        so it holds nothing that is printed, either."""
        return not self.told and self.outcome is not None and len(self.outcome) <= SMALL_BYTES

    def __repr__(self) -> str:
        return f"Answer({self.worker!r})"


encode_answer: Callable[[Answer], bytes] = msgspec.msgpack.Encoder().encode
_decode: Callable[[Any], Answer] = msgspec.msgpack.Decoder(Answer).decode


def decode_answer(said: Any) -> Answer:
    """Raises `ValueError` for what is no answer of ours."""
    if not isinstance(said, bytes | bytearray | memoryview):
        raise ValueError(f"bytes are expected, not {type(said).__name__}")
    try:
        return _decode(said)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


@dataclass(slots=True)
class _Job:
    """A submission that this process is at work on."""

    given: Submission
    entry: Any
    worker: Any
    told: list[bytes] = field(default_factory=list)

    def announce(self) -> None:
        """Returns when the scheduler knows that it begins: whatever the work does to this process,
        the engine will hear that it had begun."""
        log_event = self.worker.scheduler.log_event
        sync(self.worker.loop, log_event, topic=self.given.topic, msg=self._event("started"))

    def tell(self, kind: str, words: bytes) -> None:
        if kind == "progress":  # that it has started is known
            self.told.append(words)
            self.worker.log_event(self.given.topic, self._event(kind))

    def _event(self, kind: str) -> dict[str, str]:
        worker = self.worker
        who = {"worker": name_of(worker), "address": worker.address, "process": str(worker.id)}
        return {"kind": kind, "ticket": self.given.ticket, **who}

    def take(self) -> list[bytes]:
        taken = list(self.told)
        del self.told[: len(taken)]  # another thread may tell more meanwhile
        return taken


_jobs: dict[str, _Job] = {}
_lock = threading.Lock()
_looking = False  # whether `_look` comes back by itself


def run(given: Submission) -> bytes:
    """The task of Dask. It never raises: Dask would print its arguments, and send the error as a
    pickle."""
    worker = get_worker()
    answer = _answer(given, worker)
    words = encode_answer(answer)
    if not given.client or not answer.small:
        return words
    said = {"client": given.client, "ticket": given.ticket, "answer": _sealed(words)}
    worker.loop.add_callback(_send_ahead, worker, {"op": ANSWER, **said})
    return encode_answer(Answer(answer.worker, []))


def _send_ahead(worker: Any, message: dict[str, Any]) -> None:
    """Before Dask says in the same stream that the task is over."""
    if worker.batched_stream and not worker.batched_stream.closed():
        worker.batched_stream.send(message)


def _answer(given: Submission, worker: Any) -> Answer:
    try:
        entry = import_module(given.entry)
        wrong = misfit(f"the worker {name_of(worker)}", entry.probe(), given.engine)
        if wrong:
            return Answer(name_of(worker), [], unfit=wrong)
        _listen(worker)
        return _perform(_Job(given, entry, worker))
    except (Exception, SystemExit) as error:
        return Answer(name_of(worker), [], refused=_worded(error))


def _perform(job: _Job) -> Answer:
    name, ticket = name_of(job.worker), job.given.ticket
    _begin(job)
    try:
        job.announce()
        outcome = job.entry.perform(bytes(job.given.blob.data), job.tell)
    except (Exception, SystemExit) as error:
        return Answer(name, job.take(), refused=_worded(error))
    finally:
        with _lock:
            _jobs.pop(ticket, None)
    if not isinstance(outcome, bytes):
        said = f"a result of type {type(outcome).__name__} cannot be sent: bytes are expected"
        return Answer(name, job.take(), refused=said)
    return Answer(name, job.take(), bytes(outcome))


def _begin(job: _Job) -> None:
    global _looking
    with _lock:
        _jobs[job.given.ticket] = job
        looking, _looking = _looking, True
    if not looking:
        job.worker.loop.add_callback(_look, job.worker)


def _worded(error: BaseException) -> str:
    return f"the entry failed with {type(error).__name__}: {error}"


def name_of(worker: Any) -> str:
    """Its name on Dask's own pages: a word that somebody gave it, or its address."""
    return worker.name if isinstance(worker.name, str) else str(worker.address)


# -- in the loop of the worker ---------------------------------------------------------------


def introduce(entry: str, dask_worker: Any) -> dict[str, str]:
    """What the entry says of this process; Dask runs it when an engine connects."""
    _listen(dask_worker)
    return {**import_module(entry).probe(), "name": name_of(dask_worker)}


def _listen(worker: Any) -> None:
    """Let the scheduler relay our two questions."""
    worker.handlers.setdefault(TAKE, _take)
    worker.handlers.setdefault(STOP, _stop)


def _take(tickets: Iterable[str]) -> dict[str, list[bytes]]:
    with _lock:
        jobs = [_jobs[ticket] for ticket in tickets if ticket in _jobs]
    return {job.given.ticket: job.take() for job in jobs}


def _stop(tickets: Iterable[str]) -> None:
    with _lock:
        jobs = [_jobs[ticket] for ticket in tickets if ticket in _jobs]
    for job in jobs:
        job.entry.stop([job.given.ticket])


def _look(worker: Any) -> None:
    """Stop the jobs that nobody waits for: the scheduler drops the tasks of an engine that is gone,
    and tells the worker, but Dask leaves the function alone."""
    global _looking
    with _lock:
        tickets = list(_jobs)
        _looking = bool(tickets)
    if tickets:
        worker.loop.call_later(LOOK_SECONDS, _look, worker)
    known = worker.state.tasks
    _stop([one for one in tickets if one not in known or known[one].state == "cancelled"])
