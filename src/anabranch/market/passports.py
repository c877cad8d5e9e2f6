"""Capability passports: signed statements that a node may do something, and their revocations.

All of this must hold before a passport counts: it has the fields and no odd types; the issuer
signed it; it is for the capability that is asked for; its time has come and has not passed; it is
not revoked; the issuer may say so here. Whatever is in doubt does not count, except a revocation:
one that is signed by who may revoke counts at once, whatever else it says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.identities import SigningKey, is_signed_by, public_key

PASSPORT = "capability-passport.v1"
REVOCATION = "capability-passport-revocation.v1"
NOT_SIGNED = ("issuer_delegation",)
LEDGER, NAMESPACES = "network-ledger", "account_namespaces"

CAPABILITY = re.compile(
    r"~?[a-z0-9][a-z0-9_/-]*(@(participant|node|org):did:key:z[1-9A-HJ-NP-Za-km-z]+)?"
)
_TEXTS = ("passport_id", "node_id", "capability_id", "issued_at", "issuer/participant_id")
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXT_MAX = 1024  # characters of an id or a time

Key = tuple[str, str, str]  # the id alone is not enough: anybody can write any id into a passport


class Passport(msgspec.Struct, frozen=True):
    """A passport whose form is right and whose signature holds."""

    passport_id: str
    node_id: str
    capability_id: str
    issuer: str
    issued_at: int
    expires_at: int | None
    scope: Mapping[str, Any] = {}

    @property
    def key(self) -> Key:
        return self.passport_id, self.issuer, self.node_id


class Issuers(msgspec.Struct, frozen=True):
    """Who may issue here: those on the list, and operators for their own nodes."""

    allowed: frozenset[str] = frozenset()
    operators: Mapping[str, str] = {}  # node → participant

    def may_issue(self, passport: Passport) -> bool:
        own = self.operators.get(passport.node_id)
        return passport.issuer in self.allowed or passport.issuer == own


def read_passport(document: Any) -> Passport:
    """Raises `InputError` with the one thing that is wrong."""
    if not isinstance(document, dict) or document.get("schema") != PASSPORT:
        raise InputError(f"this is not a {PASSPORT}")
    for key in _TEXTS:
        text = document.get(key)
        if not isinstance(text, str) or not 0 < len(text) <= _TEXT_MAX:
            raise InputError(f"a passport without `{key}`")
    if not document["passport_id"].startswith("passport:capability:"):
        raise InputError("`passport_id` must start with passport:capability:")
    if not CAPABILITY.fullmatch(document["capability_id"]):
        raise InputError(f"{document['capability_id'][:80]!r} is no capability")
    if not isinstance(document.get("scope"), dict):
        raise InputError("a passport without `scope`")
    _require_role(document["node_id"], "node", "`node_id`")
    issuer = document["issuer/participant_id"]
    _require_role(issuer, "participant", "the issuer")
    issued = instant(document["issued_at"], "issued_at")
    expires = document.get("expires_at")
    ends = None if expires is None else instant(expires, "expires_at")
    if not is_signed_by(document, issuer, NOT_SIGNED):
        raise InputError("the signature does not hold")
    _check_scope(document["capability_id"], document["scope"])
    return Passport(
        document["passport_id"],
        document["node_id"],
        document["capability_id"],
        issuer,
        issued,
        ends,
        document["scope"],
    )


def _check_scope(capability: str, scope: Mapping[str, Any]) -> None:
    """Which accounts a ledger may keep belongs to its passport, and to no other one."""
    ledger = capability.partition("@")[0] == LEDGER
    if not ledger:
        if NAMESPACES in scope:
            raise InputError(f"`scope.{NAMESPACES}` is only for {LEDGER}")
        return
    found = scope.get(NAMESPACES)
    named = isinstance(found, list) and all(isinstance(each, str) and each for each in found)
    if not named or not found:
        raise InputError(f"a passport for {LEDGER} needs `scope.{NAMESPACES}`, a list of names")


def _require_role(name: str, role: str, what: str) -> None:
    """The key of a node is none of a participant, even where both are the same number."""
    if not name.startswith(f"{role}:"):
        raise InputError(f"{what} must be a {role}")
    public_key(name)


def instant(text: Any, what: str) -> int:
    """Milliseconds since the epoch of an RFC 3339 time."""
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        raise InputError(f"`{what}` is {str(text)[:40]!r}, which is no time with a time zone")
    try:
        return _milliseconds(text)
    except ValueError:
        raise InputError(f"`{what}` is {text[:40]!r}, which is no time") from None


@lru_cache(maxsize=4096)  # every rule of a document reads its times
def _milliseconds(text: str) -> int:
    return (datetime.fromisoformat(text.upper()) - _EPOCH) // timedelta(milliseconds=1)


def read_revocation(document: Any, issued: Mapping[str, Collection[Passport]]) -> list[Key]:
    """The passports that are revoked, if whoever says so may; `issued` are those of each id."""
    if not isinstance(document, dict) or document.get("schema") != REVOCATION:
        raise InputError(f"this is not a {REVOCATION}")
    named = document.get("passport_id")
    if not isinstance(named, str) or document.get("target_id") is not None:
        raise InputError("a revocation names one `passport_id`")
    if named not in issued:
        raise InputError(f"no passport {named[:80]!r} is known here")
    revoked = [
        passport.key
        for passport in issued[named]
        if (signer := _revoker(document.get("signed_by"), passport))
        and is_signed_by(document, signer, NOT_SIGNED)
    ]
    if not revoked:
        raise InputError("the signature does not hold")
    return revoked


def _revoker(signed_by: Any, passport: Passport) -> str:
    """Who has to have signed: the issuer, or the node that it is about with its own key."""
    match signed_by:
        case "issuer":
            return passport.issuer
        case "subject":
            return passport.node_id
        case _:
            return ""


def problem_of(passport: Passport, now: int, revoked: Collection[Key], issuers: Issuers) -> str:
    """Why the passport does not count now, or nothing."""
    if passport.key in revoked:
        return "it is revoked"
    if passport.issued_at > now:
        return "it is not valid yet"
    if passport.expires_at is not None and passport.expires_at <= now:
        return "it has expired"
    if not issuers.may_issue(passport):
        return f"{passport.issuer} may not issue it here"
    return ""


def passports_in(value: Any) -> Iterable[Any]:
    """The passports of a list, of `{"passports": […]}` or of the rows of a directory."""
    if isinstance(value, Mapping):
        value = value.get("items", value.get("passports", []))
    for row in value if isinstance(value, list) else []:
        yield row.get("passport", row) if isinstance(row, Mapping) else row


# -- making them -----------------------------------------------------------------------------


def issue_passport(
    issuer: SigningKey,
    node_id: str,
    capability_id: str,
    *,
    issued_at: str,
    expires_at: str | None = None,
    passport_id: str = "",
    scope: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A signed passport; what could not be read again is refused."""
    document = passport_draft(
        issuer.identity("participant"),
        issuer.identity("node"),
        node_id,
        capability_id,
        issued_at=issued_at,
        expires_at=expires_at,
        passport_id=passport_id,
        scope=scope,
    )
    signed = issuer.sign(document, NOT_SIGNED)
    read_passport(signed)
    return signed


