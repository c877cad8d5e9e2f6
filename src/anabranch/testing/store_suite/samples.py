"""Small heads, commits and batches for tests of stores, and a way to expect a refusal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from anabranch.errors import AnabranchError
from anabranch.store.ports import Batch, Commit, Head

NOW = 1_700_000_000_000


def a_head(run: str, seq: int, **changes: Any) -> Head:
    """A plausible head; `changes` are fields of `Head`."""
    plain = Head(
        run=run,
        definition="d1",
        name="order",
        dialect="noetl",
        status="running",
        seq=seq,
        created_at=NOW,
        updated_at=NOW + seq,
    )
    return msgspec.structs.replace(plain, **changes)


def a_commit(
    run: str, last: int, count: int = 1, *, snapshot: bytes | None = None, **changes: Any
) -> Commit:
    """The events `last - count + 1 … last` of a run."""
    events = msgspec.json.encode([{"n": n} for n in range(last - count + 1, last + 1)])
    head = a_head(run, last, **changes)
    return Commit(head=head, at=NOW + last, events=events, count=count, snapshot=snapshot)


def a_batch(*commits: Commit, **more: Any) -> Batch:
    return Batch(commits=list(commits), **more)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def refused(kind: type[AnabranchError], *words: str) -> Iterator[None]:
    """The block must raise exactly this kind of error, with these words in its message."""
    caught: AnabranchError | None = None
    try:
        yield
    except AnabranchError as error:
        caught = error
    assert type(caught) is kind, f"expected {kind.__name__}, got {caught!r}"
    missing = [word for word in words if word not in caught.message]
    assert not missing, f"{missing} not in {caught.message!r}"
