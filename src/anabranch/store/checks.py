"""The refusals every store shares, so that all of them answer in the same words.

A store decides quickly and by its own means whether a batch fits; when it does not, these
functions say which part of it is wrong and why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from anabranch.errors import Conflict, StoreError, UnusableStore
from anabranch.store.ports import Commit, Head


def refusal(head: Head | None, commit: Commit) -> StoreError | None:
    """Why this commit cannot follow that head (None: the run is new), or None when it can."""
    new, run = commit.head, commit.head.run
    if not run or new.seq < 1 or not 0 <= commit.count <= new.seq:
        return StoreError(
            f"malformed commit for run {run!r}: {commit.count} events ending at number {new.seq}",
            code="malformed_commit",
        )
    if head is not None and head.finished:
        return Conflict(
            f"run {run} has finished ({head.status}) and takes no more events; nothing was written",
            code="run_finished",
        )
    stored, expected = (head.seq if head else 0), new.seq - commit.count
    if stored != expected:
        return Conflict(
            f"run {run} ends at event {stored}, but the commit follows event {expected}: "
            "another writer was first; nothing was written"
        )
    if head is not None and birth(head) != birth(new):
        return StoreError(
            f"the commit changes when or by whom run {run} was created, which never changes; "
            "nothing was written",
            code="malformed_commit",
        )
    return None


def birth(head: Head) -> tuple[int, str | None, str | None]:
    """What a run is created with and keeps."""
    return head.created_at, head.parent, head.origin


def answer_refusal(message_id: int, known: bool) -> Conflict:
    if known:
        why = f"message {message_id} has been answered already: another engine was first"
    else:
        why = f"there is no message {message_id} to answer"
    return Conflict(f"{why}; nothing was written", code="message_answered")


def check_payloads(payloads: Mapping[str, bytes]) -> None:
    for sha256, content in payloads.items():
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise StoreError(
                f"payload {sha256} does not match its hash (its content hashes to {found}); "
                "nothing was written",
                code="payload_hash",
            )


def checked_payload(sha256: str, content: bytes) -> bytes:
    """The content as it was put; a store that gives back anything else cannot be trusted."""
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UnusableStore(
            f"payload {sha256} has changed since it was stored: the store is damaged. "
            "Restore it from a backup."
        )
    return content
