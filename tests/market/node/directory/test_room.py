"""A directory that strangers fill: what ends, whose share it is, and who comes in all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from anabranch.market.node.api import Call
from anabranch.market.node.directory.room import source_of
from anabranch.market.node.peers.memory_transport import MemoryNetwork
from market.node.peers.support import Host, KeySigner
from market.support import NOW
from virtual import run_virtually

from .support import (
    CAPABILITY,
    DAY,
    HOUR,
    advertise,
    advertisement_of,
    host,
    passport_of,
    read,
    register,
    revocation_of,
    revoke,
)

N2, N3, ISSUER = KeySigner(2), KeySigner(3), KeySigner(9)
HERE, THERE, ELSEWHERE = "203.0.113.7", "198.51.100.8", "192.0.2.9"


def at_a_directory(work: Callable[[Host], Coroutine[Any, Any, None]], **directory: Any) -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork(), 1, directory=directory).open()
        await work(one)
        await one.close()

    run_virtually(scenario())


async def nodes(one: Host, query: str = "") -> list[str]:
    """Apart from that of the directory itself."""
    found = (await one.call("GET", f"/v1/directory/nodes{query}")).body["items"]
    return [row["node_id"] for row in found if row["node_id"] != one.context.signer.node_id]


async def fill(one: Host, count: int, source: str, first: int = 20) -> list[str]:
    strangers = [KeySigner(first + number) for number in range(count)]
    for each in strangers:
        assert (await advertise(one, advertisement_of(each), remote=source)).status == 201
    return [each.node_id for each in strangers]


def test_the_source_with_the_most_nodes_makes_room_for_another_one() -> None:
    async def work(one: Host) -> None:
        filled = await fill(one, 4, HERE)
        refused = await advertise(one, advertisement_of(N2), remote=HERE)
        assert (refused.status, refused.body["code"]) == (429, "too-many-nodes")
        for number, source in enumerate((THERE, ELSEWHERE)):
            (other,) = await fill(one, 1, source, first=40 + number)
            assert await nodes(one, f"?source={source}") == [other]
        assert await nodes(one, f"?source={HERE}") == [filled[3], filled[2]]
        # What is left is shared: nobody takes from a source that has as many as they would.
        assert (await advertise(one, advertisement_of(N2), remote=THERE)).status == 429

    at_a_directory(work, nodes_max=5)


@pytest.mark.parametrize("way", ["advertised", "registered", "bound"])
def test_a_node_that_somebody_trusted_vouches_for_is_never_kept_out(way: str) -> None:
    passport = passport_of(N2, ISSUER)

    async def work(one: Host) -> None:
        filled = await fill(one, 2, HERE)
        presented = (passport,) if way == "advertised" else ()
        advertisement = advertisement_of(N2, *presented)
        if way == "registered":
            put = register(one, passport, N2, advertisement=advertisement)
        else:
            put = advertise(one, advertisement, remote=HERE)
        assert (await put).status == 201
        assert await nodes(one) == [N2.node_id, filled[1]]
        # Not even where all who are there are trusted; and nobody else gets its place.
        third = KeySigner(4)
        for each in (N3, third):
            vouched = advertisement_of(each, passport_of(each, ISSUER))
            assert (await advertise(one, vouched, remote=THERE)).status == 201
        assert await nodes(one) == [third.node_id, N3.node_id, N2.node_id]
        assert (
            await advertise(one, advertisement_of(KeySigner(5)), remote=ELSEWHERE)
        ).status == 429

    bindings = {N2.node_id: N2.participant_id} if way == "bound" else {}
    at_a_directory(work, nodes_max=3, issuers=[ISSUER.participant_id], bindings=bindings)


@pytest.mark.parametrize("flaw", ["of its own", "expired", "revoked", "forged", "of another"])
def test_a_passport_that_does_not_count_vouches_for_nobody(flaw: str) -> None:
    passport = passport_of(N2, ISSUER)
    if flaw == "of its own":
        passport = passport_of(N2)
    elif flaw == "expired":
        passport = passport_of(N2, ISSUER, issued=NOW - DAY, life=HOUR)
    elif flaw == "of another":
        passport = passport_of(N3, ISSUER)
    elif flaw == "forged":
        passport = {**passport, "scope": {"a": 1}}

    async def work(one: Host) -> None:
        await fill(one, 2, HERE)
        if flaw == "revoked":
            await revoke(one, revocation_of(passport, ISSUER))
        answer = await advertise(one, advertisement_of(N2, passport), remote=HERE)
        assert answer.status in (400, 403, 429)
        assert N2.node_id not in await nodes(one)

    at_a_directory(work, nodes_max=3, issuers=[ISSUER.participant_id])


def test_an_advertisement_ends_with_what_its_node_registered_and_cannot_be_brought_back() -> None:
    async def work(one: Host) -> None:
        passport = passport_of(N2, life=None)
        first = advertisement_of(N2, passport)
        await register(one, passport, N2, advertisement=first)
        assert one.context.directory.holders(CAPABILITY)
        await asyncio.sleep(3601)
        assert await nodes(one) == []
        assert (await read(one, f"/adv/{N2.node_id}")).status == 404
        assert (await read(one, f"/cap/{N2.node_id}")).status == 404
        assert not one.context.directory.holders(CAPABILITY)
        again = await advertise(one, first, 2)
        assert (again.status, again.body["code"]) == (403, "expired")
        assert (await advertise(one, advertisement_of(N2, at=NOW + HOUR), 2)).status == 201
        # The node itself has told its directory in time that it is still there.
        own = one.context.signer.node_id
        assert (await read(one, f"/adv/{own}")).status == 200

    at_a_directory(work, advertisement_ms=HOUR)


def test_the_operator_drops_a_node_or_all_strangers_of_a_source_and_they_stay_away() -> None:
    async def work(one: Host) -> None:
        own = one.context.signer.node_id
        await fill(one, 3, HERE)
        await register(one, passport_of(N2, life=None), N2)
        vouched = advertisement_of(N3, passport_of(N3, ISSUER))
        await advertise(one, vouched, remote=HERE)
        for body, status in (
            ({"node_id": N2.node_id}, 200), ({"node_id": N2.node_id}, 404),
            ({"source": HERE}, 200), ({"node_id": own}, 400), ({}, 400),
        ):  # fmt: skip
            assert (await one.call("POST", "/v1/directory/drop", body)).status == status
        assert await nodes(one) == [N3.node_id]
        assert (await read(one, f"/cap/{N2.node_id}")).status == 404
        back = await advertise(one, advertisement_of(N2, at=NOW + 1), 2)
        assert (back.status, back.body["code"]) == (403, "dropped")
        assert (await register(one, passport_of(N2), N2, 3)).status == 403
        await asyncio.sleep(3601)
        later = advertisement_of(N2, at=NOW + HOUR)
        assert (await advertise(one, later, 4)).status == 201

    at_a_directory(work, issuers=[ISSUER.participant_id], advertisement_ms=HOUR)


def test_who_was_crowded_out_comes_back_when_there_is_room_and_copies_move_nobody() -> None:
    network = MemoryNetwork()

    async def scenario() -> None:
        lists = {"nodes_max": 3, "issuers": [ISSUER.participant_id]}
        seed = await host(network, 1, directory=lists).open()
        two = await host(network, 2, seeds=(seed.url,), directory={"sync_ms": 1000}).open()
        copy = advertisement_of(N3)
        await advertise(seed, copy, remote=THERE)
        assert (await advertise(seed, copy, 2**40, remote=HERE)).status == 200
        assert await nodes(seed, f"?source={THERE}") == [N3.node_id]
        vouched = KeySigner(4)
        await register(seed, passport_of(vouched, ISSUER), vouched)
        assert await nodes(seed) == [vouched.node_id, N3.node_id]
        await asyncio.sleep(5)
        assert await nodes(seed) == [vouched.node_id, N3.node_id]
        await seed.call("POST", "/v1/directory/drop", {"node_id": N3.node_id})
        await asyncio.sleep(5)
        assert await nodes(seed) == [two.id, vouched.node_id]
        await two.close()
        await seed.close()

    run_virtually(scenario())


def test_a_peer_is_trusted_that_the_operator_has_named_or_a_named_issuer_vouches_for() -> None:
    network = MemoryNetwork()
    bound, given, presents, registers, at_a_seed, alone = (
        KeySigner(number) for number in range(20, 26)
    )

    async def scenario() -> None:
        seed = await host(network, 2).open()
        await register(seed, passport_of(at_a_seed, ISSUER, life=HOUR), at_a_seed)
        lists = {
            "issuers": [ISSUER.participant_id],
            "bindings": {bound.node_id: bound.participant_id},
        }
        peers = {"endpoints": {given.node_id: "http://given.test"}}
        one = await host(network, 1, seeds=[seed.url], directory=lists, peers=peers).open()
        await advertise(one, advertisement_of(presents, passport_of(presents, ISSUER)))
        await register(one, passport_of(registers, ISSUER), registers)
        await register(one, passport_of(alone), alone)
        trusts = one.context.directory.is_trusted
        for each in (bound, given, presents, registers, at_a_seed):
            assert trusts(each.node_id)
        assert not trusts(alone.node_id)
        assert not trusts(N2.node_id)
        await revoke(one, revocation_of(passport_of(registers, ISSUER), ISSUER))
        await asyncio.sleep(3601)
        assert not trusts(registers.node_id)
        assert not trusts(at_a_seed.node_id)
        await one.close()
        await seed.close()

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("remote", "named", "proxies", "source"),
    [
        ("203.0.113.7", "", (), "203.0.113.7"),
        ("203.0.113.7", "192.0.2.1", (), "203.0.113.7"),
        ("127.0.0.1", "192.0.2.1, 203.0.113.7", ("127.0.0.1",), "203.0.113.7"),
        ("127.0.0.1", "203.0.113.7, 10.0.0.1", ("127.0.0.1", "10.0.0.1"), "203.0.113.7"),
        ("127.0.0.1", "nobody", ("127.0.0.1",), "127.0.0.1"),
        ("2001:db8:1:2::1", "", (), "2001:db8:1::/56"),
        ("2001:db8:1:ff::2", "", (), "2001:db8:1::/56"),
        ("::ffff:203.0.113.7", "", (), "203.0.113.7"),
    ],
)
def test_a_source_is_a_network_whatever_its_callers_write_into_a_header(
    remote: str, named: str, proxies: tuple[str, ...], source: str
) -> None:
    headers = {"x-forwarded-for": named} if named else {}
    call = Call(method="PUT", path="/adv/x", remote=remote, headers=headers)
    assert source_of(call, proxies) == source
