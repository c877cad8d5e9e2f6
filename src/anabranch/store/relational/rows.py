"""Rows of a relational store as the values they stand for, filters as the conditions they set.

`run_labels` has a row for each label of each run, in the order of lists: label, begin, run. A label
is a number made of its key and value, so that a row is small and no label is too long for an index.
Two labels with the same number do no harm: whoever finds a run by one asks for the label itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache, partial
from hashlib import blake2b
from typing import Any

import msgspec

from anabranch.store.ports import Definition, DefinitionCard, Head, HeadFilter, Message
from anabranch.store.relational.connection import Row

LABEL_COLUMNS = ("label", "labelled_at", "labelled_run")
_LAST_WITH_CASE = 0x1E943  # of Unicode, an Adlam letter
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode


def conditions_of(wanted: HeadFilter) -> dict[str, dict[str, Any]]:
    """The conditions a filter really states, each with its parameters."""
    found: dict[str, dict[str, Any]] = {}
    for name in ("statuses", "labels"):
        if value := getattr(wanted, name):
            plain = dict(value) if isinstance(value, Mapping) else list(value)
            found[name] = {name: msgspec.json.encode(plain).decode()}
    if wanted.labels:
        pairs = [
            msgspec.json.encode({one: text})[1:-1].decode() for one, text in wanted.labels.items()
        ]
        found["labels"]["label_pairs"] = msgspec.json.encode(pairs).decode()
    for name in ("dialect", "name", "parent"):
        if (value := getattr(wanted, name)) is not None:
            found[name] = {name: value}
    if wanted.redriven is not None:
        found["redriven" if wanted.redriven else "not_redriven"] = {}
    if wanted.run_prefix:
        found["run_prefix"] = {"run_prefix": wanted.run_prefix}
    for name in ("ended_before", "created_after", "created_before"):
        if (value := getattr(wanted, name)) is not None:
            found[name] = {name: value}
    if wanted.before is not None:
        found["before"] = {"before_at": wanted.before[0], "before_run": wanted.before[1]}
    return found


def like_word(word: str) -> str:
    """One word of a search as a pattern of `LIKE`, which knows both cases of A to Z only."""
    for special in ("\\", "%", "_"):
        word = word.replace(special, f"\\{special}")
    return f"%{word}%"


def glob_word(word: str) -> str:
    """A pattern of SQLite's `GLOB`: every letter in both cases."""
    letters = (_either_case(one) or (f"[{one}]" if one in "*?[" else one) for one in word)
    return f"*{''.join(letters)}*"


def regex_word(word: str) -> str:
    """The same as a regular expression."""
    return "".join(_either_case(one) or re.escape(one) for one in word)


def _either_case(letter: str) -> str:
    """The set of its forms, where there are several; "" where there are not. For a letter of A to Z
    these are two, as `LIKE` has it."""
    forms = dict.fromkeys((letter, letter.lower(), letter.upper()))
    if letter > "\x7f":
        folded = letter.casefold()
        forms |= dict.fromkeys((folded, *_folded_letters().get(folded, "")))
    found = "".join(one for one in forms if len(one) == 1)
    return f"[{found}]" if len(found) > 1 else ""


@cache
def _folded_letters() -> Mapping[str, str]:
    """By what Unicode folds them to, the letters that this changes. Some differ from both of their
    cases: a small sigma at the end of a word, the `ẞ` of capitals, the `ǅ` of titles."""
    found: defaultdict[str, str] = defaultdict(str)
    for letter in map(chr, range(0x80, _LAST_WITH_CASE + 1)):
        if (folded := letter.casefold()) != letter:
            found[folded] += letter
    return found


#: A damaged text must not keep the rows around it from being read. It is called for every text of
#: every row, so it is no function of Python.
lenient_text = partial(str, encoding="utf-8", errors="replace")


def head_of(row: Row) -> Head:
    """A row that cannot be read in full is listed all the same, and says so."""
    try:
        labels, damage = _decode_labels(row[9]), ""
    except ValueError:
        labels, damage = {}, "the labels of its head cannot be decoded"
    return Head(
        run=row[0],
        definition=row[1],
        name=row[2],
        dialect=row[3],
        status=row[4],
        seq=row[5],
        created_at=row[6],
        updated_at=row[7],
        next_wake=row[8],
        labels=labels,
        parent=row[10],
        origin=row[11],
        finished=bool(row[12]),
        damage=damage,
        problems=row[13],
        reason=row[14],
    )


def label_number(key: str, value: str) -> int:
    """Stored: it must stay the same in every version."""
    digest = blake2b(msgspec.json.encode([key, value]), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def label_numbers(labels: Mapping[str, str]) -> list[int]:
    return sorted({label_number(key, value) for key, value in labels.items()})


def label_rows(run: str, created_at: int, labels: Mapping[str, str]) -> list[Row]:
    """The rows of a run, each once."""
    return [(label, created_at, run) for label in label_numbers(labels)]


def labels_in(stored: str) -> dict[str, str]:
    """Those of a head; none where they cannot be read."""
    try:
        return _decode_labels(stored)
    except ValueError:
        return {}


def definition_of(row: Row) -> Definition:
    fingerprint, dialect, name, source, origin, created_at = row
    return Definition(
        fingerprint=fingerprint,
        dialect=dialect,
        name=name,
        source=source,
        origin=origin,
        created_at=created_at,
    )


def card_of(row: Row) -> DefinitionCard:
    fingerprint, dialect, name, origin, created_at = row
    return DefinitionCard(
        fingerprint=fingerprint, dialect=dialect, name=name, origin=origin, created_at=created_at
    )


def message_of(row: Row) -> Message:
    message_id, run, body, posted_at, answer = row
    return Message(id=message_id, run=run, body=body, posted_at=posted_at, answer=answer)