def passport_draft(
    issuer: str,
    issuer_node: str,
    node_id: str,
    capability_id: str,
    *,
    issued_at: str,
    expires_at: str | None = None,
    passport_id: str = "",
    scope: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A passport that its issuer has yet to sign."""
    named = passport_id or f"passport:capability:{capability_id}:{node_id.rpartition(':')[2]}"
    return {
        "schema": PASSPORT,
        "passport_id": named,
        "node_id": node_id,
        "capability_id": capability_id,
        "scope": dict(scope or {}),
        "issued_at": issued_at,
        "expires_at": expires_at,
        "issuer/participant_id": issuer,
        "issuer/node_id": issuer_node,
        "revocation_ref": None,
    }


def renew_passport(
    issuer: SigningKey, passport: Mapping[str, Any], *, issued_at: str, expires_at: str
) -> dict[str, Any]:
    """The same passport for another time: of two with one id the one issued later counts."""
    before = read_passport(dict(passport))
    if issuer.identity("participant") != before.issuer:
        raise InputError(f"only its issuer can renew it, which is {before.issuer}")
    if instant(issued_at, "issued_at") <= before.issued_at:
        raise InputError("it was issued at that time or later; check the clock of this machine")
    renewed = {**passport, "issued_at": issued_at, "expires_at": expires_at}
    signed = issuer.sign(renewed, NOT_SIGNED)
    read_passport(signed)
    return signed


def revoke_passport(
    signer: SigningKey, passport: Mapping[str, Any], *, revoked_at: str
) -> dict[str, Any]:
    """A signed revocation: by the issuer, or by the node with its own key."""
    by_issuer = signer.identity("participant") == passport["issuer/participant_id"]
    return signer.sign(revocation_draft(passport, by_issuer=by_issuer, revoked_at=revoked_at))


def revocation_draft(
    passport: Mapping[str, Any], *, by_issuer: bool, revoked_at: str
) -> dict[str, Any]:
    """A revocation that the issuer of the passport, or else its node, has yet to sign."""
    document = {
        "schema": REVOCATION,
        "revocation_id": f"passport-revocation:{passport['passport_id']}",
        "passport_id": passport["passport_id"],
        "node_id": passport["node_id"],
        "capability_id": passport["capability_id"],
        "revoked_at": revoked_at,
        "signed_by": "issuer" if by_issuer else "subject",
    }
    if by_issuer:
        document["issuer/participant_id"] = passport["issuer/participant_id"]
    return document
