"""What must hold of the directory of a node at any instant, for simulations and worlds."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.market.identities import is_signed_by
from anabranch.market.node.directory.artifacts import kept_passport
from anabranch.market.node.directory.part import DirectoryPart
from anabranch.market.node.directory.records import (
    ADVERTISEMENTS,
    OWN_PASSPORTS,
    REGISTRATIONS,
    REVOCATIONS,
    registration_of,
)
from anabranch.market.node.directory.registry import CAPABILITIES_OF_A_NODE
from anabranch.market.node.entities import Entities
from anabranch.market.passports import NOT_SIGNED


def broken(part: DirectoryPart, entities: Entities) -> Iterator[str]:
    """Every law that does not hold, in words."""
    yield from _registry(part, entities)
    yield from _answers(part, entities)
    yield from _own(part, entities)


def _registry(part: DirectoryPart, entities: Entities) -> Iterator[str]:
    registry = part.registry
    for node, of_node in registry.registrations.items():
        if len(of_node) > CAPABILITIES_OF_A_NODE:
            yield f"{node} has {len(of_node)} capabilities registered"
        for capability, one in of_node.items():
            thing = registration_of(node, capability)
            if (one.node_id, one.capability_id) != (node, capability):
                yield f"{thing} holds a passport for something else"
            if entities.get(REGISTRATIONS, thing) != one:
                yield f"{thing} in memory is not what is kept"
            if registry.revoked.covers(kept_passport(one.passport)):
                yield f"{thing} is registered with a revoked passport"
    if dict(entities.each_open(ADVERTISEMENTS)) != registry.advertisements:
        yield "the advertisements in memory are not what is kept"
    strangers = {node for node, one in registry.advertisements.items() if not one.trusted}
    if strangers != registry.strangers.nodes.keys():
        yield "the nodes that count with their source are not those that are not trusted"
    if unadvertised := registry.registrations.keys() - registry.advertisements.keys():
        yield f"{min(unadvertised)} has capabilities registered and no advertisement"
    if dict(entities.each_open(REVOCATIONS)) != registry.revocations:
        yield "the revocations in memory are not what is kept"
    numbers = [one.number for one in registry.advertisements.values()]
    numbers += [one.number for one in registry.revocations.values()]
    if len(numbers) != len(set(numbers)):
        yield "two documents have the same number"


def _answers(part: DirectoryPart, entities: Entities) -> Iterator[str]:
    """Only what is signed, current and not revoked is ever answered."""
    now = entities.clock.now()
    for capability in part.cache.capabilities():
        rows = part.cache.rows(capability)
        nodes = [row["node_id"] for row in rows]
        if nodes != sorted(set(nodes)):
            yield f"{capability}: a node is listed twice or out of order"
        for row in rows:
            document = dict(row["passport"])
            one = kept_passport(document)
            passport = one.passport
            who = f"{row['node_id']} for {capability}"
            if not is_signed_by(document, passport.issuer, NOT_SIGNED):
                yield f"{who}: the signature does not hold"
            if part.registry.revoked.covers(one):
                yield f"{who}: the passport is revoked"
            expired = passport.expires_at is not None and passport.expires_at <= now
            if expired or passport.issued_at > now:
                yield f"{who}: the passport is not current"
            if (passport.node_id, passport.capability_id) != (row["node_id"], capability):
                yield f"{who}: the passport is for something else"


def _own(part: DirectoryPart, entities: Entities) -> Iterator[str]:
    """No seed was told a number that is not kept."""
    highest = part.own.sequence
    for seed, sequence in part.own.published.items():
        if sequence > highest:
            yield f"{seed} was told the number {sequence}, and {highest} is the last that is kept"
    for passport_id, one in entities.each_open(OWN_PASSPORTS):
        if one.passport["passport_id"] != passport_id or one.revoked:
            yield f"{passport_id} is held under another id, or revoked"
