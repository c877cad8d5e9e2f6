"""Errors of a store that pass: nothing was written, and somebody can mend what is in the way.

A server waits for the end of these; every other error of its store ends it. A database whose server
is away is one of them, and so is one that refuses a password that was right when the engine opened.
"""

from __future__ import annotations

from anabranch.errors import StoreError

AWAY = "store_away"  # the server cannot be reached, or has hung up
READ_ONLY = "store_read_only"
MISSING = "store_missing"  # the database has no store yet
UNSURE = "no_answer"  # no outage: it was sent, its end was not seen, and it may have been written
MENDABLE = frozenset(
    {
        AWAY,
        READ_ONLY,
        "store_busy",
        "store_full",
        "store_no_database",
        "store_password",
        "store_rights",
        "store_slow",
    }
)


def passes(error: StoreError) -> bool:
    return error.code in MENDABLE
