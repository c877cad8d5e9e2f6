"""Offers of this node: a draft made whole and signed, a signed one checked, one withdrawn."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from anabranch.market.catalog.relays import OFFER_BYTES, SKEW_MS, size_problem
from anabranch.market.catalog.routes import expires_at
from anabranch.market.documents import DocumentProblem, check
from anabranch.market.documents.limits import WHOLE_MAX
from anabranch.market.documents.shapes import moment
from anabranch.market.node.errors import NodeError
from anabranch.market.node.offers.config import OffersConfig
from anabranch.market.node.offers.records import LocalOffer
from anabranch.market.node.ports import Signer
from anabranch.work.participants.performers import rfc3339

KIND = "service-offer.v1"
_PROBLEMS_TOLD = 20
OWN_BYTES = OFFER_BYTES - 1024  # the signature, and the version that withdraws it, are longer


def finished(
    given: Any, known: LocalOffer | None, signer: Signer, config: OffersConfig, now: int
) -> dict[str, Any]:
    """The offer with its signature. Raises `NodeError`: a signature that it came with must be that
    of this node's participant, and is never replaced."""
    if not isinstance(given, dict):
        raise NodeError(400, "invalid_document", f"a {KIND} is an object")
    if "signature" in given:
        _require(given, now)
        _require_own(given, signer)
        return given
    draft = {**_defaults(given, known, signer, config, now), **given}
    _require(draft, now)
    _require_own(draft, signer)
    return signer.sign_as_participant(draft)


def offer_id_of(given: Any, signer: Signer) -> str:
    """The id that an offer has, or gets: one for each type of service."""
    found = given.get("offer/id") if isinstance(given, dict) else None
    if isinstance(found, str):
        return found
    service = str(given.get("service/type", "")) if isinstance(given, dict) else ""
    words = re.sub(r"[^A-Za-z0-9]+", "-", service).strip("-")[:60]
    digest = hashlib.sha256(f"{signer.participant_id}\n{service}".encode()).hexdigest()
    return f"offer:{words or 'service'}-{digest[:12]}"


def withdrawn(known: LocalOffer, signer: Signer, now: int) -> dict[str, Any]:
    """The version that withdraws an offer: a greater number, and valid as long as the offer."""
    if expires_at(known.offer) <= now:
        raise NodeError(409, "offer-expired", "the offer has expired and needs no withdrawal")
    kept = {key: value for key, value in known.offer.items() if key != "signature"}
    begins = max(now, moment(kept["published-at"]) or 0)
    return signer.sign_as_participant(
        {
            **kept,
            "offer/status": "withdrawn",
            "sequence/no": known.sequence + 1,
            "published-at": rfc3339(min(begins, expires_at(known.offer) - 1)),
        }
    )


def is_repeated(given: Mapping[str, Any], known: LocalOffer) -> bool:
    """Whether the same version was posted again: it says nothing that the known one does not."""
    if given.get("sequence/no") != known.sequence:
        return False
    return all(known.offer.get(key, ...) == value for key, value in given.items())


def require_newer(offer: Mapping[str, Any], known: LocalOffer | None) -> None:
    if known is not None and offer["sequence/no"] <= known.sequence:
        raise NodeError(
            409,
            "stale-sequence",
            f"version {known.sequence} is published; a newer one has a greater `sequence/no`",
            more={
                "current/sequence-no": known.sequence,
                "submitted/sequence-no": offer["sequence/no"],
            },
        )


def _defaults(
    draft: Mapping[str, Any],
    known: LocalOffer | None,
    signer: Signer,
    config: OffersConfig,
    now: int,
) -> dict[str, Any]:
    """What a draft may leave out."""
    created = known.offer["created-at"] if known else rfc3339(now)
    return {
        "schema/v": 1,
        "offer/id": offer_id_of(draft, signer),
        "offer/status": "active",
        "created-at": created,
        "published-at": rfc3339(now),
        "expires-at": rfc3339(now + config.valid_seconds * 1000),
        "sequence/no": known.sequence + 1 if known else 1,
        "provider/node-id": signer.node_id,
        "provider/participant-id": signer.participant_id,
        "service/description": str(draft.get("service/type", "")),
        "pricing/currency": "ORC",
        "pricing/unit": "request",
        "pricing/unit-kind": "per-request",
        "delivery/max-duration-sec": config.max_duration_seconds,
        "queue/auto-accept": True,
        "queue/max-depth": config.max_depth,
        "queue/current-depth": 0,
        "hybrid": False,
    }


def _require(offer: dict[str, Any], now: int) -> None:
    problems = [
        one for one in check(offer, kind=KIND, at=now, draft=True) if not _is_skew(one, offer, now)
    ]
    if not problems and offer["sequence/no"] == WHOLE_MAX:
        message = "no number is left for the version that withdraws it; write a smaller one"
        problems = [DocumentProblem("/sequence~1no", "bad-number", message)]
    if not problems and (message := size_problem(offer, OWN_BYTES)):
        problems = [DocumentProblem("", "too-large", message)]
    if problems:
        shown = [
            {"path": one.path, "code": one.code, "message": one.message}
            for one in problems[:_PROBLEMS_TOLD]
        ]
        message = "; ".join(str(one) for one in problems[:3])
        raise NodeError(400, "invalid_document", f"{KIND}: {message}", more={"problems": shown})


def _is_skew(problem: DocumentProblem, offer: dict[str, Any], now: int) -> bool:
    """An offer that was signed elsewhere, where the clock is a little ahead."""
    if problem.code != "not-yet-valid" or problem.path != "/published-at":
        return False
    return (moment(offer["published-at"]) or 0) <= now + SKEW_MS


def _require_own(offer: Mapping[str, Any], signer: Signer) -> None:
    for key, own in (
        ("provider/node-id", signer.node_id),
        ("provider/participant-id", signer.participant_id),
    ):
        if offer[key] != own:
            raise NodeError(400, "provider-mismatch", f"`{key}` is {own} on this node")
