"""Seed directories: read as a whole or not at all, again and again, and never believed blindly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from anabranch.market.node.api import Answer, Call
from anabranch.market.node.directory import seed_endpoints, sync
from anabranch.market.node.directory.artifacts import ADVERTISEMENT
from anabranch.market.node.directory.registry import CAPABILITIES_OF_A_NODE
from anabranch.market.node.directory.seed_endpoints import ITEMS_MAX
from anabranch.market.node.directory.settings import DirectorySettings
from anabranch.market.node.peers.memory_transport import ARRIVES, LOST, Fate, MemoryNetwork, Sent
from anabranch.market.passports import PASSPORT
from market.checks import BESIDE, watch_checks
from market.node.peers.support import Host, KeySigner
from market.support import NOW
from virtual import run_virtually

from .support import (
    HOUR,
    advertise,
    advertisement_of,
    holders,
    host,
    part_of,
    passport_of,
    register,
    revocation_of,
    revoke,
)

N2, N3, N4 = KeySigner(2), KeySigner(3), KeySigner(4)
SEED, READER = 1, 9


async def pair(network: MemoryNetwork, **reader: Any) -> tuple[Host, Host]:
    seed = await host(network, SEED).open()
    return seed, host(network, READER, seeds=[seed.url], **reader)


def seen_of(one: Host) -> Any:
    (state,) = part_of(one).sync.seeds
    return state


def test_a_directory_that_is_full_can_be_read() -> None:
    settings = DirectorySettings()
    nodes_on_a_page = ITEMS_MAX // CAPABILITIES_OF_A_NODE
    assert settings.nodes_max / nodes_on_a_page < sync.PAGES_MAX
    assert settings.revocations_max / ITEMS_MAX < sync.PAGES_MAX


def test_what_a_seed_holds_counts_before_the_node_takes_work() -> None:
    async def scenario() -> None:
        seed, reader = await pair(MemoryNetwork())
        await register(
            seed, passport_of(N2), N2,
            advertisement=advertisement_of(N2, passport_of(N2), url="http://two.test"),
        )  # fmt: skip
        await reader.open()
        assert holders(reader) == [N2.node_id]
        assert reader.context.directory.endpoint(N2.node_id) == "http://two.test"
        assert reader.context.directory.nodes_of(N2.participant_id) == [N2.node_id]
        shown = (await reader.call("GET", "/v1/directory")).body
        assert shown["seeds"][0]["counts"] is True
        assert shown["capabilities"] == {"offer-catalog": 1}

    run_virtually(scenario())


def test_a_revocation_at_a_seed_counts_with_the_next_reading_and_is_kept_for_good() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        seed, reader = await pair(network)
        passport = passport_of(N2)
        await register(seed, passport, N2)
        await reader.open()
        await revoke(seed, revocation_of(passport, N2))
        assert holders(reader) == [N2.node_id]
        await asyncio.sleep(61)
        assert holders(reader) == []
        await reader.close()
        await seed.close()
        again = await host(network, READER, store=reader.store, seeds=[seed.url]).open()
        answer = await register(again, passport, N2)
        assert (answer.status, answer.body["code"]) == (403, "revoked")

    run_virtually(scenario())


def test_what_a_seed_drops_does_not_count_any_more() -> None:
    async def scenario() -> None:
        seed, reader = await pair(MemoryNetwork())
        await register(seed, passport_of(N2, life=HOUR), N2)
        await reader.open()
        assert holders(reader) == [N2.node_id]
        await asyncio.sleep(3661)
        assert holders(reader) == []
        assert part_of(reader).cache.sources[seed.url].rows == {}

    run_virtually(scenario())


def test_a_seed_that_is_down_keeps_no_node_from_opening_and_is_tried_again_soon() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        reader = await host(network, READER, seeds=["http://node1.test"]).open()
        assert holders(reader) == []
        assert seen_of(reader).error
        seed = await host(network, SEED).open()
        await register(seed, passport_of(N2), N2)
        await asyncio.sleep(5)
        assert holders(reader) == [N2.node_id]

    run_virtually(scenario())


def test_what_a_seed_said_does_not_count_where_no_word_of_it_comes_any_more() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        seed, reader = await pair(network, directory={"stale_ms": 600_000})
        await register(seed, passport_of(N2), N2)
        await reader.open()
        network.drop(seed.id, reader.id)
        await asyncio.sleep(500)
        assert holders(reader) == [N2.node_id]
        await asyncio.sleep(200)
        assert holders(reader) == []
        network.restore(seed.id, reader.id)
        await asyncio.sleep(70)
        assert holders(reader) == [N2.node_id]

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("life", "expected"), [(None, 60_000), (10 * HOUR, 60_000), (60_000, 30_000), (1000, 10_000)]
)
def test_seeds_are_read_within_half_the_shortest_life(life: int | None, expected: int) -> None:
    async def scenario() -> None:
        lists = {"issuers": [N3.participant_id]}
        one = await host(MemoryNetwork(), directory=lists).open()
        await register(one, passport_of(N2, N3, life=life), N2)
        await register(one, passport_of(N3, life=100 * HOUR), N3)
        assert part_of(one).sync.delay_ms == expected
        quicker = await host(MemoryNetwork(), directory={**lists, "sync_ms": 2000}).open()
        await register(quicker, passport_of(N2, N3, life=life), N2)
        assert part_of(quicker).sync.delay_ms == 2000, "as it is set"

    run_virtually(scenario())


@pytest.mark.parametrize("issuer", [N2, N4, N3], ids=["the node", "a stranger", "one it trusts"])
def test_a_passport_that_does_not_count_makes_no_reader_ask_more_often(issuer: KeySigner) -> None:
    """Strangers may issue any; one of an issuer whom the reader trusts is not valid yet."""
    asked: list[str] = []

    def fate(sent: Sent) -> Fate:
        asked.append(sent.path)
        return ARRIVES

    async def scenario() -> None:
        network = MemoryNetwork()
        seed, reader = await pair(network, directory={"issuers": [N3.participant_id]})
        await reader.open()
        short = passport_of(N2, issuer, issued=seed.clock.now() + 299_000, life=2000)
        shown = advertisement_of(N2, short, at=seed.clock.now())
        assert (await register(seed, short, N2, advertisement=shown)).status == 201
        network.fate = fate
        await asyncio.sleep(600)
        assert sum(path.startswith("/revocations") for path in asked) <= 22

    run_virtually(scenario())


def test_one_list_that_cannot_be_read_leaves_everything_as_it_was() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        seed, reader = await pair(network)
        await register(seed, passport_of(N2), N2)
        network.fate = lambda sent: LOST if sent.path.startswith("/revocations") else ARRIVES
        await reader.open()
        assert holders(reader) == []
        network.fate = lambda _sent: ARRIVES
        await reader.call("POST", "/v1/directory/sync")
        assert holders(reader) == [N2.node_id]

    run_virtually(scenario())


# -- hostile seeds ---------------------------------------------------------------------------


def a_seed_that_says(answer: Callable[[Call], Any]) -> Callable[[Call], Any]:
    async def handle(call: Call) -> Answer:
        said = answer(call)
        return said if isinstance(said, Answer) else Answer(body=said)

    return handle


async def reader_of(says: Callable[[Call], Any], **more: Any) -> Host:
    network = MemoryNetwork()
    network.attach(N4.node_id, "http://seed.test", a_seed_that_says(says))
    return await host(network, READER, seeds=["http://seed.test"], **more).open()


EMPTY: dict[str, Any] = {"items": [], "next": None, "max-items": 500}


def row_of(passport: Any, **more: Any) -> dict[str, Any]:
    return {"passport": passport, "sequence/no": 1, "published_at": "2026-02-02T02:40:00Z", **more}


@pytest.mark.parametrize(
    "item",
    [
        None, 7, "text", [], {}, {"passport": None}, row_of({**passport_of(N2), "scope": {"x": 1}}),
        row_of(passport_of(N2), **{"sequence/no": "1"}), row_of(passport_of(N2), published_at=5),
        row_of(passport_of(N2), endorsement=7), {"passport": passport_of(N2)},
        {"advertisement": {}}, {"advertisement": advertisement_of(N2, at=NOW + HOUR)},
        {"advertisement": {**advertisement_of(N2), "protocol/version": "2"}},
    ],
)  # fmt: skip
def test_a_document_that_does_not_hold_is_left_out_and_spoils_nothing_else(item: Any) -> None:
    good = passport_of(N3)
    rows = {
        "/cap": [item, row_of(good)],
        "/adv": [{"advertisement": advertisement_of(N3, good), "sequence/no": 1}],
        "/revocations": [item],
    }

    async def scenario() -> None:
        reader = await reader_of(lambda call: {**EMPTY, "items": rows[call.path]})
        assert holders(reader) == [N3.node_id]
        assert seen_of(reader).refused == 2
        assert seen_of(reader).error == ""

    run_virtually(scenario())


@pytest.mark.parametrize(
    "said",
    [
        Answer(status=500, body={}), Answer(status=404), Answer(body=msgspec.Raw(b"nonsense")),
        [], {"items": {}}, {"items": [], "next": {}}, {}, Answer(body=msgspec.Raw(b"[" * 100_000)),
    ],
)  # fmt: skip
def test_a_seed_that_answers_nonsense_is_not_read(said: Any) -> None:
    async def scenario() -> None:
        reader = await reader_of(lambda _call: said)
        assert seen_of(reader).error
        assert seen_of(reader).read_at is None

    run_virtually(scenario())


def test_a_list_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "PAGES_MAX", 5)

    def says(call: Call) -> Any:
        number = int(call.query.get("since") or 0)
        return {"items": [{}], "next": number + 1}

    async def scenario() -> None:
        reader = await reader_of(says)
        assert "pages" in seen_of(reader).error

    run_virtually(scenario())


def test_more_revocations_than_are_kept_stop_the_reading() -> None:
    revocations = [
        {"artifact": revocation_of(passport_of(N2, passport_id=f"passport:capability:{n}"), N2)}
        for n in range(3)
    ]
    rows = {"/cap": [row_of(passport_of(N2))], "/adv": [], "/revocations": revocations}

    async def scenario() -> None:
        settings = {"revocations_max": 2, "issuers": [N2.participant_id]}
        reader = await reader_of(
            lambda call: {**EMPTY, "items": rows[call.path]}, directory=settings
        )
        assert "revocations_max" in seen_of(reader).error
        assert holders(reader) == []

    run_virtually(scenario())


def test_many_rows_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_endpoints, "ITEMS_MAX", 2)

    async def scenario() -> None:
        seed, reader = await pair(MemoryNetwork())
        signers = [KeySigner(number) for number in range(20, 27)]
        for signer in signers:
            await register(seed, passport_of(signer), signer)
            await advertise(seed, advertisement_of(signer), 5)
        await reader.open()
        expected = sorted(signer.node_id for signer in signers)
        assert sorted(part_of(reader).cache.sources[seed.url].rows) == expected

    run_virtually(scenario())


def test_the_address_of_a_node_that_is_new_to_a_seed_is_found_when_it_is_needed() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        seed, reader = await pair(network)
        await reader.open()
        directory = reader.context.directory
        assert await directory.locate(N2.node_id) == ""
        await advertise(seed, advertisement_of(N2, url="http://two.test"))
        before = network.next_number()
        assert await directory.locate(N2.node_id) == ""  # it was asked for in vain just now
        assert network.next_number() == before + 1
        await asyncio.sleep(2)
        assert directory.endpoint(N2.node_id) == ""
        assert await directory.locate(N2.node_id) == "http://two.test"
        assert directory.endpoint(N2.node_id) == "http://two.test"

    run_virtually(scenario())


@pytest.mark.parametrize(
    "said",
    [
        {}, {"advertisement": None}, {"advertisement": advertisement_of(N3, url="http://x.test")},
        {"advertisement": {**advertisement_of(N2), "endpoints": []}},
        {"advertisement": advertisement_of(N2)}, Answer(status=404, body={}), Answer(body=7),
    ],
)  # fmt: skip
def test_an_address_that_the_node_did_not_sign_is_none(said: Any) -> None:
    async def scenario() -> None:
        reader = await reader_of(lambda call: said if call.path.startswith("/adv/") else EMPTY)
        assert await reader.context.directory.locate(N2.node_id) == ""

    run_virtually(scenario())


def test_what_a_seed_tells_of_strangers_is_checked_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fifty of their advertisements held the loop of every reader for a second."""

    async def scenario() -> None:
        seed, reader = await pair(MemoryNetwork())
        for signer in (N2, N3, N4):
            passport = passport_of(signer, extra=[1] * 900)
            await register(seed, passport, signer)
        checks = watch_checks(monkeypatch)
        await reader.open()
        assert len(holders(reader)) == 3
        beside = [kind for kind, where in checks if where == BESIDE]
        assert beside.count(PASSPORT) == 3
        assert beside.count(ADVERTISEMENT) >= 3

    run_virtually(scenario())


def test_a_seed_that_takes_its_time_holds_up_neither_a_node_nor_what_others_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pages that came just in time kept a node from opening for hours, and the others from being
    read: nobody was found any more."""
    numbers = iter(range(1, 10**9))

    async def drips(_call: Call) -> Answer:
        await asyncio.sleep(4)
        return Answer(body={"items": [{}], "next": str(next(numbers))})

    async def scenario() -> None:
        network = MemoryNetwork()
        seed = await host(network, SEED).open()
        network.attach(N4.node_id, "http://slow.test", drips)
        await register(seed, passport_of(N2), N2)
        reader = host(network, READER, seeds=["http://slow.test", seed.url])
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await reader.open()
        assert loop.time() - begun < 120
        assert holders(reader) == [N2.node_id]
        await register(seed, passport_of(N3), N3)
        await asyncio.sleep(180)
        assert holders(reader) == sorted([N2.node_id, N3.node_id])
        await asyncio.sleep(sync.READING_SECONDS + 60)
        slow, _ = part_of(reader).sync.seeds
        assert slow.read_at is None
        assert "takes longer" in slow.error
        await reader.close()
        await seed.close()

    run_virtually(scenario())
