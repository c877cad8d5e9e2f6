"""Who signs which document, and what of it is signed.

service-offer.v1                    `provider/participant-id`
service-order.v1                    `buyer/subject-id`; of an org its custodian,
                                    `buyer/operator-participant-id`
capability-passport.v1              `issuer/participant_id`, without `issuer_delegation`
capability-passport-revocation.v1   `issuer/participant_id`, or the subject, `node_id`
capability-advertisement.v1         `node/id`
agora-record.v1                     `author/participant-id`, without `relay/*`
workflow-template.v1                `participant_id`, where it is published

The role is part of who signs: the key of a node validates no offer, even where participant and
node have the same key. What is signed is canonical JSON, directly with Ed25519.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.errors import AnabranchError, InputError
from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.documents.shapes import Object, Rule
from anabranch.market.identities import FRACTIONS, SigningKey, is_signature, signed_bytes
from anabranch.market.passports import NOT_SIGNED

_VALUE = re.compile(r"[A-Za-z0-9_-]{85}[AQgw]")


class Signature:
    """The form of `{alg, value}`: 64 bytes in base64url without padding, no placeholder."""

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, dict):
            found.add(path, "bad-signature", f"{shown(value)} is here; write {self.words()}")
            return
        if value.get("alg") != "ed25519":
            message = f"`alg` is {shown(value.get('alg'))}; write ed25519"
            found.add(below(path, "alg"), "bad-signature", message)
        text = value.get("value")
        if not isinstance(text, str) or not _VALUE.fullmatch(text):
            message = "this is no signature; write 64 bytes as 86 characters of base64url"
            found.add(below(path, "value"), "bad-signature", message)

    def words(self) -> str:
        return '{"alg": "ed25519", "value": …}'


SIGNATURE = Signature()


@dataclass(frozen=True)
class Authority:
    """Which field names the signer, in which role, and what is not signed."""

    field: Callable[[Object], str]
    role: Callable[[Object], str]
    without: Callable[[Object], tuple[str, ...]]

    def signer(self, document: Object) -> str:
        value = document.get(self.field(document))
        return value if isinstance(value, str) else ""


def _always(field: str, role: str = "participant", without: tuple[str, ...] = ()) -> Authority:
    return Authority(lambda _: field, lambda _: role, lambda _: without)


def _of_order(order: Object) -> str:
    org = order.get("buyer/subject-kind") == "org"
    return "buyer/operator-participant-id" if org else "buyer/subject-id"


def _revoker(document: Object) -> tuple[str, str]:
    by_node = document.get("signed_by") == "subject"
    return ("node_id", "node") if by_node else ("issuer/participant_id", "participant")


def _relayed(record: Object) -> tuple[str, ...]:
    return tuple(key for key in record if isinstance(key, str) and key.startswith("relay/"))


AUTHORITIES: Mapping[str, Authority] = {
    "service-offer.v1": _always("provider/participant-id"),
    "service-order.v1": Authority(_of_order, lambda _: "participant", lambda _: ()),
    "capability-passport.v1": _always("issuer/participant_id", without=NOT_SIGNED),
    "capability-passport-revocation.v1": Authority(
        lambda document: _revoker(document)[0],
        lambda document: _revoker(document)[1],
        lambda _: NOT_SIGNED,
    ),
    "capability-advertisement.v1": _always("node/id", "node"),
    "agora-record.v1": Authority(
        lambda _: "author/participant-id", lambda _: "participant", _relayed
    ),
    "workflow-template.v1": _always("participant_id"),
}


def signature_of(kind: str) -> Rule:
    """The rule that the signature is there and is that of the key which must sign."""
    authority = AUTHORITIES[kind]

    def rule(document: Object, path: str, found: Found) -> None:
        where, field = below(path, "signature"), authority.field(document)
        if "signature" not in document or found.has(where) or found.has(below(path, field)):
            return  # told already
        signer, role = authority.signer(document), authority.role(document)
        if not signer.startswith(f"{role}:"):
            if field in document:
                message = f"{shown(signer)} cannot sign this: `{field}` must be a {role}"
                found.add(below(path, field), "wrong-role", message)
            return
        if _can_be_signed(document, authority, path, found):
            _verify(document, authority, where, found)

    return rule


def _can_be_signed(document: Object, authority: Authority, path: str, found: Found) -> bool:
    """Numbers with a point are told where they stand; not again where the shape told them."""
    if not found.is_full and not _has_fraction(document):
        return True  # as most can: no path is needed then
    left_out = ("signature", *authority.without(document))
    left = [
        (key, below(path, key), value) for key, value in document.items() if key not in left_out
    ]
    can = True
    for key, where, value in left:  # which grows while it is gone through
        if found.is_full:
            return False  # there is enough to mend
        if isinstance(value, dict):
            left.extend((name, below(where, name), part) for name, part in value.items())
        elif isinstance(value, list):
            left.extend((key, below(where, at), part) for at, part in enumerate(value))
        elif isinstance(value, float) and key not in FRACTIONS:
            can = False
            if not found.has(where):
                message = f"{value!r} cannot be signed; write a whole number, or text"
                found.add(where, "not-signable", message)
    return can


def _has_fraction(document: Object) -> bool:
    left = list(document.values())
    for value in left:  # which grows while it is gone through
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
        elif isinstance(value, float):
            return True
    return False


def _verify(document: Object, authority: Authority, where: str, found: Found) -> None:
    signer, field = authority.signer(document), authority.field(document)
    try:
        data = signed_bytes(dict(document), authority.without(document))
        holds = is_signature(document["signature"], data, signer)
    except InputError as error:
        found.add(where, "not-signable", error.message)
    except AnabranchError as error:
        found.add(where, "signature-unchecked", error.message)
    else:
        if not holds:
            message = (
                f"this is not the signature of `{field}` {signer} for this content; "
                "sign it again with that key, and change nothing afterwards"
            )
            found.add(where, "wrong-signature", message)


def sign(kind: str, document: Mapping[str, Any], key: SigningKey) -> dict[str, Any]:
    """The document with the signature of the key that it names.

    Refuses the key of another party, and a document that has a signature: that is never replaced.
    What is signed is not checked otherwise; `require` does that.
    """
    authority = AUTHORITIES[kind]
    if "signature" in document:
        raise InputError(f"this {kind} is signed already; a signature is never replaced")
    role, signer = authority.role(document), authority.signer(document)
    if key.identity(role) != signer:
        field = authority.field(document)
        raise InputError(f"`{field}` of this {kind} is {shown(signer)}, and the key is not its own")
    return key.sign(dict(document), authority.without(document))


def buyer_fields(node_id: str, participant_id: str, *, org_id: str | None = None) -> dict[str, str]:
    """The buyer of an order: a participant, or an org whose custodian the participant is."""
    fields = {
        "buyer/node-id": node_id,
        "buyer/subject-kind": "participant" if org_id is None else "org",
        "buyer/subject-id": participant_id if org_id is None else org_id,
    }
    return fields if org_id is None else {**fields, "buyer/operator-participant-id": participant_id}


def custodian_problem(order: Object, custodians: Mapping[str, str]) -> str:
    """Why the custodian of an order is not that of its org, as the host knows them, or ""."""
    if order.get("buyer/subject-kind") != "org":
        return ""
    org, named = order.get("buyer/subject-id"), order.get("buyer/operator-participant-id")
    known = custodians.get(org) if isinstance(org, str) else None
    if known is None:
        return f"no custodian of {shown(org)} is known here"
    return "" if named == known else f"{shown(named)} is not the custodian of {shown(org)}"
