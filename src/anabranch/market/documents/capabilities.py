"""Who may do what: capability passports, revocations, advertisements, and their registration."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.documents.rules import (
    agrees,
    exactly_one,
    follows,
    forbids,
    needs,
    valid_from,
    valid_until,
)
from anabranch.market.documents.shapes import (
    ANYTHING,
    FLAG,
    INSTANT,
    NAME,
    OBJECT,
    Constant,
    Fields,
    ListOf,
    Object,
    OrNull,
    Text,
    TextOr,
    Whole,
    choice,
    pattern,
)
from anabranch.market.documents.signing import SIGNATURE, signature_of
from anabranch.market.documents.values import (
    CALL_VERSION,
    NODE,
    PARTICIPANT,
    VERSION,
    Identity,
)
from anabranch.market.passports import (
    CAPABILITY,
    LEDGER,
    NAMESPACES,
    PASSPORT,
    REVOCATION,
)

CORE_CAPABILITY = "core/messaging"

_CAPABILITY = Text(CAPABILITY, "a capability in small letters such as offer-catalog")
_PASSPORT_ID = pattern("passport:capability:…", r"passport:capability:.+")

# -- passports -------------------------------------------------------------------------------


def _namespaces(passport: Object, path: str, found: Found) -> None:
    """Which accounts a ledger may keep belongs to its passport, and to no other one."""
    capability, scope = passport.get("capability_id"), passport.get("scope")
    if not isinstance(capability, str) or not isinstance(scope, dict):
        return
    inside = below(path, "scope")
    if capability.partition("@")[0] == LEDGER:
        needs(scope, inside, found, (NAMESPACES,), f"a passport for {LEDGER}")
        if scope.get(NAMESPACES) is not None:
            ListOf(NAME, least=1, distinct=True).check(
                scope[NAMESPACES], below(inside, NAMESPACES), found
            )
    else:
        forbids(scope, inside, found, (NAMESPACES,), f"a passport for {capability[:80]}")


_DELEGATION = Fields(
    {
        "delegation_id": NAME,
        "proxy_key": NAME,
        "principal_key": NAME,
        "grants": ANYTHING,
        "expires_at": INSTANT,
        "principal_signature": ANYTHING,
    },
    rules=(valid_until("expires_at"),),
)

PASSPORT_FIELDS = Fields(
    {
        "schema": Constant(PASSPORT),
        "passport_id": _PASSPORT_ID,
        "node_id": NODE,
        "capability_id": _CAPABILITY,
        "scope": OBJECT,
        "issued_at": INSTANT,
        "issuer/participant_id": PARTICIPANT,
        "issuer/node_id": NODE,
        "revocation_ref": OrNull(NAME),
        "signature": SIGNATURE,
    },
    {
        "expires_at": OrNull(INSTANT),
        "capability_profile": ANYTHING,
        "issuer_delegation": OrNull(_DELEGATION),
        "policy_annotations": OBJECT,
    },
    rules=(
        _namespaces,
        follows("issued_at", "expires_at"),
        valid_from("issued_at"),
        valid_until("expires_at"),
        signature_of(PASSPORT),
    ),
    name=PASSPORT,
)


def _issuer_is_named_where_it_signs(document: Object, path: str, found: Found) -> None:
    key, signer = "issuer/participant_id", document.get("signed_by")
    if signer == "issuer":
        needs(document, path, found, (key,), "`signed_by` issuer")
    elif signer == "subject":
        forbids(document, path, found, (key,), "`signed_by` subject")


REVOCATION_FIELDS = Fields(
    {
        "schema": Constant(REVOCATION),
        "revocation_id": pattern("passport-revocation:…", r"passport-revocation:.+"),
        "node_id": NODE,
        "capability_id": _CAPABILITY,
        "revoked_at": INSTANT,
        "signed_by": choice("issuer", "subject"),
        "signature": SIGNATURE,
    },
    {
        "passport_id": _PASSPORT_ID,
        "target_id": pattern("delegation:key:…", r"delegation:key:.+"),
        "issuer/participant_id": PARTICIPANT,
    },
    rules=(
        exactly_one("passport_id", "target_id"),
        _issuer_is_named_where_it_signs,
        valid_from("revoked_at"),
        signature_of(REVOCATION),
    ),
)

# -- advertisements --------------------------------------------------------------------------


def _core_is_there(advertisement: Object, path: str, found: Found) -> None:
    core = advertisement.get("capabilities/core")
    if isinstance(core, list) and CORE_CAPABILITY not in core:
        message = f"every node has {CORE_CAPABILITY}; add it"
        found.add(below(path, "capabilities/core"), "missing-field", message)


def _passports_are_its_own(advertisement: Object, path: str, found: Found) -> None:
    node, presented = advertisement.get("node/id"), advertisement.get("capabilities/presented")
    if found.has(below(path, "node/id")):
        return  # told already
    for position, each in enumerate(presented if isinstance(presented, list) else ()):
        passport = each.get("passport") if isinstance(each, dict) else None
        if isinstance(passport, dict) and "node_id" in passport and passport["node_id"] != node:
            where = below(below(path, "capabilities/presented"), position)
            message = f"this passport is for {shown(passport['node_id'])}, not for this node"
            where = below(below(where, "passport"), "node_id")
            found.add(where, "conflicting-values", message)


_PRESENTED = Fields(
    {
        "capability/id": _CAPABILITY,
        "wire/name": NAME,
        "assertion/kind": NAME,
        "passport": PASSPORT_FIELDS,
    },
    rules=(agrees("passport", "capability/id", "capability_id"),),
)

ADVERTISEMENT = Fields(
    {
        "schema/v": VERSION,
        "advertisement/id": NAME,
        "node/id": NODE,
        "published-at": INSTANT,
        "protocol/version": NAME,
        "transport/profiles": ListOf(NAME, least=1, distinct=True),
        "capabilities/core": ListOf(NAME, distinct=True),
        "capabilities/presented": ListOf(_PRESENTED, most=64),
        "messages/supported": ListOf(NAME, distinct=True),
        "signature": SIGNATURE,
    },
    {"expires-at": OrNull(INSTANT)},
    rules=(
        _core_is_there,
        _passports_are_its_own,
        follows("published-at", "expires-at"),
        valid_from("published-at"),
        valid_until("expires-at"),
        signature_of("capability-advertisement.v1"),
    ),
    by_host=frozenset({"signature"}),
    name="capability-advertisement.v1",
)

# -- the directory ---------------------------------------------------------------------------


def _passport_of_the_advertised(body: Object, path: str, found: Found) -> None:
    advertisement, passport = body.get("advertisement"), body.get("passport")
    if not isinstance(advertisement, dict) or not isinstance(passport, dict):
        return
    node, subject = advertisement.get("node/id"), passport.get("node_id")
    if isinstance(node, str) and isinstance(subject, str) and node != subject:
        message = f"this passport is for {shown(subject)}, and the advertisement of {shown(node)}"
        where = below(below(path, "passport"), "node_id")
        found.add(where, "conflicting-values", message)


REGISTRATION = Fields(
    {"advertisement": ADVERTISEMENT, "sequence/no": Whole(1), "passport": PASSPORT_FIELDS},
    {"endorsement": OrNull(OBJECT)},
    rules=(_passport_of_the_advertised,),
)

ENDPOINT = Fields(
    {
        "endpoint/url": Text(most=2048),
        "endpoint/transport": NAME,
        "endpoint/role": NAME,
        "endpoint/priority": Whole(0),
    }
)

DIRECTORY_ROW = Fields(
    {
        "node_id": NODE,
        "endpoints": ListOf(ENDPOINT),
        "capability_id": _CAPABILITY,
        "passport": PASSPORT_FIELDS,
        "sequence/no": Whole(1),
        "published_at": INSTANT,
        "expires_at": OrNull(INSTANT),
    },
    {
        "anchor_identity": OrNull(Identity(("node", "participant", "org"))),
        "informal": FLAG,
        "official": FLAG,
        "endorsement": OrNull(OBJECT),
    },
    rules=(
        agrees("passport", "node_id", "node_id"),
        agrees("passport", "capability_id", "capability_id"),
        valid_until("expires_at"),
    ),
)

DIRECTORY_QUERY = Fields(
    {
        "schema_version": CALL_VERSION,
        "capability_id": Constant("seed_directory_query"),
        "query": Fields(
            {},
            {
                "capability_id": NAME,
                "participant_id": PARTICIPANT,
                "node_ids": ListOf(NODE),
                "node_id": NODE,
                "issuers": ListOf(PARTICIPANT),
                "issuer": PARTICIPANT,
                "passport_profile": NAME,
                "endorsement": TextOr(OBJECT),
                "limit": Whole(1),
            },
            rules=(exactly_one("capability_id", "participant_id"),),
        ),
    }
)

KINDS: Mapping[str, Fields] = {
    PASSPORT: PASSPORT_FIELDS,
    REVOCATION: REVOCATION_FIELDS,
    "capability-advertisement.v1": ADVERTISEMENT,
    "seed-directory-registration": REGISTRATION,
    "seed-directory-row": DIRECTORY_ROW,
    "seed-directory-query": DIRECTORY_QUERY,
}
