"""`check_laws` finds what is wrong with a node, on its disk and in its memory."""

from __future__ import annotations

import msgspec

from anabranch.market.node.ledger.accounts import ACCOUNTS, account_of
from anabranch.testing.market import World, WorldNode, check_laws
from in_loop import in_loop


async def rich() -> tuple[World, WorldNode]:
    world = World(["a", "b"])
    world.advance(1)
    await world["a"].request("POST", "/v1/ledger/top-up", {"amount": 5, "idempotency_key": "k"})
    return world, world["a"]


@in_loop
async def test_a_sound_world_breaks_no_law_also_while_a_node_is_down() -> None:
    world, node = await rich()
    assert check_laws(world) == []
    node.kill()
    assert check_laws(world) == []


@in_loop
async def test_a_card_that_is_not_what_its_events_come_to_is_found() -> None:
    world, node = await rich()
    streams = node.store.node_streams
    card = streams.stream(ACCOUNTS.stream(account_of(node.participant_id)))
    assert card is not None
    richer = msgspec.structs.replace(ACCOUNTS.state_in(card), balance=6)
    streams.renew_cards([ACCOUNTS.card_of(card, richer, seq=card.seq, at=card.updated_at)])
    found = check_laws(world)
    assert any("do not add up to zero" in text for text in found)
    assert any("another state than its events" in text for text in found)
    assert all(text.startswith("a: ") for text in found)
