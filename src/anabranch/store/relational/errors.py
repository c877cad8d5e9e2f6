"""Errors that the shared parts look at or raise; among them that of a store that is none yet.

While `store copy` makes a store it has a table `copying`, which says of what it is a copy and how
far that is. An engine that opened it would begin with a part of the runs, so whoever opens it is
told how the copy goes on. The table is dropped in the transaction that makes the copy a store.
"""

from __future__ import annotations

from anabranch.errors import UnusableStore

CONSTRAINT = "store_constraint"
COPYING = "copying"
UNFINISHED_COPY = "store_unfinished_copy"

CREATE = f"CREATE TABLE {COPYING} (part TEXT NOT NULL PRIMARY KEY, said TEXT NOT NULL)"
SOURCE = f"SELECT said FROM {COPYING} WHERE part = 'source'"


def unfinished_copy(shown: str, source: str) -> UnusableStore:
    return UnusableStore(
        f"{shown} is an unfinished copy of {source}, and no store yet: "
        f"`anabranch store copy {source} {shown}` goes on with it",
        code=UNFINISHED_COPY,
    )
