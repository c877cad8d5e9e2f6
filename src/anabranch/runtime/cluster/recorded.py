"""Whether a batch is in the store, for an engine that lost its partitions while it was written.

Nothing but the log can tell: other servers may have written since. A batch is written as a whole,
so one row of it tells for all.
"""

from __future__ import annotations

from anabranch.store.ports import Batch, Record, Store


def is_recorded(store: Store, batch: Batch) -> bool:
    """The events of another server at that place are others, or of another instant."""
    for commit in batch.commits:
        if commit.count:
            before = commit.head.seq - commit.count
            row = Record(before + 1, commit.count, commit.at, commit.events)
            return store.read(commit.head.run, before, 1) == [row]
    for number, answer in batch.answers.items():
        message = store.message(number)
        return message is not None and message.answer == answer
    return False
