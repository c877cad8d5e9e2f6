"""Offers of services, their relays, and which providers are trusted."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.market.documents.problems import Found, below
from anabranch.market.documents.rules import follows, valid_from, valid_until
from anabranch.market.documents.shapes import (
    ANYTHING,
    FLAG,
    FREE_TEXT,
    INSTANT,
    NAME,
    OBJECT,
    Fields,
    ListOf,
    MapOf,
    Object,
    OrNull,
    Shape,
    TextOr,
    Whole,
    choice,
    pattern,
)
from anabranch.market.documents.signing import SIGNATURE, signature_of
from anabranch.market.documents.values import (
    AMOUNT,
    CALL_VERSION,
    CONFIRMATION,
    CURRENCY,
    NODE,
    OFFER_ID,
    PARTICIPANT,
    VERSION,
    Identity,
)

HOPS_MAX = 3
UNIT_KINDS = ("per-item", "per-character-block", "per-request", "per-task", "flat")


def _model_first_needs_hybrid(offer: Object, path: str, found: Found) -> None:
    if offer.get("model-first") is True and offer.get("hybrid") is False:
        message = "`model-first` is only for hybrid offers; write false, or set `hybrid` to true"
        found.add(below(path, "model-first"), "conflicting-values", message)


OFFER = Fields(
    {
        "schema/v": VERSION,
        "offer/id": OFFER_ID,
        "created-at": INSTANT,
        "published-at": INSTANT,
        "expires-at": INSTANT,
        "sequence/no": Whole(0),
        "provider/node-id": NODE,
        "provider/participant-id": PARTICIPANT,
        "service/type": NAME,
        "service/description": FREE_TEXT,
        "pricing/amount": AMOUNT,
        "pricing/currency": CURRENCY,
        "pricing/unit": NAME,
        "pricing/unit-kind": choice(*UNIT_KINDS),
        "delivery/max-duration-sec": Whole(1),
        "queue/auto-accept": FLAG,
        "queue/max-depth": Whole(0),
        "hybrid": FLAG,
        "signature": SIGNATURE,
    },
    {
        "offer/status": choice("active", "withdrawn"),
        "queue/current-depth": Whole(0),
        "constraints/input": OBJECT,
        "constraints/output": OBJECT,
        "policy_annotations": OBJECT,
        "model-first": FLAG,
        "confirmation/mode": CONFIRMATION,
    },
    rules=(
        follows("published-at", "expires-at"),
        _model_first_needs_hybrid,
        valid_from("published-at"),
        valid_until("expires-at"),
        signature_of("service-offer.v1"),
    ),
    by_host=frozenset({"signature"}),
    name="service-offer.v1",
)


def _relay(offer: Shape) -> Fields:
    return Fields(
        {
            "schema/v": VERSION,
            "relay/id": pattern("offer-relay:…", r"offer-relay:.+"),
            "relay/origin-node-id": NODE,
            "relay/hops": Whole(0, HOPS_MAX, code="too-many-hops"),
            "relay/relayed-at": INSTANT,
            "offer": offer,
        },
        {"relay/do-not-forward": FLAG, "relay/intended-node-id": NODE},
        rules=(valid_from("relay/relayed-at"),),
        name="service-offer-relay.v1",
    )


RELAY = _relay(OFFER)
#: The same around an offer that was checked before.
RELAY_ALONE = _relay(ANYTHING)

TRUSTED_PROVIDER = Fields(
    {
        "schema/v": VERSION,
        "entry/participant-id": PARTICIPANT,
        "entry/added-at": INSTANT,
        "entry/added-by": Identity(("participant",), ("operator",)),
    },
    {"entry/note": FREE_TEXT},
    rules=(valid_from("entry/added-at"),),
)

FETCH_REQUEST = Fields({}, {"filter": OBJECT, "query_id": NAME})

FETCH_RESPONSE = Fields(
    {},
    {
        "offers": ListOf(RELAY),
        "node_id": NODE,
        "responded_at": INSTANT,
        "query_id": NAME,
        "error": OrNull(TextOr(OBJECT)),
    },
)


def _one_form_of_push(push: Object, path: str, found: Found) -> None:
    if "offers" not in push and "relay" not in push and "relay/id" not in push:
        message = "`offers` is missing; add it (a `relay`, or a relay alone, is taken as well)"
        found.add(below(path, "offers"), "missing-field", message)
    if "offers" in push:
        for key in ("node_id", "pushed_at"):
            if key not in push:
                found.add(below(path, key), "missing-field", f"`{key}` is missing; add it")
    if "relay/id" in push:
        RELAY.check(push, path, found)


PUSH = Fields(
    {},
    {"offers": ListOf(RELAY), "relay": RELAY, "node_id": NODE, "pushed_at": INSTANT},
    rules=(_one_form_of_push,),
)

_ROW = Fields(
    {"offer": OFFER, "source": choice("local", "observed")},
    {
        "trust_level": NAME,
        "source_node_id": OrNull(NODE),
        "relay_origin_node_id": OrNull(NODE),
        "relay_hops": OrNull(Whole(0, HOPS_MAX, code="too-many-hops")),
        "observed_at": OrNull(INSTANT),
        "agora_record_id": OrNull(NAME),
    },
)


class _OfferOrRow:
    """Catalogs list offers alone, or rows that say where each was seen."""

    def check(self, value: object, path: str, found: Found) -> None:
        row = isinstance(value, dict) and "offer" in value
        (_ROW if row else OFFER).check(value, path, found)

    def words(self) -> str:
        return "offer, or {offer, source, …}"


_OFFERS = ListOf(_OfferOrRow())

CATALOG_RESPONSE = Fields(
    {"offers": _OFFERS},
    {
        "schema_version": CALL_VERSION,
        "capability_id": NAME,
        "local_offers": _OFFERS,
        "observed_offers": _OFFERS,
        "counts": MapOf(Whole(0)),
        "message": FREE_TEXT,
        "schema": ANYTHING,
    },
)

KINDS: Mapping[str, Fields] = {
    "service-offer.v1": OFFER,
    "service-offer-relay.v1": RELAY,
    "trusted-provider.v1": TRUSTED_PROVIDER,
    "offer-catalog.fetch.request": FETCH_REQUEST,
    "offer-catalog.fetch.response": FETCH_RESPONSE,
    "offer-catalog.push": PUSH,
    "offer-catalog-query-response.v1": CATALOG_RESPONSE,
}
