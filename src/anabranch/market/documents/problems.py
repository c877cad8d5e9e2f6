"""Problems of a document: where, a stable code, and what to change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.net.problems import CODES as TEXT_CODES

#: Further problems of one document are counted and not listed.
PROBLEMS_MAX = 100
SHOWN_MAX = 60
_KEY_KEPT = 64  # characters of a key whose escaped form is kept

#: Codes of what is wrong with a text, which definitions have, too.
_OF_TEXT = (
    "syntax", "empty", "not-utf8", "bad-character", "several-documents", "bad-alias", "bad-merge",
    "bad-key", "duplicate-key", "unknown-tag", "bad-value",
)  # fmt: skip

#: Every code a problem of a document can have. They are stable: scripts may rely on them.
CODES: Mapping[str, str] = {
    **{code: TEXT_CODES[code] for code in _OF_TEXT},
    "no-file": "a file that cannot be read",
    # the value as such
    "not-json": "a value that JSON does not have: a key that is no text, a set, bytes",
    "too-deep": "more nesting than the limit",
    "too-large": "more text than the limit",
    "too-many-values": "more values than the limit",
    "half-character": "half of a surrogate pair, which is no character",
    "too-many-problems": "more problems than are listed",
    # which document it is
    "not-an-object": "a document that is no object",
    "unknown-kind": "no kind of document has this schema or these fields",
    # fields
    "missing-field": "a field that must be there, always or because of another field",
    "unknown-field": "a field that a closed document does not have",
    "forbidden-field": "a field that another field rules out",
    "conflicting-fields": "several fields of which exactly one must be there",
    "conflicting-values": "fields that are right alone and contradict each other",
    # values
    "wrong-type": "a value of another type than the field takes",
    "wrong-value": "a field that must have one fixed value",
    "bad-choice": "a word that is not one of the choices",
    "bad-number": "a number outside its range, beyond 2^53 - 1, or not finite",
    "bad-text": "a text of another form or length than the field takes",
    "bad-list": "a list with too few, too many or repeated entries",
    "bad-time": "not an RFC 3339 time",
    "bad-identity": "not an identity such as participant:did:key:z6Mk…",
    "wrong-role": "the identity of another role than the field takes",
    "bad-digest": "not sha256: and 43 characters of base64url",
    "bad-base64": "not standard base64 with padding",
    "bad-path": "a path that is not relative, or leaves its folder",
    "bad-endpoint": "an address that is not on this machine",
    # meaning
    "times-out-of-order": "a time that must come after another and does not",
    "expired": "not valid any more at the given instant",
    "not-yet-valid": "not valid yet at the given instant",
    "too-many-hops": "a relay that has gone further than relays go",
    "wrong-digest": "a digest that is not that of the bytes",
    "wrong-size": "a size that is not that of the bytes",
    "wrong-sum": "amounts that do not add up",
    "unknown-reference": "the name of something that the document does not have",
    "stage-loop": "stages that lead back to themselves",
    # signatures
    "bad-signature": "a signature of the wrong form, or a placeholder",
    "wrong-signature": "a signature that is not that of the key which must sign",
    "not-signable": "a value that signed documents cannot hold, such as a number with a point",
    "signature-unchecked": "the package for signatures is not installed",
}


class DocumentProblem(msgspec.Struct, frozen=True):
    """One thing wrong in a document: `path` is a JSON pointer, "" for the whole."""

    path: str
    code: str
    message: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{where}{self.code}: {self.message}"


class InvalidDocument(InputError):
    """A document that cannot be taken; `problems` lists everything that is wrong with it."""

    code = "invalid_document"

    def __init__(self, kind: str, problems: list[DocumentProblem]) -> None:
        self.problems = problems
        first = "; ".join(str(problem) for problem in problems[:3])
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        super().__init__(f"{kind}: {first}{more}")


class Found:
    """The problems found so far, and what the document is checked against."""

    def __init__(self, at: int | None = None, *, draft: bool = False) -> None:
        self.at = at  # milliseconds since the epoch; None: no instant is given
        self.draft = draft  # whether the host has still to fill in and sign
        self._problems: dict[DocumentProblem, None] = {}
        self._left_out = 0

    def add(self, path: str, code: str, message: str) -> None:
        problem = DocumentProblem(path, code, message)
        if problem in self._problems:
            return
        if len(self._problems) < PROBLEMS_MAX:
            self._problems[problem] = None
        else:
            self._left_out += 1

    @property
    def is_full(self) -> bool:
        """Further problems are only counted: their messages need not be made with care."""
        return len(self._problems) >= PROBLEMS_MAX

    def __len__(self) -> int:
        return len(self._problems) + self._left_out

    def has(self, path: str) -> bool:
        """Whether something is wrong there or below."""
        below = f"{path}/"
        return any(each.path == path or each.path.startswith(below) for each in self._problems)

    def problems(self) -> list[DocumentProblem]:
        if not self._left_out:
            return list(self._problems)
        message = f"{self._left_out:,} further problems are not listed; mend these first"
        return [*self._problems, DocumentProblem("", "too-many-problems", message)]


def below(path: str, key: str | int) -> str:
    """The JSON pointer of a part."""
    text = str(key)
    return f"{path}/{_known_key(text) if len(text) <= _KEY_KEPT else _escaped(text)}"


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


#: The same few keys stand in every document.
_known_key = lru_cache(maxsize=4096)(_escaped)


def shown(value: Any) -> str:
    """A value in a message: short, on one line, and never all of a large one."""
    match value:
        case str():
            text = ascii(value[:SHOWN_MAX]) if not value.isprintable() else repr(value[:SHOWN_MAX])
            return text if len(value) <= SHOWN_MAX else f"{text[:-1]}…{text[-1]}"
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case dict():
            return "an object"
        case list():
            return "a list"
        case int() if value.bit_length() > 200:
            return "a number of more than 60 digits"
    return repr(value)[:SHOWN_MAX]
