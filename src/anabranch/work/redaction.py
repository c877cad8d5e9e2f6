"""Secrets: values that the work may use and nobody may see.

A `Secret` shows its value only to who asks for it by name; printing, formatting or encoding it
gives stars or an error. Templates need the plain text, so it is handed to them on the worker, and
only there. The `Redactor` then stands at the worker's door: it knows every secret that was handed
out and puts stars in its place, in results, faults, context patches and log lines. It also knows a
secret as it looks in a URL, in JSON and inside base64 (the form of basic authentication).

Values shorter than `SHORTEST` are not looked for: stars for every `1` would only destroy results.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

import msgspec

from anabranch.kernel.tracker import ShardReport
from anabranch.kernel.values import Answer, ContextPatch, Fault, WakeRequest

STARS = "***"
SHORTEST = 4  # characters
REMEMBERED = 256
LOGGERS = (  # all that the package uses
    *("anabranch", "anabranch.engine", "anabranch.work.python", "anabranch.market.directory"),
    *("anabranch.http", "anabranch.ui", "anabranch.access", "anabranch.webhooks"),
    *("anabranch.tracing", "anabranch.worker"),
)
_IN_BASE64 = 6  # a shorter one is too easily a part of something else
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")  # the same in all these languages
_URL_SAFE = str.maketrans("+/", "-_")
_encode = msgspec.json.Encoder().encode


class Secret:
    """A text that shows itself only through `reveal()`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({STARS})"

    def __str__(self) -> str:
        return STARS

    def __format__(self, _: str) -> str:
        return STARS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be copied into a file or another process")


