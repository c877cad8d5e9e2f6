"""Offers of the configuration as `service-offer.v1`: their ids, their content, what has changed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from anabranch.modules.dator.config import OfferConfig

#: What a draft may have and an offer must not have where the draft has it not.
_OPTIONAL = ("model-first", "confirmation/mode")


def offer_id_of(offer: OfferConfig, node_id: str) -> str:
    """One for each type of service of a node, unless the configuration says another."""
    if offer.offer_id:
        return offer.offer_id
    words = re.sub(r"[^A-Za-z0-9]+", "-", offer.service_type).strip("-")[:60]
    digest = hashlib.sha256(f"{node_id}\n{offer.service_type}".encode()).hexdigest()
    return f"offer:{words or 'service'}-{digest[:12]}"


def content_of(offer: OfferConfig, node_id: str) -> dict[str, Any]:
    """What an offer says; who provides it, its number and its signature are the host's."""
    content: dict[str, Any] = {
        "offer/id": offer_id_of(offer, node_id),
        "offer/status": "active",
        "service/type": offer.service_type,
        "service/description": offer.service_description or offer.service_type,
        "pricing/amount": offer.pricing_amount,
        "pricing/currency": offer.pricing_currency,
        "pricing/unit": offer.pricing_unit,
        "pricing/unit-kind": offer.pricing_unit_kind,
        "delivery/max-duration-sec": offer.delivery_max_duration_sec,
        "queue/auto-accept": offer.queue_auto_accept,
        "queue/max-depth": offer.queue_max_depth,
        "hybrid": offer.hybrid,
    }
    if offer.hybrid:
        content["model-first"] = offer.model_first
    if offer.confirmation_mode not in (None, "automatic"):
        content["confirmation/mode"] = offer.confirmation_mode
    return content


def is_same(content: Mapping[str, Any], published: Mapping[str, Any]) -> bool:
    """Whether a published offer says all of this, and nothing that this does not say."""
    if any(name in published and name not in content for name in _OPTIONAL):
        return False
    return all(published.get(name, ...) == value for name, value in content.items())
