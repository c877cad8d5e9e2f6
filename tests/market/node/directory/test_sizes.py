"""What strangers send a directory is bounded in bytes, so that every reader can read it whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from anabranch.market.node.api import Answer, Call
from anabranch.market.node.check import check_streams
from anabranch.market.node.directory import registry, seed_endpoints, sync
from anabranch.market.node.directory.artifacts import BYTES_OF, size_of
from anabranch.market.node.directory.records import FAMILIES
from anabranch.market.node.directory.settings import DirectorySettings
from anabranch.market.node.peers.envelope import ENVELOPE_BYTES
from anabranch.market.node.peers.memory_transport import MemoryNetwork
from anabranch.market.passports import REVOCATION
from market.node.peers.support import Host, KeySigner
from market.support import NOW
from virtual import run_virtually

from .support import (
    CAPABILITY,
    HOUR,
    advertise,
    advertisement_of,
    holders,
    host,
    part_of,
    passport_of,
    read,
    register,
    revocation_of,
    revoke,
)

N2, N3, N4, ISSUER = KeySigner(2), KeySigner(3), KeySigner(4), KeySigner(9)
MUCH = "x" * 500_000
SEED, READER = 1, 8


def at_a_directory(work: Callable[[Host], Coroutine[Any, Any, None]], **directory: Any) -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork(), SEED, directory=directory).open()
        await work(one)
        await one.close()

    run_virtually(scenario())


def made_up(count: int, signer: KeySigner = N4, node: KeySigner = N3) -> list[dict[str, Any]]:
    """Revocations of passports that nothing else knows."""
    return [
        revocation_of(passport_of(node, signer, passport_id=f"passport:capability:{n}"), signer)
        for n in range(count)
    ]


async def all_of(one: Host, path: str) -> tuple[list[Any], list[int]]:
    """The items of a list, and the bytes of each page."""
    items: list[Any] = []
    sizes: list[int] = []
    since = "0"
    while True:
        page = (await read(one, f"{path}?since={since}")).body
        if not page["items"]:
            return items, sizes
        items += page["items"]
        sizes.append(len(msgspec.json.encode(page)))
        since = page["next"]


# -- documents -------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["advertisement", "passport", "endorsement", "revocation"])
def test_a_document_with_half_a_megabyte_more_is_not_kept(what: str) -> None:
    passport = passport_of(N2)

    async def work(one: Host) -> None:
        if what == "advertisement":
            answer = await advertise(one, advertisement_of(N2, x=MUCH))
        elif what == "passport":
            large = passport_of(N2, policy_annotations={"x": MUCH})
            answer = await register(one, large, N2, advertisement=advertisement_of(N2))
        elif what == "endorsement":
            answer = await register(one, passport, N2, endorsement={"x": MUCH})
        else:
            answer = await revoke(one, revocation_of(passport, N2, x=MUCH))
        assert (answer.status, answer.body["code"]) == (413, "too-large")
        assert (await read(one, f"/adv/{N2.node_id}")).status == 404
        assert (await read(one, "/revocations")).body["items"] == []

    at_a_directory(work)


def test_a_stranger_has_as_many_capabilities_as_fit_and_a_trusted_node_all_of_them() -> None:
    async def fill(one: Host, node: KeySigner, issuer: KeySigner) -> list[int]:
        passports = [passport_of(node, issuer, capability=f"c{number}") for number in range(64)]
        return [(await register(one, each, node)).status for each in passports]

    async def work(one: Host) -> None:
        statuses = await fill(one, N2, N2)
        kept = statuses.count(201)
        assert statuses == [201] * kept + [413] * (64 - kept)
        assert kept >= 16
        rows = (await read(one, f"/cap/{N2.node_id}")).body["items"]
        assert size_of(rows) < DirectorySettings().node_bytes
        assert await fill(one, N3, ISSUER) == [201] * 64
        # An advertisement that grows later takes from the same room.
        grown = advertisement_of(N2, at=NOW + 1, x="y" * 20_000)
        assert (await advertise(one, grown, 2)).status == 413

    at_a_directory(work, issuers=[ISSUER.participant_id])


def test_endpoints_stand_in_every_row_and_are_few_and_short() -> None:
    endpoint: dict[str, Any] = {
        "endpoint/url": "http://a.test/" + "a" * 900, "endpoint/transport": "http",
        "endpoint/role": "peer", "endpoint/priority": 1, "endpoint/more": "b" * 3000,
    }  # fmt: skip

    async def work(one: Host) -> None:
        advertisement = advertisement_of(N2, passport_of(N2), endpoints=[endpoint] * 8)
        await register(one, passport_of(N2), N2, advertisement=advertisement)
        (row,) = (await read(one, f"/cap?capability={CAPABILITY}")).body["items"]
        del endpoint["endpoint/more"]
        assert row["endpoints"] == [endpoint] * 4

    at_a_directory(work, node_bytes=128 * 1024)


# -- pages -----------------------------------------------------------------------------------


def test_a_page_ends_before_it_is_larger_than_a_reader_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = DirectorySettings()
    largest = registry.TRUSTED_BYTES * 256 * 1024
    assert seed_endpoints.PAGE_BYTES + largest < ENVELOPE_BYTES
    monkeypatch.setattr(seed_endpoints, "PAGE_BYTES", 3000)
    assert settings.node_bytes < largest

    async def scenario() -> None:
        network = MemoryNetwork()
        seed = await host(network, SEED).open()
        for revocation in made_up(9):
            await revoke(seed, revocation)
        for node in (N2, N3, N4):
            await register(seed, passport_of(node), node)
        for path, count in (("/revocations", 9), ("/adv", 4)):
            items, sizes = await all_of(seed, path)
            assert len(items) == count
            assert len(sizes) > 1
            assert max(sizes) < 3200
        reader = await host(network, READER, seeds=[seed.url]).open()
        assert set(holders(reader)) == {node.node_id for node in (N2, N3, N4)}
        assert len(part_of(reader).registry.revocations) == 9

    run_virtually(scenario())


def test_all_that_a_directory_may_hold_of_strangers_can_be_read() -> None:
    settings = DirectorySettings()
    largest = settings.nodes_max * settings.node_bytes
    largest += settings.revocations_max * BYTES_OF[REVOCATION]
    assert largest < sync.BYTES_MAX
    pages = settings.revocations_max * BYTES_OF[REVOCATION] / seed_endpoints.PAGE_BYTES
    assert pages < sync.PAGES_MAX
    of_a_node = registry.CAPABILITIES_OF_A_NODE + 1
    assert settings.nodes_max * of_a_node + settings.revocations_max < sync.ALL_ITEMS_MAX


# -- readers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["BYTES_MAX", "ALL_ITEMS_MAX"])
def test_a_seed_that_sends_without_end_is_given_up_within_the_limits_of_one_reading(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, limit, 20 if limit == "ALL_ITEMS_MAX" else 20_000)
    asked: list[str] = []

    async def scenario() -> None:
        async def endless(call: Call) -> Answer:
            asked.append(call.path[:5])
            number = int(call.query.get("since") or call.query.get("cursor") or 0) + 1
            after = None if number == 4 else number  # each list alone is short
            return Answer(body={"items": [{"x": "y" * 1000}] * 2, "next": after})

        network = MemoryNetwork()
        network.attach(N4.node_id, "http://seed.test", endless)
        reader = await host(network, READER, seeds=["http://seed.test"]).open()
        (state,) = part_of(reader).sync.seeds
        assert "sends more than" in state.error
        assert state.read_at is None
        assert asked == ["/adv/"] + ["/adv"] * 4 + ["/cap"] * 4 + ["/revo"] * (
            3 if limit == "ALL_ITEMS_MAX" else 2
        )

    run_virtually(scenario())


# -- revocations -----------------------------------------------------------------------------


def test_strangers_at_a_seed_take_no_room_of_a_reader_that_is_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "UNKNOWN_REVOCATIONS_OF_A_SIGNER", 1000)
    vouched = passport_of(N2, ISSUER)

    async def scenario() -> None:
        network = MemoryNetwork()
        seed, second = await host(network, SEED).open(), await host(network, 5).open()
        stranger = passport_of(N4)
        await register(seed, vouched, N2)
        await register(second, stranger, N4)
        for each in (*made_up(30, KeySigner(20)), revocation_of(stranger, N4)):
            await revoke(seed, each)
        settings = {"revocations_max": 8, "issuers": [ISSUER.participant_id]}
        seeds = [seed.url, second.url]
        reader = await host(network, READER, seeds=seeds, directory=settings).open()
        part = part_of(reader)
        assert [state.error for state in part.sync.seeds] == ["", ""]
        assert len(part.registry.revocations) == 4
        # What found no room counts all the same, for as long as the seed tells of it.
        problems = {one.node_id: part.cache.problem_of(one, NOW) for _, one in part.cache.every()}
        assert problems == {N2.node_id: "", N4.node_id: "it is revoked"}
        # Those whom the reader trusts have their room, and so has the reader.
        await revoke(seed, revocation_of(vouched, ISSUER))
        await asyncio.sleep(61)
        assert holders(reader) == []
        assert len(part.registry.revocations) == 5
        for number in range(4):
            asked = {"capability_id": f"own{number}"}
            issued = (await reader.call("POST", "/v1/passports", asked)).body["passport"]
            named = {"passport_id": issued["passport_id"]}
            assert (await reader.call("POST", "/v1/passports/revoke", named)).status == 200
        assert len(part.registry.revocations) == 9

    run_virtually(scenario())


def test_a_stranger_registers_nothing_for_a_node_that_has_not_presented_it() -> None:
    stranger, own = KeySigner(20), passport_of(N2, capability="own")

    async def work(one: Host) -> None:
        vouched = passport_of(N2, ISSUER)
        shown = advertisement_of(N2, own)
        await advertise(one, shown)
        for number in range(registry.CAPABILITIES_OF_A_NODE):
            junk = passport_of(N2, stranger, capability=f"c{number}")
            answer = await register(one, junk, N2, advertisement=shown)
            assert (answer.status, answer.body["code"]) == (403, "not-presented")
        # Neither under what the node presents, nor with what it presented before.
        other = passport_of(N2, stranger, capability="own", passport_id=own["passport_id"])
        larger = passport_of(N2, capability="own", scope={"x": "y" * 9000})
        for each in (other, larger):
            assert (await register(one, each, N2, advertisement=shown)).status == 403
        newer = advertisement_of(N2, at=NOW + 1)
        await advertise(one, newer, 2)
        assert (await register(one, own, N2, 3, advertisement=shown)).status == 403
        # What the node presents, and what a trusted issuer says of it, is taken as ever.
        assert (await register(one, vouched, N2, 2, advertisement=newer)).status == 201
        again = advertisement_of(N2, own, at=NOW + 2)
        assert (await register(one, own, N2, 3, advertisement=again)).status == 201

    at_a_directory(work, issuers=[ISSUER.participant_id])


def test_an_endorsement_that_anybody_may_have_written_makes_room_for_what_its_node_says() -> None:
    passports = [passport_of(N2, capability=f"c{number}") for number in range(4)]
    shown = advertisement_of(N2, *passports[:2])

    async def work(one: Host) -> None:
        for each, size in zip(passports, (9000, 15_000), strict=False):
            more: dict[str, Any] = {"endorsement": {"by": "x" * size}}
            assert (await register(one, each, N2, advertisement=shown, **more)).status == 201
        more = {"endorsement": {"by": "x" * 17_000}}
        assert (await register(one, passports[0], N2, 2, advertisement=shown, **more)).status == 413
        grown = advertisement_of(N2, *passports, at=NOW + 1, x="y" * 10_000)
        assert (await advertise(one, grown, 2)).status == 200
        rows = (await read(one, f"/cap/{N2.node_id}")).body["items"]
        assert ["endorsement" in row for row in rows] == [True, False]
        assert size_of(rows) + size_of(grown) < DirectorySettings().node_bytes
        assert (await register(one, passports[2], N2, 2, advertisement=grown)).status == 201

    at_a_directory(work)


def test_a_stranger_takes_no_part_of_the_room_of_a_trusted_node_by_its_name() -> None:
    async def work(one: Host) -> None:
        await advertise(one, advertisement_of(N2, passport_of(N2, ISSUER)))
        junk = (passport_of(N2, N4, capability=f"c{number}") for number in range(6))
        statuses = [(await revoke(one, revocation_of(each, N4))).status for each in junk]
        assert statuses == [200] * 4 + [429] * 2

    at_a_directory(work, issuers=[ISSUER.participant_id], revocations_max=8)


def test_the_operator_drops_revocations_of_strangers_and_none_that_is_needed() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        seed = await host(network, SEED).open()
        other = passport_of(N2)
        await register(seed, other, N2)
        settings = {"issuers": [ISSUER.participant_id], "advertisement_ms": HOUR}
        one = await host(network, READER, seeds=[seed.url], directory=settings).open()
        known = revocation_of(other, N2)
        trusted = made_up(1, ISSUER)[0]
        once = passport_of(KeySigner(21))
        await register(one, once, KeySigner(21))
        before = revocation_of(once, KeySigner(21))
        for each in (*made_up(3), *made_up(2, KeySigner(20)), known, trusted, before):
            assert (await revoke(one, each)).status == 200
        path = "/v1/directory/revocations/drop"
        for body, count in (
            ({"signer": N4.participant_id}, 3), ({}, 2), ({}, 0), ({"registered": True}, 1),
        ):  # fmt: skip
            assert (await read(one, "/revocations")).body["items"][-1]["artifact"] == before
            answer = await one.call("POST", path, body)
            assert answer.body == {"status": "dropped", "revocations": count}
        items, _ = await all_of(one, "/revocations")
        assert [item["artifact"] for item in items] == [known, trusted]
        assert (await revoke(one, made_up(1)[0])).status == 200  # as any other one
        await one.close()
        again = await host(network, READER, store=one.store, directory=settings).open()
        assert len((await all_of(again, "/revocations"))[0]) == 3
        # What was dropped takes no room on the disk either, after a while.
        streams = again.store.node_streams
        assert streams is not None
        assert sum("passport-revocation" in name for name in streams.stream_names()) == 8
        await asyncio.sleep(3 * 3600)
        assert sum("passport-revocation" in name for name in streams.stream_names()) == 3
        await again.close()

    run_virtually(scenario())


def test_of_what_a_node_publishes_all_the_time_the_newest_alone_is_kept() -> None:
    async def work(one: Host) -> None:
        for number in range(1, 20):
            passport = passport_of(N2, issued=NOW + number)
            shown = advertisement_of(N2, passport, at=NOW + number, x="x" * 5000)
            assert (await register(one, passport, N2, number, advertisement=shown)).status < 300
        streams = one.store.node_streams
        assert streams is not None
        rows = [row for name in streams.stream_names() if N2.node_id in name
                for row in streams.stream_events(name)]  # fmt: skip
        assert sum(row.count for row in rows) == 2
        assert check_streams(streams, FAMILIES).problems == []

    at_a_directory(work)


def test_what_has_ended_in_a_directory_takes_no_room_on_the_disk_after_a_while() -> None:
    async def work(one: Host) -> None:
        streams = one.store.node_streams
        assert streams is not None

        def kept() -> list[str]:
            return [name for name in streams.stream_names() if N2.node_id in name]

        await register(one, passport_of(N2, life=HOUR), N2)
        assert len(kept()) == 2
        await asyncio.sleep(5400)
        assert len(kept()) == 2  # an old publication could come back
        await asyncio.sleep(3 * 3600)
        assert kept() == []
        assert (await register(one, passport_of(N2, life=HOUR), N2, 2)).status == 403

    at_a_directory(work, advertisement_ms=HOUR)
