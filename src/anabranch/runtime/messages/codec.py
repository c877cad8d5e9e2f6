"""Stimuli that travel through the store's mailbox, and the answers they get."""

from __future__ import annotations

from functools import cache
from threading import Lock

import msgspec

from anabranch.errors import (
    AnabranchError,
    Conflict,
    Denied,
    ExpressionError,
    InputError,
    NotFound,
    Refused,
    StoreError,
)
from anabranch.kernel import stimuli as s
from anabranch.store.access_ports import AuditEntry
from anabranch.store.ports import Message

#: Only what people may say; jobs report to the engine that gave them out, or, where that has given
#: their run away, tell its new owner that they are late.
Sayable = (
    s.Admit
    | s.Decide
    | s.PatchContext
    | s.Pause
    | s.Resume
    | s.Cancel
    | s.Wake
    | s.Signal
    | s.TuneLoop
    | s.RetryNow
    | s.Skip
    | s.JobLate
)


class StartRun(msgspec.Struct, frozen=True, tag="start_run"):
    """Begin a run of a stored definition; what is sealed in its input is stored beforehand."""

    definition: str  # its fingerprint
    start: s.Start
    sealed_as: str = ""  # the name under which the store has what is sealed


Posted = Sayable | StartRun

_encoder = msgspec.json.Encoder()
_making = Lock()


@cache
def _decoder() -> msgspec.json.Decoder[Posted]:
    """Made with the first message: it takes longer than loading this module. Two threads that make
    one at once can end the process."""
    with _making:
        return msgspec.json.Decoder(Posted)


#: Another server owns the run; nothing was done here.
ELSEWHERE = "run_elsewhere"


class RunElsewhere(AnabranchError):
    """Another server owns the run, or will in a moment: it has to be asked."""

    code = ELSEWHERE

    def __init__(self, run: str) -> None:
        super().__init__(f"another server owns run {run}; ask again")
        self.run = run


def elsewhere(run: str) -> AnabranchError:
    return RunElsewhere(run)


class MailAnswer(msgspec.Struct, frozen=True):
    ok: bool
    code: str = ""
    message: str = ""
    kind: str = ""  # of error: the name of its class


_answers = msgspec.json.Decoder(MailAnswer)


class _Audited(msgspec.Struct, frozen=True):
    """What every message may have beside what it says."""

    audit: AuditEntry | None = None


_audited = msgspec.json.Decoder(_Audited)


def write_message(stimulus: Posted, audit: AuditEntry | None = None) -> bytes:
    """With the line for the audit trail that the taker is to write in the commit of its effect.
    An engine of an earlier version leaves that field unread."""
    body = _encoder.encode(stimulus)
    if audit is None:
        return body
    return body[:-1] + b',"audit":' + _encoder.encode(audit) + b"}"  # its tag stands before


def audit_in(message: Message) -> AuditEntry | None:
    """Of a message that can be read."""
    try:
        return _audited.decode(message.body).audit
    except msgspec.MsgspecError as error:
        raise InputError(f"message {message.id} cannot be read: {error}") from None


def read_message(message: Message) -> Posted:
    try:
        stimulus: Posted = _decoder().decode(message.body)
        return stimulus
    except msgspec.MsgspecError as error:
        raise InputError(f"message {message.id} cannot be read: {error}") from None


def answer_bytes(error: AnabranchError | None) -> bytes:
    if error is None:
        return _encoder.encode(MailAnswer(True))
    return _encoder.encode(MailAnswer(False, error.code, error.message, type(error).__name__))


def read_answer(answer: bytes) -> MailAnswer:
    return _answers.decode(answer)


#: What the engine that answers may have raised, and callers tell apart.
_KINDS: dict[str, type[AnabranchError]] = {
    each.__name__: each
    for each in (Conflict, Denied, ExpressionError, InputError, NotFound, StoreError)
}


def refusal_of(answer: MailAnswer) -> AnabranchError:
    """The error of an answer, of the class that it had where it was raised."""
    return _KINDS.get(answer.kind, Refused)(answer.message, code=answer.code)
