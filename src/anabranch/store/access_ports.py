"""What the servers need from a store about access: tokens, the audit trail, kept answers.

A secret is never here: a token is known by its id and the SHA-256 of its secret. Audit entries
are numbered in the order of their writing. An answer kept for an idempotency key belongs to the
actor who sent it, so that nobody reads the answers of somebody else by guessing keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """The card of a token; whoever shows it to people leaves out `digest`."""

    id: str
    digest: str  # SHA-256 of the secret, hex
    name: str
    scopes: tuple[str, ...]
    created_at: int
    expires_at: int | None = None
    last_used_at: int | None = None
    revoked_at: int | None = None
    pools: tuple[str, ...] = ()  # for which it may work; empty: for all


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a caller requested. `number` is given by the store."""

    at: int
    actor: str
    action: str
    subject: str = ""  # the run, definition or token it was about
    outcome: str = "done"
    address: str = ""
    detail: str = ""
    number: int = 0


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to list, newest first."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    before: int | None = None  # only numbers below this one: the next page
    limit: int = 100


class KeptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered to a request with an idempotency key."""

    actor: str
    key: str
    body: str  # SHA-256 of the request, hex
    holder: str  # the server process that is or was at it
    expires_at: int
    status: int | None = None  # None while there is no answer
    answer: bytes | None = None


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a request leaves beside what it does to a run, in the commit that does it: its line in
    the audit trail, and the answer under its key."""

    audit: AuditEntry | None = None
    kept: KeptAnswer | None = None


class Access(Protocol):
    def together(self, *, wipe: bool = False) -> AbstractContextManager[None]:
        """What this thread writes in the block is one: durable at its end, or, if the block raises,
        not made at all. What it reads behind its first write has what it wrote; other threads that
        write wait. A block inside a block is part of it. With `wipe` what the writes replace is
        wiped as far as the store can, as it is where one of them asks for it.

        It is for what features keep (definitions, catalog, records, webhooks, credentials, grants,
        access, messages). A turn (`commit`), logs of work and whatever deletes runs are writes of
        their own and have no place in it.
        """

    def add_token(self, token: AccessToken) -> None:
        """Raises `Conflict` when there is a token of this id."""

    def token(self, token_id: str) -> AccessToken | None: ...

    def tokens(self) -> list[AccessToken]:
        """All of them, oldest first; there are few."""

    def revoke_token(self, token_id: str, now: int) -> bool:
        """False when there is none, or when it was revoked before."""

    def use_tokens(self, used: Sequence[tuple[str, int]]) -> None:
        """Note when tokens were used last; an earlier instant than the known one is ignored."""

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Write these durably, in their order, all of them or none."""

    def audit(self, wanted: AuditFilter) -> list[AuditEntry]: ...

    def kept_answer(self, actor: str, key: str, now: int) -> KeptAnswer | None:
        """What stands under this key and is not over at `now`."""

    def claim_key(self, claim: KeptAnswer, now: int) -> KeptAnswer | None:
        """Take this key (None), or get what stands there and is not over at `now`."""

    def keep_answer(self, claim: KeptAnswer) -> bool:
        """Write status and answer to a key that `claim.holder` has taken; False if it has not."""

    def release_key(self, claim: KeptAnswer) -> bool:
        """Give back a key without an answer: nothing was done under it."""

    def forget_access(self, now: int, audit_before: int, limit: int = 1000) -> int:
        """Drop keys that are over and entries made before `audit_before`; returns how many."""
