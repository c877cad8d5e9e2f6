"""Run ids: short, sortable by creation, safe in a shell, a path and a URL."""

from __future__ import annotations

import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: nothing to misread


def new_run_id(now: int) -> str:
    """Nine letters of time and seven of chance (35 bits a millisecond)."""
    return _letters(now, 9) + _letters(secrets.randbits(35), 7)


def _letters(number: int, count: int) -> str:
    letters = []
    for _ in range(count):
        number, digit = divmod(number, 32)
        letters.append(_ALPHABET[digit])
    return "".join(reversed(letters))
