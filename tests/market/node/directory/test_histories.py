"""Random histories of a directory that is killed and opened again, against a plain model of it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from anabranch.market.node.directory.laws import broken
from anabranch.market.node.directory.records import FAMILIES
from anabranch.market.node.entities import Family
from anabranch.market.node.peers.memory_transport import MemoryNetwork
from anabranch.store.memory.store import MemoryStore
from market.node.peers.support import Host, KeySigner
from market.support import NOW
from seeds import SHARE, seeds
from virtual import run_virtually

from .support import (
    CAPABILITY,
    advertisement_of,
    holders,
    host,
    part_of,
    passport_of,
    register,
    revocation_of,
    revoke,
)

NODES = [KeySigner(number) for number in range(2, 6)]
HISTORIES = 100 if SHARE >= 1 else 50  # of which a part: they are long
STEPS = 30


class Model:
    """What counts, by the rules alone: no index, no cache, no store."""

    def __init__(self) -> None:
        self.registered: dict[str, tuple[int, dict[str, Any], int, int]] = {}
        self.sequences: dict[str, int] = {}
        self.published: dict[str, int] = {}
        self.issued: dict[str, int] = {}
        self.revoked: set[tuple[str, str]] = set()

    def register(self, node: str, passport: dict[str, Any], sequence: int, now: int) -> int:
        issued, ends = passport["_issued"], passport["_ends"]
        if ends <= now:
            return 403
        if (node, passport["passport_id"]) in self.revoked:
            return 403
        if sequence <= self.sequences.get(node, 0) and now <= self.published[node]:
            return 409
        known = self.registered.get(node)
        if known and known[1]["passport_id"] == passport["passport_id"] and issued < known[2]:
            return 409
        status = 200 if node in self.sequences else 201
        self.registered[node] = (sequence, passport, issued, ends)
        self.sequences[node] = sequence
        self.published[node] = now
        return status

    def revoke(self, node: str, passport: dict[str, Any]) -> None:
        self.revoked.add((node, passport["passport_id"]))

    def holders(self, now: int) -> list[str]:
        return sorted(
            node
            for node, (_, passport, issued, ends) in self.registered.items()
            if issued <= now < ends and (node, passport["passport_id"]) not in self.revoked
        )


def replay_is_the_card(store: MemoryStore, families: tuple[Family[Any], ...]) -> None:
    """Byte by byte: what the events come to is what the card says."""
    by_name = {family.name: family for family in families}
    streams = store.node_streams
    for name in streams.stream_names():
        card = streams.stream(name)
        assert card is not None
        family, state = by_name[card.family], None
        for row in streams.stream_events(name):
            for event in family.events_in(row.events):
                state = family.evolve(state, event)
        assert msgspec.json.encode(state, order="deterministic") == card.state


@pytest.mark.parametrize("seed", seeds(HISTORIES))
def test_whatever_happens_what_counts_is_what_the_rules_say(seed: int) -> None:
    random_ = random.Random(seed)

    async def scenario() -> None:
        network, model, store = MemoryNetwork(), Model(), MemoryStore()
        one = await host(network, 1, store=store).open()
        made: list[tuple[KeySigner, dict[str, Any]]] = []
        for _ in range(STEPS):
            now = one.clock.now()
            match random_.choice(("register", "register", "again", "revoke", "wait", "restart")):
                case "register":
                    made.append(await registering(one, model, random_, now))
                case "again" if made:
                    node, passport = random_.choice(made)
                    await put(one, model, node, passport, random_.randint(1, 40), now)
                case "revoke" if made:
                    node, passport = random_.choice(made)
                    document = plain(passport)
                    by_issuer = random_.random() < 0.5
                    answer = await revoke(one, revocation_of(document, node, by_issuer=by_issuer))
                    assert answer.status == 200
                    model.revoke(node.node_id, passport)
                case "wait":
                    await asyncio.sleep(random_.choice((0.5, 20, 70)))
                case "restart":
                    await one.close()
                    one = await host(network, 1, store=store).open()
            assert holders(one) == model.holders(one.clock.now())
            assert list(broken(part_of(one), one.context.entities)) == []
        await one.context.entities.durable()
        replay_is_the_card(store, FAMILIES)
        await one.close()

    run_virtually(scenario())


def plain(passport: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in passport.items() if not key.startswith("_")}


async def registering(
    one: Host, model: Model, random_: random.Random, now: int
) -> tuple[KeySigner, dict[str, Any]]:
    node, number = random_.choice(NODES), random_.randint(1, 2)
    issued, life = now + random_.choice((-1000, 0, 5000)), random_.choice((2000, 60_000))
    named = f"passport:capability:{CAPABILITY}:{number}"
    document = passport_of(node, issued=issued, life=life, passport_id=named)
    passport = {**document, "_issued": issued, "_ends": issued + life}
    await put(one, model, node, passport, random_.randint(1, 40), now)
    return node, passport


async def put(
    one: Host, model: Model, node: KeySigner, passport: dict[str, Any], sequence: int, now: int
) -> None:
    document = plain(passport)
    # What the newest advertisement of the node presents counts; it is the one that is sent.
    advertisement = advertisement_of(node, document, at=now)
    before = part_of(one).registry.advertisements.get(node.node_id)
    if before is not None and sequence % 4:
        sequence = max(sequence, before.sequence + 1)
    answer = await register(one, document, node, sequence, advertisement=advertisement)
    assert answer.status == model.register(node.node_id, passport, sequence, now)


def test_the_model_refuses_what_it_should() -> None:
    model = Model()
    passport = {"passport_id": "p", "_issued": NOW, "_ends": NOW + 10}
    assert model.register("n", passport, 1, NOW) == 201
    assert model.register("n", passport, 1, NOW) == 409
    assert model.register("n", passport, 1, NOW + 1) == 200
    assert model.register("n", passport, 2, NOW + 10) == 403
    assert model.holders(NOW) == ["n"]
    model.revoke("n", passport)
    assert model.holders(NOW) == []
