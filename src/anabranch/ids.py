"""Run ids: short, sortable by creation, safe in a shell, a path and a URL. Derived ids."""

from __future__ import annotations

import re
import secrets
import uuid
from functools import lru_cache
from hashlib import sha256

from anabranch.errors import InputError

_CHOSEN = re.compile(r"(?:run:)?[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")  # run: those of a node
_TAKEN = ("last",)  # words with a meaning of their own where a run is asked for
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nothing to misread
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]


def new_run_id(now: int) -> str:
    """Nine letters of time and seven of chance (35 bits a millisecond)."""
    return _letters(now, 9) + _letters(secrets.randbits(35), 7)


def can_name_run(text: str) -> bool:
    """Whether a run can have this id: no store need be asked for any other text."""
    return _CHOSEN.fullmatch(text) is not None


def checked_run_id(text: str) -> str:
    """An id that somebody chose: as safe in a shell, a path and a URL as our own."""
    if not can_name_run(text) or text in _TAKEN:
        raise InputError(
            f"{text[:80]!r} cannot be a run id: use up to 128 letters, digits, - _ . (but not "
            f"{' or '.join(map(repr, _TAKEN))}), the first a letter or a digit",
            code="bad_run_id",
        )
    return text


def _letters(number: int, count: int) -> str:
    letters = ""
    for _ in range(0, count, 2):
        letters = _PAIRS[number & 1023] + letters
        number >>= 10
    return letters[-count:]


_DISPATCHES = uuid.UUID("6f1b7f1e-5b0e-5c3a-9a55-3d1c5a7a0d29")  # a name space of our own


def dispatch_id(run: str, job: str, tries: int = 1) -> str:
    """The id of one request to one participant: the same whenever it is asked for.

    Executions that were lost are the same request; one that failed and is tried again is not.
    """
    return request_key(f"{run}/{job}", tries)


def request_key(work: str, tries: int) -> str:
    """Under which idempotency key a participant is asked: that of the work, and which try it is.
    In a first run this is the id of the dispatch; a redrive has ids of its own and the same key."""
    return f"dispatch:{uuid.uuid5(_DISPATCHES, f'{work}/{tries}')}"


@lru_cache(maxsize=1024)
def run_number(run: str) -> int:
    """A run as a whole number above zero that fits into 64 bits with a sign: the same for the same
    run, wherever and whenever it is asked for. Tables of playbooks have such a column."""
    digest = sha256(run.encode()).digest()
    return int.from_bytes(digest[:8], "big") % (2**63 - 1) + 1
