"""What must hold of offers after every step, as functions over the whole state.

Every offer that is kept is signed by its provider. An id is local or observed, never both. Rows of
others are no more than the cap, none has gone further than relays go, and what strangers sent is
gone when its time is over.
"""

from __future__ import annotations

from anabranch.market.catalog.routes import RANK
from anabranch.market.documents import check
from anabranch.market.documents.offers import HOPS_MAX
from anabranch.market.node.entities import Entities
from anabranch.market.node.offers.config import OffersConfig
from anabranch.market.node.offers.records import LOCAL, OBSERVED, ObservedOffer

_LATE_MS = 60_000  # a node may be busy when a row has to go


def broken(entities: Entities, config: OffersConfig, node_id: str) -> list[str]:
    """Which laws of offers do not hold; an empty list is as it must be."""
    local, observed = dict(entities.each_open(LOCAL)), dict(entities.each_open(OBSERVED))
    wrong = [f"{name} is local and observed" for name in local.keys() & observed.keys()]
    if len(observed) > config.observed_max:
        wrong.append(f"{len(observed)} observed offers are kept")
    for name, own in local.items():
        wrong += _of_offer(name, own.offer)
        if own.offer["provider/node-id"] != node_id:
            wrong.append(f"{name} is local and of another node")
    now = entities.clock.now()
    for name, row in observed.items():
        wrong += _of_offer(name, row.offer) + _of_row(name, row, now)
        if row.offer["provider/node-id"] == node_id:
            wrong.append(f"{name} is of this node and observed")
    return wrong


def _of_offer(name: str, offer: dict[str, object]) -> list[str]:
    wrong = [f"{name}: {problem}" for problem in check(offer, kind="service-offer.v1")]
    return wrong if offer["offer/id"] == name else [*wrong, f"{name} is kept under another name"]


def _of_row(name: str, row: ObservedOffer, now: int) -> list[str]:
    wrong = []
    if row.trust not in RANK or not 0 <= row.route.hops <= HOPS_MAX:
        wrong.append(f"{name} has the trust {row.trust!r} after {row.route.hops} hops")
    if row.route.hops == 0 and row.route.origin != row.route.source:
        wrong.append(f"{name} has another origin than the node that sent it")
    if row.drop_at + _LATE_MS < now:
        wrong.append(f"{name} ({row.trust}) should have been dropped at {row.drop_at}")
    return wrong
