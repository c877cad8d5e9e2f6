"""The part of a relational store that is about access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.errors import StoreError
from anabranch.store.access_ports import AccessToken, AuditEntry, AuditFilter, KeptAnswer
from anabranch.store.checks import token_exists
from anabranch.store.relational.connection import RelationalPart
from anabranch.store.relational.errors import CONSTRAINT


class RelationalAccess(RelationalPart):
    def add_token(self, token: AccessToken) -> None:
        pools = msgspec.json.encode(token.pools).decode()
        scopes = " ".join(token.scopes)
        fields = {**msgspec.structs.asdict(token), "scopes": scopes, "pools": pools}
        try:
            with self._transaction() as db:
                db.execute(self.sql["add_token"], fields)
        except StoreError as error:
            if error.code == CONSTRAINT and self.token(token.id) is not None:
                raise token_exists(token.id) from None
            raise

    def token(self, token_id: str) -> AccessToken | None:
        rows = self._rows(self.sql["token"], {"id": token_id})
        return _token(rows[0]) if rows else None

    def tokens(self) -> list[AccessToken]:
        return [_token(row) for row in self._rows(self.sql["tokens"], {})]

    def revoke_token(self, token_id: str, now: int) -> bool:
        return self._changed("revoke_token", {"id": token_id, "now": now})

    def use_tokens(self, used: Sequence[tuple[str, int]]) -> None:
        rows = [{"id": token_id, "now": now} for token_id, now in sorted(used)]  # as others do
        with self._transaction() as db:
            db.executemany(self.sql["use_token"], rows)

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        rows = [msgspec.structs.asdict(entry) for entry in entries]
        with self._transaction() as db:
            db.executemany(self.sql["add_audit"], rows)

    def audit(self, wanted: AuditFilter) -> list[AuditEntry]:
        name = "audit" if wanted.subject is None else "audit_of_subject"
        fields = {**msgspec.structs.asdict(wanted), "limit": max(wanted.limit, 0)}
        return [_entry(row) for row in self._rows(self.sql[name], fields)]

    def kept_answer(self, actor: str, key: str, now: int) -> KeptAnswer | None:
        rows = self._rows(self.sql["kept_answer"], {"actor": actor, "key": key})
        found = _kept(rows[0]) if rows else None
        return found if found is not None and found.expires_at > now else None

    def claim_key(self, claim: KeptAnswer, now: int) -> KeptAnswer | None:
        fields = msgspec.structs.asdict(claim)
        with self._transaction() as db:
            if db.execute(self.sql["claim_key"], {**fields, "now": now}).rowcount == 1:
                return None
            return _kept(db.execute(self.sql["kept_answer"], fields).fetchone())

    def keep_answer(self, claim: KeptAnswer) -> bool:
        return self._changed("keep_answer", msgspec.structs.asdict(claim))

    def release_key(self, claim: KeptAnswer) -> bool:
        return self._changed("release_key", msgspec.structs.asdict(claim))

    def forget_access(self, now: int, audit_before: int, limit: int = 1000) -> int:
        with self._transaction() as db:
            keys = db.execute(self.sql["forget_keys"], {"now": now, "limit": limit})
            old = db.execute(self.sql["forget_audit"], {"before": audit_before, "limit": limit})
            return keys.rowcount + old.rowcount

    def _changed(self, name: str, fields: Mapping[str, Any]) -> bool:
        with self._transaction() as db:
            return db.execute(self.sql[name], fields).rowcount == 1


def _token(row: Sequence[Any]) -> AccessToken:
    token_id, digest, name, scopes, created_at, expires_at, last_used_at, revoked_at, pools = row
    return AccessToken(
        id=token_id,
        digest=digest,
        name=name,
        scopes=tuple(scopes.split()),
        created_at=created_at,
        expires_at=expires_at,
        last_used_at=last_used_at,
        revoked_at=revoked_at,
        pools=msgspec.json.decode(pools, type=tuple[str, ...]),
    )


def _entry(row: Sequence[Any]) -> AuditEntry:
    number, at, actor, action, subject, outcome, address, detail = row
    return AuditEntry(
        number=number,
        at=at,
        actor=actor,
        action=action,
        subject=subject,
        outcome=outcome,
        address=address,
        detail=detail,
    )


def _kept(row: Sequence[Any]) -> KeptAnswer:
    actor, key, body, holder, expires_at, status, answer = row
    return KeptAnswer(
        actor=actor,
        key=key,
        body=body,
        holder=holder,
        expires_at=expires_at,
        status=status,
        answer=answer,
    )
