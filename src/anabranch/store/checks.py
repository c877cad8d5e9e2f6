"""The refusals every store shares, so that all of them answer in the same words.

A store decides quickly and by its own means whether a batch fits; when it does not, these
functions say which part of it is wrong and why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from anabranch.errors import Conflict, InputError, StoreError, UnusableStore
from anabranch.store.ports import Commit, Head, Hold
from anabranch.store.stream_ports import StreamCard, StreamCommit

NAME_BYTES_MAX = 2000  # the indexes of a database take a little more


def require_storable(name: str, sealed: Iterable[str]) -> None:
    """The name of a run and the keys of what is `sealed` beside it are texts of its first commit,
    and all runs of a turn are written together: a text that some store does not take is refused
    before it can be in the way of the others. Raises `InputError`."""
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        said = f"the name {name[:40]!r} of the definition has more than {NAME_BYTES_MAX:,} bytes"
        raise InputError(said, code="not_storable")
    for text in (name, *sealed):
        if "\0" in text:
            said = f"{text[:40]!r} has a zero byte in it: no name and no key of a secret may"
            raise InputError(said, code="not_storable")


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
    if head is not None and not (
        head.created_at == new.created_at
        and head.parent == new.parent
        and head.origin == new.origin
        and head.name == new.name
        and head.labels == new.labels
    ):
        return StoreError(
            f"the commit changes when or by whom run {run} was created, its name or its labels, "
            "which never change; nothing was written",
            code="malformed_commit",
        )
    return None


def stream_refusal(
    card: StreamCard | None, commit: StreamCommit, *, again: bool = False
) -> StoreError | None:
    """Why these events cannot follow that card (None: the stream is new), or None when they can;
    `again` says that the batch has events for the stream already."""
    new, name = commit.card, commit.card.stream
    anew = commit.forgets is not None and new.seq != commit.count
    if not name or not new.family or not 1 <= commit.count <= new.seq or anew or again:
        return StoreError(
            f"malformed commit for stream {name!r}: {commit.count} events ending at number "
            f"{new.seq}" + (", and others before them" if again else ""),
            code="malformed_commit",
        )
    stored, expected = (card.seq if card else 0), commit.expected
    if stored != expected:
        return Conflict(
            f"stream {name} ends at event {stored}, but the commit follows event {expected}: "
            "another writer was first; nothing was written"
        )
    if card is not None and birth_of(card) != birth_of(new):
        return StoreError(
            f"the commit changes the family of stream {name} or when it was created; "
            "nothing was written",
            code="malformed_commit",
        )
    return None


def streams_refusal(
    commits: Sequence[StreamCommit], stored: Callable[[str], StreamCard | None]
) -> StoreError | None:
    """Why the first of these that cannot be written cannot, or None when all of them can."""
    seen: set[str] = set()
    for commit in commits:
        name = commit.card.stream
        refused = stream_refusal(stored(name), commit, again=name in seen)
        if refused is not None:
            return refused
        seen.add(name)
    return None


def birth_of(card: StreamCard) -> tuple[str, int]:
    """What a stream is created with and keeps."""
    return card.family, card.created_at


def card_refusal(card: StreamCard) -> Conflict:
    return Conflict(
        f"stream {card.stream} does not end at event {card.seq} any more, or is another one; "
        "nothing was written"
    )


def no_streams() -> StoreError:
    return StoreError(
        "several servers share this store, and a node keeps its state in a file of its own; "
        "nothing was written",
        code="shared_store",
    )


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


SCOPES = 5  # of holds: a run has at most so many on one payload


def whole_hashes(holds: Sequence[Hold], limit: int) -> list[Hold]:
    """A page of holds in order of their hashes, without the last hash where it may go on."""
    most = max(limit, SCOPES)
    if len(holds) <= most:
        return list(holds)
    return [hold for hold in holds[:most] if hold.sha256 != holds[most].sha256]


def token_exists(token_id: str) -> Conflict:
    return Conflict(f"there is a token {token_id} already; nothing was written")


def credential_exists(name: str) -> Conflict:
    return Conflict(
        f"there is a credential {name!r} already; nothing was written. `anabranch credential "
        f"rotate {name}` gives it another value"
    )


def hook_exists(hook_id: str) -> Conflict:
    return Conflict(f"there is a webhook {hook_id} already; nothing was written")


def version_exists(path: str, version: int) -> Conflict:
    return Conflict(
        f"another caller has just registered version {version} of {path!r}; nothing was "
        "written: register it again"
    )


def log_conflict() -> Conflict:
    return Conflict("another writer has written logs of this run; nothing was written")
