"""Stars in the place of secrets: in what a job says before it is recorded, and in the logs.

A job that was given secrets has a scope of its own, a `Redactor` that knows these and no others:
its answer is cleaned of them at the worker's door, and the answer of a job that was given none is
recorded as it is. Inside a text a secret of `INSIDE` characters or more is looked for in all the
forms of `secret_forms`; a shorter one, down to `SHORTEST`, only as a whole value. Keys of mappings
are never renamed: a mapping with a secret among its keys goes as a whole.

What a person reads (the logs of the process) is cleaned of everything that is known, and of shorter
ones too: that changes nothing that is decided.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from anabranch.kernel.tracker import ShardReport, TaskRun
from anabranch.kernel.values import Answer, ContextPatch, Fault, Wait, WakeRequest
from anabranch.work.secrets.credential_fields import logins_in
from anabranch.work.secrets.forms import INSIDE, SHORTEST, Seen, Traces, fold, gate_of, traces_of
from anabranch.work.secrets.log_guard import LOGGERS, RedactingFilter, guard_logs
from anabranch.work.secrets.undoing import Span, has_escapes
from anabranch.work.secrets.values import (
    STARS,
    Absent,
    Keyring,
    Secret,
    given_to_work,
    giving,
    render_with,
    revealed,
    with_credentials,
)

__all__ = [
    "INSIDE",
    "LOGGERS",
    "SHORTEST",
    "STARS",
    "Absent",
    "Keyring",
    "RedactingFilter",
    "Redactor",
    "Secret",
    "brief",
    "cleaned_for_store",
    "given_to_work",
    "giving",
    "guard_logs",
    "head_of",
    "render_with",
    "revealed",
    "tail_of",
    "with_credentials",
]

REMEMBERED = 256
BESIDE_BYTES = 256 * 1024  # of an answer: a larger one is cleaned beside the event loop
ROOM_MAX = 64 * 1024  # characters on either side of a cut in which a secret is looked for
#: Where somebody else has cut a text. Blanks are read from the first of them, and once.
_ELLIPSIS = re.compile(r"((?:(?<!\s)\s++)?(?:\.\.\.|…)\s*+)")
_encode = msgspec.json.Encoder().encode


class _Known(NamedTuple):
    """What is looked for at one moment; threads look, too."""

    inside: Mapping[str, Traces]
    whole: frozenset[str]  # those that are looked for as whole values
    probes: Mapping[bytes, frozenset[bytes]]  # without one of these there is nothing to clean,
    of_letters: bool  # unless there is an escape, of a letter or of anything

    def may_be_in(self, encoded: bytes) -> bool:
        for gate, probes in self.probes.items():  # plain loops: on the way of every answer
            if gate in encoded:
                for probe in probes:
                    if probe in encoded:
                        return True
        return bool(self.inside) and has_escapes(encoded, self.of_letters)


class Redactor:
    """Puts stars where a secret stands.

    Values without secrets come back as they are, after a few passes at the speed of C. Without
    `remembered` nothing is forgotten: for the scope of a job, which ends with the job. Else the
    last so many are known, and those of runs that still hold them (`learn(…, run)`, `release`).
    """

    __slots__ = ("_held", "_holders", "_inside", "_made", "_remembered", "_texts", "cleaned")

    def __init__(self, inside: int = SHORTEST, remembered: int | None = REMEMBERED) -> None:
        self._inside = inside
        self._remembered = remembered
        self._texts: dict[str, None] = {}  # oldest first
        self._holders: dict[str, set[str]] = {}  # a secret → the runs that hold it
        self._held: dict[str, set[str]] = {}  # and the other way round
        self._made: _Known | None = None
        self.cleaned = 0  # places where there are stars now

    @classmethod
    def of_job(cls) -> Redactor:
        """For what one job is given."""
        return cls(INSIDE, None)

    @property
    def knows_any(self) -> bool:
        return bool(self._texts)

    def knows(self, text: str) -> bool:
        """Whether this very text is one of them."""
        return text in self._texts

    # -- knowing -----------------------------------------------------------------------------

    def learn(self, value: Any, run: str = "") -> None:
        """Secrets to watch for from now on: a `Secret`, a text, or anything with secrets in it."""
        if isinstance(value, Secret):
            self._learn(value.reveal(), run)
        elif isinstance(value, str):
            self._learn(value, run)
        elif isinstance(value, Keyring):
            self.learn(value.unrevealed, run)
        elif isinstance(value, Mapping | list | tuple):
            for item in value.values() if isinstance(value, Mapping) else value:
                if not isinstance(item, str):  # beside secrets stand names and addresses
                    self.learn(item, run)

    def _learn(self, text: str, run: str) -> None:
        if "://" in text:  # who logs in with an address may repeat the password alone
            for part in logins_in(text):
                self._learn(part, run)
        if len(text) < SHORTEST:
            return
        if run:
            self._holders.setdefault(text, set()).add(run)
            self._held.setdefault(run, set()).add(text)
        if text in self._texts:
            self._texts[text] = self._texts.pop(text)
            return
        self._texts[text] = None
        self._made = None
        self._forget()

    def _forget(self) -> None:
        """The oldest of those that no run holds."""
        if self._remembered is None or len(self._texts) - len(self._holders) <= self._remembered:
            return
        free = [text for text in self._texts if text not in self._holders]
        for text in free[: len(free) - self._remembered]:
            del self._texts[text]
        self._made = None

    def release(self, run: str) -> None:
        """The run is over: its secrets are forgotten like any other."""
        for text in self._held.pop(run, ()):
            holders = self._holders.get(text, set())
            holders.discard(run)
            if not holders:
                self._holders.pop(text, None)
        self._forget()

    def _known(self) -> _Known:
        made = self._made
        if made is None:
            texts = tuple(self._texts)
            inside = {text: traces_of(text, self._inside) for text in texts}
            inside = {text: traces for text, traces in inside.items() if traces.texts}
            whole = frozenset(texts)
            quoted = (fold(_json(text)).encode() for text in texts if text not in inside)
            numbers = (text.encode() for text in texts if text[:1] in "-0123456789")
            sought = (traces.probes for traces in inside.values())
            probes = frozenset().union(*sought, quoted, numbers)
            gates: dict[bytes, set[bytes]] = {}
            for probe in probes:
                gates.setdefault(gate_of(probe), set()).add(probe)
            by_gate = {gate: frozenset(found) for gate, found in gates.items()}
            of_letters = all(traces.of_letters for traces in inside.values())
            made = self._made = _Known(inside, whole, by_gate, of_letters)
        return made

    # -- cleaning ----------------------------------------------------------------------------

    def clean(self, value: Any) -> Any:
        """The value with stars; the very same object when there is nothing to hide in it."""
        return self._clean(value, self._leaf)

    def _clean(self, value: Any, leaf: Callable[[str], str]) -> Any:
        if not self._texts or value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return leaf(value)
        try:
            encoded = _encode(value).lower()
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return self._walk(value, leaf)  # not JSON: look into it piece by piece
        return self._walk(value, leaf) if self._known().may_be_in(encoded) else value

    def text(self, text: str) -> str:
        """The text with stars for everything in it that is secret."""
        spans = self._spans(text)
        if not spans:
            return text
        self.cleaned += len(spans)
        parts, at = [], 0
        for start, end in spans:
            parts += [text[at:start], STARS]
            at = end
        return "".join([*parts, text[at:]])

    def _leaf(self, text: str) -> str:
        if text in self._known().whole:
            self.cleaned += 1
            return STARS
        return self.text(text)

    def _walk(self, value: Any, leaf: Callable[[str], str]) -> Any:
        if isinstance(value, str):
            return leaf(value)
        if isinstance(value, Mapping):
            if any(isinstance(key, str) and self._spans(key) for key in value):
                self.cleaned += 1
                return STARS
            return {key: self._walk(item, leaf) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._walk(item, leaf) for item in value]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and str(value) in self._known().whole:
            self.cleaned += 1
            return STARS
        return value

    def _spans(self, text: str) -> list[Span]:
        """Where the secrets stand in a text, in order; those that meet are one."""
        if not self._texts or len(text) < self._inside:
            return []
        seen = _seen(text)
        found: list[Span] = []
        for traces in self._known().inside.values():
            if traces.may_be_in(seen.encoded):
                found += seen.spans_of(traces)
        return _united(found)

    def holds_secret(self, value: Any) -> bool:
        """Is there one in this text or value, however short it is?"""
        if isinstance(value, str):
            return any(text in value for text in self._texts) or bool(self._spans(value))
        return isinstance(value, int | float) and str(value) in self._texts

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(self._texts)

    def finds(self, text: str, secret: str) -> bool:
        """Is this secret in the text, as it is or in another form?"""
        if secret in text:
            return True
        return any(True for _ in _seen(text).spans_of(traces_of(secret, self._inside)))

    # -- cutting -----------------------------------------------------------------------------

    def split_at(self, text: str, at: int) -> Span | None:
        """The secret that a cut at this place would leave a part of."""
        if not self._texts or not 0 < at < len(text):
            return None
        room = min(ROOM_MAX, 64 + 16 * max(map(len, self._texts)))
        first = max(0, at - room)
        for start, end in self._spans(text[first : at + room]):
            if first + start < at < first + end:
                return first + start, first + end
        return None

    def _edges(self, text: str) -> str:
        """The same for a text that somebody else has cut: a part of a secret at either end of it,
        or at the dots that stand for what is missing."""
        text = self.text(text)
        parts = _ELLIPSIS.split(text)
        for number in range(0, len(parts), 2):
            for secret in self._known().inside:
                parts[number] = self._trimmed(parts[number], secret)
        return "".join(parts)

    def _trimmed(self, text: str, secret: str) -> str:
        wanted, folded = fold(secret), fold(text)
        at = folded.rfind(wanted[:INSIDE], max(0, len(text) - len(secret)))
        if at >= 0 and wanted.startswith(folded[at:]):
            self.cleaned += 1
            text = text[:at] + STARS
            folded = fold(text)
        at = folded.find(wanted[-INSIDE:], 0, len(secret)) + INSIDE
        if at >= INSIDE and wanted.endswith(folded[:at]):
            self.cleaned += 1
            return STARS + text[at:]
        return text

    # -- answers -----------------------------------------------------------------------------

    async def answer_aside(self, answer: Answer) -> Answer:
        """The same in a thread for a large answer: whatever is escaped in it is undone."""
        if self._texts and _is_large(answer):
            return await asyncio.to_thread(self.answer, answer)
        return self.answer(answer)

    def answer(self, answer: Answer) -> Answer:
        """What a job reports, fit to be recorded; it says in how many places there are stars."""
        if not self._texts:
            return answer
        before = self.cleaned
        cleaned = msgspec.structs.replace(
            answer,
            result=self.clean(answer.result),
            fault=self._fault(answer.fault),
            outcome=self.text(answer.outcome),
            patches=tuple(map(self._patch, answer.patches)),
            shard=self._shard(answer.shard),
            locals=self.clean(answer.locals),
            record=self.clean(answer.record),
            wakes=tuple(map(self._wake, answer.wakes)),
            tasks=tuple(map(self._task, answer.tasks)),
            by_error=self.text(answer.by_error),
        )
        if self.cleaned == before:
            return answer
        return msgspec.structs.replace(cleaned, redacted=answer.redacted + self.cleaned - before)

    def _fault(self, fault: Fault | None) -> Fault | None:
        if fault is None:
            return None
        return Fault(
            kind=self.text(fault.kind),
            message=self._edges(fault.message),
            code=self.text(fault.code),
            retryable=fault.retryable,
            details=self._clean(fault.details, self._edges_of_leaf),
        )

    def _edges_of_leaf(self, text: str) -> str:
        cleaned = self._leaf(text)
        return cleaned if cleaned == STARS else self._edges(cleaned)

    def _shard(self, report: ShardReport | None) -> ShardReport | None:
        if report is None:
            return None
        return msgspec.structs.replace(
            report,
            failed=tuple(
                msgspec.structs.replace(
                    failure,
                    key=self.text(failure.key),
                    kind=self.text(failure.kind),
                    message=self._edges(failure.message),
                )
                for failure in report.failed
            ),
            shared=self.clean(report.shared),
            keys=None if report.keys is None else tuple(map(self.text, report.keys)),
        )

    def _wake(self, wake: WakeRequest) -> WakeRequest:
        return msgspec.structs.replace(wake, payload=self.clean(wake.payload))

    def _patch(self, patch: ContextPatch) -> ContextPatch:
        return ContextPatch(self.text(patch.key), self.clean(patch.value), patch.reducer)

    def _task(self, task: TaskRun) -> TaskRun:
        return msgspec.structs.replace(
            task, label=self.text(task.label), error=self.text(task.error)
        )

    def wait(self, wait: Wait) -> Wait:
        """What a parked job waits for by itself."""
        return Wait(self.text(wait.event), self.text(wait.task), self.clean(wait.seen))


def _is_large(answer: Answer) -> bool:
    try:
        return len(_encode(answer)) > BESIDE_BYTES
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):  # nobody knows
        return True


def _seen(text: str) -> Seen:
    return Seen(text, fold(_json(text)).encode("utf-8", "surrogatepass"))


def _json(text: str) -> str:
    try:
        return _encode(text).decode()
    except (ValueError, msgspec.MsgspecError):  # half a character, which JSON cannot have
        return _encode(text.encode("utf-8", "replace").decode()).decode()


def _united(spans: list[Span]) -> list[Span]:
    made: list[Span] = []
    for start, end in sorted(spans):
        if made and start <= made[-1][1]:
            made[-1] = made[-1][0], max(end, made[-1][1])
        else:
            made.append((start, end))
    return made


# -- cutting what a job says -----------------------------------------------------------------


def head_of(text: str, limit: int) -> str:
    """The first `limit` characters, with stars for a secret that the cut would go through."""
    scope = given_to_work()
    split = scope.split_at(text, limit) if scope is not None else None
    return text[:limit] if split is None else text[: split[0]] + STARS


def tail_of(text: str, limit: int) -> str:
    """The last ones, likewise."""
    at = max(0, len(text) - limit)
    scope = given_to_work()
    split = scope.split_at(text, at) if scope is not None else None
    return text[at:] if split is None else STARS + text[split[1] :]


def cleaned_for_store(value: Any) -> Any:
    """A value that a job puts into the store itself: the store is outside."""
    scope = given_to_work()
    return value if scope is None else scope.clean(value)


def brief(value: Any, limit: int = 40) -> str:
    """The beginning of what a value looks like, for messages."""
    try:
        return head_of(repr(value), limit)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number of thousands of digits"
