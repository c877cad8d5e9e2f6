"""The part of the reference store that is about access."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from anabranch.store.access_ports import (
    AccessToken,
    AuditEntry,
    AuditFilter,
    KeptAnswer,
    RequestRecord,
)
from anabranch.store.checks import token_exists
from anabranch.store.memory.part import MemoryPart


class MemoryAccess(MemoryPart):
    """A part of `MemoryStore`."""

    def __init__(self) -> None:
        super().__init__()
        self._tokens: dict[str, AccessToken] = {}
        self._audit: dict[int, AuditEntry] = {}
        self._last_entry = 0
        self._kept: dict[tuple[str, str], KeptAnswer] = {}

    def add_token(self, token: AccessToken) -> None:
        with self._open():
            if token.id in self._tokens:
                raise token_exists(token.id)
            self._tokens[token.id] = token

    def token(self, token_id: str) -> AccessToken | None:
        with self._open():
            return self._tokens.get(token_id)

    def tokens(self) -> list[AccessToken]:
        with self._open():
            return sorted(self._tokens.values(), key=lambda token: (token.created_at, token.id))

    def revoke_token(self, token_id: str, now: int) -> bool:
        with self._open():
            token = self._tokens.get(token_id)
            if token is None or token.revoked_at is not None:
                return False
            self._tokens[token_id] = replace(token, revoked_at=now)
            return True

    def use_tokens(self, used: Sequence[tuple[str, int]]) -> None:
        with self._open():
            for token_id, now in used:
                if token := self._tokens.get(token_id):
                    last = max(token.last_used_at or 0, now)
                    self._tokens[token_id] = replace(token, last_used_at=last)

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        with self._open():
            for entry in entries:
                self._last_entry += 1
                self._audit[self._last_entry] = replace(entry, number=self._last_entry)

    def audit(self, wanted: AuditFilter) -> list[AuditEntry]:
        with self._open():
            newest = [self._audit[number] for number in sorted(self._audit, reverse=True)]
        return [entry for entry in newest if _fits(entry, wanted)][: max(wanted.limit, 0)]

    def kept_answer(self, actor: str, key: str, now: int) -> KeptAnswer | None:
        with self._open():
            known = self._kept.get((actor, key))
            return known if known is not None and known.expires_at > now else None

    def claim_key(self, claim: KeptAnswer, now: int) -> KeptAnswer | None:
        with self._open():
            known = self._kept.get((claim.actor, claim.key))
            if known is not None and known.expires_at > now:
                return known
            self._kept[claim.actor, claim.key] = replace(claim, status=None, answer=None)
            return None

    def keep_answer(self, claim: KeptAnswer) -> bool:
        with self._open():
            if not self._holds_key(claim):
                return False
            known = self._kept[claim.actor, claim.key]
            kept = replace(known, status=claim.status, answer=claim.answer)
            self._kept[claim.actor, claim.key] = kept
            return True

    def release_key(self, claim: KeptAnswer) -> bool:
        with self._open():
            if not self._holds_key(claim):
                return False
            del self._kept[claim.actor, claim.key]
            return True

    def forget_access(self, now: int, audit_before: int, limit: int = 1000) -> int:
        with self._open():
            over = [key for key, kept in self._kept.items() if kept.expires_at <= now]
            over.sort(key=lambda key: self._kept[key].expires_at)
            old = [number for number, entry in self._audit.items() if entry.at < audit_before]
            old.sort(key=lambda number: self._audit[number].at)
            for key in over[:limit]:
                del self._kept[key]
            for number in old[:limit]:
                del self._audit[number]
            return len(over[:limit]) + len(old[:limit])

    def _write_requests(self, requests: Sequence[RequestRecord]) -> None:
        self.add_audit([one.audit for one in requests if one.audit is not None])
        self._kept |= {(one.kept.actor, one.kept.key): one.kept for one in requests if one.kept}

    def _holds_key(self, claim: KeptAnswer) -> bool:
        known = self._kept.get((claim.actor, claim.key))
        return known is not None and known.holder == claim.holder and known.status is None


def _fits(entry: AuditEntry, wanted: AuditFilter) -> bool:
    return (
        (wanted.actor is None or entry.actor == wanted.actor)
        and (wanted.action is None or entry.action == wanted.action)
        and (wanted.subject is None or entry.subject == wanted.subject)
        and (wanted.before is None or entry.number < wanted.before)
    )