class Keyring(Mapping[str, Any]):
    """Secrets by name, nested like the entries they come from. Looking one up reveals it."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return revealed(self._values[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<keyring of {', '.join(self._values) or 'nothing'}>"


def revealed(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    return Keyring(value) if isinstance(value, Mapping) else value


class Redactor:
    """Puts stars where a secret stands.

    Values without secrets come back as they are, after one pass at the speed of C. The last
    `REMEMBERED` secrets are known, by when they were last handed out: a token that was replaced an
    hour ago may still be echoed, and those of last month would only make every look slower.
    """

    def __init__(self) -> None:
        self._known: dict[str, frozenset[bytes]] = {}  # a secret and its probes, oldest first
        self._probes: frozenset[bytes] = frozenset()  # without one of these there is no secret
        self._texts: tuple[str, ...] = ()  # all that are known, longest first
        self._pattern: tuple[tuple[str, ...], re.Pattern[str]] | None = None  # for these texts

    @property
    def knows_any(self) -> bool:
        return bool(self._known)

    def learn(self, value: Any) -> None:
        """Secrets to watch for from now on: a `Secret`, a text, or anything with secrets in it."""
        if isinstance(value, Secret):
            self._learn(value.reveal())
        elif isinstance(value, str):
            self._learn(value)
        elif isinstance(value, Keyring):
            self.learn(value._values)
        elif isinstance(value, Mapping | list | tuple):
            for item in value.values() if isinstance(value, Mapping) else value:
                if not isinstance(item, str):  # beside secrets stand names and addresses
                    self.learn(item)

    def _learn(self, text: str) -> None:
        if len(text) < SHORTEST:
            return
        if text in self._known:
            self._known[text] = self._known.pop(text)
            return
        self._known[text] = frozenset(probes(text))
        while len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        self._probes = frozenset().union(*self._known.values())
        self._texts = tuple(sorted(self._known, key=len, reverse=True))

    def clean(self, value: Any) -> Any:
        """The value with stars; the very same object when there is nothing to hide in it."""
        if not self._known or value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, str):
            return self.text(value)
        try:
            encoded = _encode(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return self._walk(value)  # not JSON: look into it piece by piece
        for probe in self._probes:  # a plain loop: this is on the way of every answer
            if probe in encoded:
                return self._walk(value)
        return value

    def text(self, text: str) -> str:
        texts, made = self._texts, self._pattern  # threads look, too: each at one state of things
        if not texts:
            return text
        if made is None or made[0] is not texts:  # takes long for many, which often come together
            made = self._pattern = texts, re.compile("|".join(map(pattern, texts)))
        return made[1].sub(STARS, text)

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._walk(key): self._walk(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._walk(item) for item in value]
        if isinstance(value, int) and not isinstance(value, bool):
            return STARS if str(value) in self._known else value
        return value

    def answer(self, answer: Answer) -> Answer:
        """What a job reports, fit to be recorded."""
        if not self._known:
            return answer
        return msgspec.structs.replace(
            answer,
            result=self.clean(answer.result),
            fault=self._fault(answer.fault),
            patches=tuple(map(self._patch, answer.patches)),
            shard=self._shard(answer.shard),
            locals=self.clean(answer.locals),
            record=self.clean(answer.record),
            wakes=tuple(map(self._wake, answer.wakes)),
        )

    def _fault(self, fault: Fault | None) -> Fault | None:
        if fault is None:
            return None
        return Fault(
            kind=fault.kind,
            message=self.text(fault.message),
            code=self.text(fault.code),
            retryable=fault.retryable,
            details=self.clean(fault.details),
        )

    def _shard(self, report: ShardReport | None) -> ShardReport | None:
        if report is None:
            return None
        return msgspec.structs.replace(
            report,
            failed=tuple(
                msgspec.structs.replace(
                    failure, key=self.text(failure.key), message=self.text(failure.message)
                )
                for failure in report.failed
            ),
            shared=self.clean(report.shared),
        )

    def _wake(self, wake: WakeRequest) -> WakeRequest:
        return msgspec.structs.replace(wake, payload=self.clean(wake.payload))

    def _patch(self, patch: ContextPatch) -> ContextPatch:
        return ContextPatch(self.text(patch.key), self.clean(patch.value), patch.reducer)


def pattern(secret: str) -> str:
    """A pattern for all the ways a secret may be written, and for mixtures of them."""
    plain = "".join(map(_letter, secret))
    return "|".join([plain, *map(re.escape, _inside_base64(secret))])


def probes(secret: str) -> Iterator[bytes]:
    """Short texts, as JSON writes them, one of which is in every value that has the secret."""
    longest = max(_PLAIN.findall(secret), key=len, default="")
    if len(longest) >= SHORTEST:
        yield longest.encode()
    else:  # nothing but special characters: whatever begins like it has to be looked at
        yield from (_encode(form)[1:-1] for form in _spelled(secret[0]))
    yield from (letters.encode() for letters in _inside_base64(secret))


def _letter(letter: str) -> str:
    if _PLAIN.fullmatch(letter):
        return re.escape(letter)
    spellings = sorted(map(re.escape, _spelled(letter)), key=len, reverse=True)
    return rf"(?:\\*(?:{'|'.join(spellings)}))"  # JSON inside JSON doubles every backslash


def _spelled(letter: str) -> set[str]:
    """One character as itself, in a URL, in JSON, and in HTML."""
    percent = quote(letter.encode("utf-8", "surrogatepass"), safe="")
    return {
        letter,
        percent,
        percent.lower(),
        quote_plus(letter.encode("utf-8", "surrogatepass")),
        json.dumps(letter)[1:-1],
        json.dumps(letter, ensure_ascii=False)[1:-1],
        html.escape(letter),
    }


def _inside_base64(secret: str) -> set[str]:
    """What of a secret is certain in base64, for each of the three ways it may be aligned."""
    raw = secret.encode("utf-8", "surrogatepass")
    if len(raw) < _IN_BASE64:
        return set()
    found = set()
    for shift in range(3):
        whole = (shift + len(raw)) * 8 // 6  # letters that no byte after the secret changes
        spoilt = (0, 2, 3)[shift]  # letters that bytes before it share
        letters = base64.b64encode(b"\0" * shift + raw).decode()[spoilt:whole]
        found |= {letters, letters.translate(_URL_SAFE)}
    return found


def guard_logs(redactor: Redactor) -> Callable[[], None]:
    """Keep secrets out of what the package logs, whoever listens; returns how to stop that.

    On the loggers, not on handlers: those belong to the program, and come and go as it likes.
    """
    guard = RedactingFilter(redactor)
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addFilter(guard)

    def stop() -> None:
        for logger in loggers:
            logger.removeFilter(guard)

    return stop


class RedactingFilter(logging.Filter):
    """For loggers and log handlers: every record passes, without secrets."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        if self._redactor.knows_any:
            record.msg, record.args = self._redactor.text(record.getMessage()), None
            if record.exc_info and not record.exc_text:
                record.exc_text = logging.Formatter().formatException(record.exc_info)
            if record.exc_text:
                record.exc_text = self._redactor.text(record.exc_text)
        return True
