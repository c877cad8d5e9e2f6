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
import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

import msgspec

from anabranch.kernel.values import Answer, ContextPatch, Fault

STARS = "***"
SHORTEST = 4  # characters
_IN_BASE64 = 6  # a shorter one is too easily a part of something else
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

    Values without secrets come back as they are, after one pass at the speed of C. Secrets are
    kept for the life of the worker: a token that was replaced yesterday may be echoed today.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._forms: dict[str, bytes] = {}  # how a secret may look → the same inside JSON
        self._pattern: re.Pattern[str] | None = None

    def __len__(self) -> int:
        return len(self._known)

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
        if len(text) < SHORTEST or text in self._known:
            return
        self._known.add(text)
        for form in forms(text):
            self._forms[form] = _encode(form)[1:-1]
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def clean(self, value: Any) -> Any:
        """The value with stars; the very same object when there is nothing to hide in it."""
        if not self._forms or value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, str):
            return self.text(value)
        try:
            encoded = _encode(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return self._walk(value)  # not JSON: look into it piece by piece
        if not any(form in encoded for form in self._forms.values()):
            return value
        return self._walk(value)

    def text(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(STARS, text)

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
        if not self._forms:
            return answer
        return msgspec.structs.replace(
            answer,
            result=self.clean(answer.result),
            fault=self._fault(answer.fault),
            patches=tuple(map(self._patch, answer.patches)),
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

    def _patch(self, patch: ContextPatch) -> ContextPatch:
        return ContextPatch(self.text(patch.key), self.clean(patch.value), patch.reducer)


def forms(secret: str) -> set[str]:
    """The ways a secret may be written."""
    written = {
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
    }
    if len(secret) >= _IN_BASE64:
        written.update(_inside_base64(secret.encode("utf-8", "surrogatepass")))
    return written


def _inside_base64(secret: bytes) -> Iterator[str]:
    """What of a secret is certain in base64, for each of the three ways it may be aligned."""
    for shift in range(3):
        whole = (shift + len(secret)) * 8 // 6  # letters that no byte after the secret changes
        spoilt = (0, 2, 3)[shift]  # letters that bytes before it share
        letters = base64.b64encode(b"\0" * shift + secret).decode()[spoilt:whole]
        yield letters
        yield letters.translate(str.maketrans("+/", "-_"))


class RedactingFilter(logging.Filter):
    """For log handlers: every record passes, without secrets."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        if len(self._redactor):
            record.msg, record.args = self._redactor.text(record.getMessage()), None
            if record.exc_info and not record.exc_text:
                record.exc_text = logging.Formatter().formatException(record.exc_info)
            if record.exc_text:
                record.exc_text = self._redactor.text(record.exc_text)
        return True
