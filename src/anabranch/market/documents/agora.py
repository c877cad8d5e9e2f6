"""Records of Agora, the shared log of signed statements."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from anabranch.market.documents.offers import OFFER
from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.documents.rules import valid_from
from anabranch.market.documents.shapes import (
    ANYTHING,
    INSTANT,
    NAME,
    Constant,
    Fields,
    ListOf,
    Object,
    OrNull,
    Text,
    pattern,
)
from anabranch.market.documents.signing import SIGNATURE, signature_of
from anabranch.market.documents.values import PARTICIPANT, is_key
from anabranch.market.identities import public_key

OFFER_SNAPSHOT = "offer-snapshot"


def _key_is_the_authors(record: Object, path: str, found: Found) -> None:
    """`key/public` repeats the key of the author; it decides nothing."""
    author, signature = record.get("author/participant-id"), record.get("signature")
    given = signature.get("key/public") if isinstance(signature, dict) else None
    if not isinstance(signature, dict) or not isinstance(author, str):
        return
    where = below(below(path, "signature"), "key/public")
    if given is None:
        found.add(where, "missing-field", "`key/public` is missing; add the key of the author")
        return
    name = author.rpartition(":")[2]
    if not is_key(name):
        return  # told already
    raw = base64.urlsafe_b64encode(public_key(f"participant:did:key:{name}")).decode().rstrip("=")
    if given not in (author, name, f"did:key:{name}", raw):
        found.add(where, "conflicting-values", f"{shown(given)} is not the key of the author")


def _offers_are_offers(record: Object, path: str, found: Found) -> None:
    if record.get("content/schema") == "service-offer.v1":
        OFFER.check(record.get("content"), below(path, "content"), found)
        return
    where = below(path, "content/schema")
    if record.get("record/kind") == OFFER_SNAPSHOT and not found.has(where):
        message = "an offer-snapshot holds a service-offer.v1; write that"
        found.add(where, "conflicting-values", message)


RECORD = Fields(
    {
        "schema": Constant("agora-record.v1"),
        "record/id": NAME,
        "record/kind": pattern(
            "a name in small letters, digits and - (no dots)", r"[a-z][a-z0-9-]*"
        ),
        "topic/key": Text(most=512),
        "author/participant-id": PARTICIPANT,
        "authored/at": INSTANT,
        "content/schema": pattern("a schema such as service-offer.v1", r"[a-z][a-z0-9-]*\.v[0-9]+"),
        "content": ANYTHING,
        "signature": SIGNATURE,
    },
    {
        "record/about": ListOf(ANYTHING),
        "record/parent": OrNull(NAME),
        "record/supersedes": ANYTHING,
        "record/tags": ListOf(NAME),
    },
    rules=(
        _key_is_the_authors,
        _offers_are_offers,
        valid_from("authored/at"),
        signature_of("agora-record.v1"),
    ),
    by_host=frozenset({"signature"}),
)

KINDS: Mapping[str, Fields] = {"agora-record.v1": RECORD}
