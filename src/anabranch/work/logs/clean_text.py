"""Text that people can be shown: without what terminals obey, and without secrets.

Escape sequences go first. One in the middle of a secret would hide it from the search, and the
secret would be there in full once the sequence is gone.
"""

from __future__ import annotations

import re

from anabranch.work.secrets.redaction import Redactor

REPLACED = "\ufffd"

_ESCAPE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, and where the cursor goes
    "|(?:\x1b\\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"  # titles, links, clipboards
    "|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c\n]*(?:\x1b\\\\|\x9c)?"  # other strings
    "|\x1b[ -/]*[0-~]"
)
# Control characters, marks that turn the direction of text, and halves of characters.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff]"
)
#: From the beginning of a line only: its rest is not looked through from each of its letters.
_OVERWRITTEN = re.compile("^[^\n]*\r(?=[^\n\r])", re.MULTILINE)


def printable(text: str) -> str:
    """The text without control characters but tabs and ends of lines. Of a line that was written
    over again (a progress bar), the last state."""
    if _CONTROL.search(text) is None:
        return text
    text = _ESCAPE.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = _OVERWRITTEN.sub("", text).replace("\r", "")
    return _CONTROL.sub(REPLACED, text)


class SecretsOfLog:
    """The secrets that may be in what one job prints: those that it was given, and all others that
    this process knows."""

    def __init__(self, scope: Redactor | None, everything: Redactor | None) -> None:
        self._scope = scope
        self._everything = everything
        self._own = Redactor(remembered=None)
        self._known = 0

    def _looks_for(self) -> tuple[Redactor, ...]:
        if self._scope is not None and len(self._scope.secrets) != self._known:
            secrets = self._scope.secrets
            self._known = len(secrets)
            for secret in secrets:
                self._own.learn(secret)
        both = (self._own, self._everything)
        return tuple(one for one in both if one is not None and one.knows_any)

    def starred(self, text: str) -> str:
        for redactor in self._looks_for():
            text = redactor.text(text)
        return text

    @property
    def lines_max(self) -> int:
        """How many ends of lines the longest of them has."""
        return max((one.count("\n") for one in self._all()), default=0)

    @property
    def room(self) -> int:
        """How far from a cut a part of one of them can be, in whatever form it is written."""
        longest = max(map(len, self._all()), default=0)
        return 64 + 16 * longest if longest else 0

    def cut_before(self, text: str, at: int) -> int:
        """Where to cut a text, at this place or before it, so that no secret is cut in two."""
        for redactor in self._looks_for():
            split = redactor.split_at(text, at)
            if split is not None:
                at = min(at, split[0])
        return at

    def cut_after(self, text: str, at: int) -> int:
        """The same at this place or behind it."""
        for redactor in self._looks_for():
            split = redactor.split_at(text, at)
            if split is not None:
                at = max(at, split[1])
        return at

    def _all(self) -> list[str]:
        return [secret for one in self._looks_for() for secret in one.secrets]
