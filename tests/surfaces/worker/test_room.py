"""The places of a worker: never more are given out than there are, and everybody gets a share."""

from __future__ import annotations

import asyncio

from anabranch.surfaces.worker.room import CLAIM_MOST, Room

from .support import run


def test_those_who_are_expected_get_equal_shares() -> None:
    async def scenario() -> None:
        room = Room(4)
        for who in ("a", "b"):
            room.expect(who)
        assert [await room.take(who) for who in ("a", "b")] == [2, 2]
        assert room.free == 0

    run(scenario())


def test_one_that_is_expected_no_more_leaves_its_share_to_the_others() -> None:
    async def scenario() -> None:
        room = Room(3)
        for who in ("a", "b", "c"):
            room.expect(who)
        room.leave("b")
        room.leave("c")
        assert await room.take("a") == 3

    run(scenario())


def test_places_that_come_back_go_round() -> None:
    async def scenario() -> None:
        room = Room(1)
        assert await room.take("a") == 1
        taken: list[str] = []

        async def again(who: str) -> None:
            for _ in range(3):
                places = await room.take(who)
                taken.append(who)
                room.give_back(places)

        both = asyncio.gather(again("a"), again("b"))
        await asyncio.sleep(0)
        room.give_back(1)
        await both
        assert taken == ["a", "b", "a", "b", "a", "b"]
        assert room.free == 1

    run(scenario())


def test_one_that_stops_waiting_loses_no_place() -> None:
    async def scenario() -> None:
        room = Room(1)
        assert await room.take("a") == 1
        waits = asyncio.ensure_future(room.take("b"))
        await asyncio.sleep(0)
        room.give_back(1)  # it is given the place, and does not know yet
        waits.cancel()
        await asyncio.wait([waits])
        assert waits.cancelled()
        assert room.free == 1

    run(scenario())


def test_no_claim_is_larger_than_one_may_be() -> None:
    async def scenario() -> None:
        room = Room(3 * CLAIM_MOST)
        assert await room.take("a") == CLAIM_MOST
        assert room.free == 2 * CLAIM_MOST

    run(scenario())
