"""The catalog of a buyer among other nodes: it finds them, asks them, hears them, and is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.market import check
from anabranch.market.catalog.relays import relay_of
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.discovery import peers
from anabranch.modules.arca.discovery.peers import CAPABILITIES
from anabranch.testing.market import Fate, NodeSpec, World, WorldNode
from anabranch.work.participants.performers import rfc3339
from market.catalog.test_replay import line, record
from market.node.offers.support import PEER, START, numbered

from .support import (
    CATALOG,
    OFFERS,
    REMOTE,
    REPLAY,
    SERVICE,
    SOURCES,
    SYNC,
    catalog_module,
    catalog_of,
    introduced,
    market,
    names,
    published,
)

NOBODY = {"offers": {"federation": "none"}}


def play(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


async def pushed(source: WorldNode, target: WorldNode, payload: Any, msg: str = "push") -> Any:
    """What the target answers to a message of the source."""
    assert source.node is not None
    work = source.node.context.peers.request(
        target.node_id, f"offer-catalog.{msg}", payload, correlation_id="m1", seconds=30
    )
    return source.run(work)


# -- sync ------------------------------------------------------------------------------------


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_catalogs_with_a_passport_are_found_and_asked_again_and_again(capability: str) -> None:
    async def scenario() -> None:
        async with market("buyer", "seller") as world:
            buyer, seller = world["buyer"], world["seller"]
            await published(seller, "one")
            await introduced(world, "seller", capability=capability)
            await world.advance(300)
            assert await names(buyer) == ["one"]
            await published(seller, "two", **{"pricing/amount": 1})
            assert (await seller.request("POST", f"{OFFERS}/offer:one/withdraw")).status == 200
            assert await names(buyer) == ["one"]
            await world.advance(300)
            assert await names(buyer) == ["two"], "the withdrawal came, too"
            assert await names(buyer, "?active_only=false") == ["two", "one"]
            (source,) = (await buyer.request("GET", SOURCES)).body["items"]
            assert (source["node_id"], source["status"]) == (seller.node_id, "ok")
            assert source["stored"] + source["stale"] == 2
            assert source["rejected"] == 0

    play(scenario)


def test_a_catalog_that_has_just_become_known_is_asked_before_the_next_round() -> None:
    async def scenario() -> None:
        config = ArcaConfig(peer_sync_interval_sec=86_400)
        async with market("buyer", "seller", config=config) as world:
            await published(world["seller"], "one")
            await introduced(world, "seller")
            assert await names(world["buyer"]) == ["one"]
            await published(world["seller"], "two")
            await world.advance(600)
            assert await names(world["buyer"]) == ["one"], "it was asked once"

    play(scenario)


def test_a_peer_that_is_away_is_told_and_asked_the_next_time() -> None:
    async def scenario() -> None:
        config = ArcaConfig(peer_sync_timeout_ms=1_000)
        async with market("buyer", "seller", config=config) as world:
            buyer = world["buyer"]
            await published(world["seller"], "one")
            await introduced(world, "seller")
            await world.drop("buyer", "seller")
            found = await buyer.request("POST", SYNC)
            assert [one["status"] for one in found.body["items"]] == ["failed"]
            (source,) = (await buyer.request("GET", SOURCES)).body["items"]
            assert source["status"] == "failed"
            assert source["reason"]
            await world.heal("buyer", "seller")
            await world.advance(60)
            found = await buyer.request("POST", SYNC)
            assert [one["status"] for one in found.body["items"]] == ["ok"]
            assert await names(buyer) == ["one"]

    play(scenario)


def test_a_sync_that_takes_long_goes_on_while_its_caller_is_answered() -> None:
    async def scenario() -> None:
        async with market("buyer", "seller") as world:
            buyer = world["buyer"]
            await introduced(world, "seller")
            await world.drop("buyer", "seller")
            found = await buyer.request("POST", SYNC)
            assert (found.status, found.body["status"], found.body["items"]) == (200, "running", [])
            await world.advance(60)
            (source,) = (await buyer.request("GET", SOURCES)).body["items"]
            assert source["status"] == "failed"

    play(scenario)


def test_all_pages_of_a_large_catalog_are_fetched_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "OFFERS_MAX", 50)  # on a page

    async def scenario() -> None:
        config = ArcaConfig(peer_sync_offers_max=60)
        async with market("buyer", "small", "large", config=config) as world:
            for number in range(52):
                await published(world["small"], f"s{number:04}")
            for number in range(110):
                await published(world["large"], f"l{number:04}")
            await introduced(world, "small", "large")
            await world["buyer"].request("POST", SYNC)
            rows = {row["node_id"]: row for row in catalog_of(world["buyer"]).facts.sources()}
            small, large = (rows[world[name].node_id] for name in ("small", "large"))
            assert (small["status"], small["stored"] + small["stale"]) == ("ok", 52)
            assert (large["status"], large["stored"] + large["stale"]) == ("partial", 100)

    play(scenario)


# -- trust -----------------------------------------------------------------------------------


def test_the_host_decides_whom_the_catalog_trusts() -> None:
    async def scenario() -> None:
        async with market("buyer", "seller", node=NOBODY) as world:
            buyer, seller = world["buyer"], world["seller"]
            await published(seller, "one")
            await introduced(world, "seller")
            found = await buyer.request("POST", SYNC)
            assert await names(buyer) == []
            assert found.body["counts"] == {"local": 0, "observed": 0, "hidden": 1}
            body = {"participant_id": seller.participant_id}
            assert (await buyer.request("POST", "/v1/trusted-providers", body)).status == 201
            assert await names(buyer) == [], "from the next admission"
            await world.advance(1)
            await buyer.request("POST", SYNC)
            assert await names(buyer) == ["one"]
            (row,) = (await buyer.request("GET", CATALOG)).body["observed_offers"]
            assert row["trust_level"] == "explicit"
            path = f"/v1/trusted-providers/{seller.participant_id}"
            assert (await buyer.request("DELETE", path)).status == 200
            await world.advance(1)
            await buyer.request("POST", SYNC)
            assert await names(buyer) == []
            await world.advance(3600 + 300)
            assert catalog_of(buyer).counts()["hidden"] <= 1

    play(scenario)


def test_a_module_without_the_grant_trusts_whom_its_catalog_does() -> None:
    async def scenario() -> None:
        grants = ("offers.local.query", "seed.directory.query", "peer.*")
        buyer_spec = NodeSpec(name="buyer", modules={"arca": catalog_module()}, grants=grants)
        async with World([buyer_spec, "seller"]) as world:
            buyer, seller = world["buyer"], world["seller"]
            await published(seller, "one")
            await introduced(world, "seller")
            await buyer.request("POST", SYNC)
            assert await names(buyer) == []
            catalog_of(buyer).facts.trust(seller.participant_id)
            await world.advance(1)
            await buyer.request("POST", SYNC)
            assert await names(buyer) == ["one"]

    play(scenario)


# -- the combined view -----------------------------------------------------------------------


def test_the_service_catalog_merges_offers_local_before_observed() -> None:
    async def scenario() -> None:
        async with market("buyer", "seller") as world:
            buyer, seller = world["buyer"], world["seller"]
            await published(buyer, "own", **{"pricing/amount": 90})
            await published(seller, "cheap", **{"pricing/amount": 1})
            await published(seller, "other", **{"service/type": "text/translate"})
            await introduced(world, "seller")
            await buyer.request("POST", SYNC)
            answer = (await buyer.request("GET", CATALOG)).body
            assert check(answer, kind="offer-catalog-query-response.v1") == []
            assert await names(buyer) == ["own", "cheap", "other"]
            assert answer["counts"] == {"local": 1, "observed": 2, "shown": 3, "hidden": 0}
            assert [row["trust_level"] for row in answer["observed_offers"]] == ["federation"] * 2
            for query, found in (
                (f"service_type={SERVICE}", ["own", "cheap"]),
                ("service_type=text/translate", ["other"]),
                (f"provider={seller.participant_id}", ["cheap", "other"]),
                (f"provider_node={buyer.node_id}", ["own"]),
                ("limit=2", ["own", "cheap"]),
            ):
                assert await names(buyer, f"?{query}") == found, query
            for wrong in ("limit=0", "limit=x", "active_only=maybe", "colour=red"):
                bad = await buyer.request("GET", f"{CATALOG}?{wrong}")
                assert (bad.status, bad.body["code"]) == (400, "bad_query")

    play(scenario)


def test_offers_of_the_node_are_seen_as_soon_as_they_are_published_and_withdrawn() -> None:
    async def scenario() -> None:
        async with market("buyer") as world:
            buyer = world["buyer"]
            assert await names(buyer) == []
            await published(buyer, "own")
            assert await names(buyer) == ["own"]
            await buyer.request("POST", f"{OFFERS}/offer:own/withdraw")
            assert await names(buyer) == []

    play(scenario)


# -- pushes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["offers", "relay", "bare"])
def test_a_push_is_admitted_in_every_form(form: str) -> None:
    async def scenario() -> None:
        async with market("buyer", "seller") as world:
            buyer, seller = world["buyer"], world["seller"]
            relay = relay_of(await published(seller, "one"), seller.node_id, world.clock.now())
            payload = {"offers": {"offers": [relay]}, "relay": {"relay": relay}, "bare": relay}
            answer = await pushed(seller, buyer, payload[form])
            assert answer == {"status": "ok", "counts": {"stored": 1, "stale": 0, "rejected": 0}}
            assert await names(buyer) == ["one"]
            answer = await pushed(seller, buyer, payload[form])
            assert answer["counts"] == {"stored": 0, "stale": 1, "rejected": 0}

    play(scenario)


def test_what_is_wrong_in_a_push_is_refused_by_its_class() -> None:
    async def scenario() -> None:
        async with market("buyer", "seller") as world:
            buyer, seller = world["buyer"], world["seller"]
            now = world.clock.now()
            first = await published(seller, "one")
            second = await published(seller, "one", **{"pricing/amount": 9})
            assert second["sequence/no"] == 2
            await pushed(seller, buyer, {"offers": [relay_of(second, seller.node_id, now)]})
            wrong = [
                relay_of({**first, "pricing/amount": 1}, seller.node_id, now),
                {**relay_of(first, seller.node_id, now), "relay/hops": 4},
                relay_of(first, seller.node_id, now),
                {"offers": "none"},
            ]
            answer = await pushed(seller, buyer, {"offers": wrong})
            assert answer["counts"] == {"stored": 0, "stale": 1, "rejected": 3}
            found = (await buyer.request("GET", f"{REPLAY}/diagnostics")).body["items"]
            codes = [one["code"] for one in reversed(found)]
            assert codes == ["wrong-signature", "too-many-hops", "missing-field"]
            assert {one["origin"] for one in found} == {f"peer:{seller.node_id}"}
            (row,) = (await buyer.request("GET", CATALOG)).body["observed_offers"]
            assert row["offer"] == second

    play(scenario)


def test_a_push_of_50_000_rows_is_refused_and_changes_nothing() -> None:
    """By the host, where it comes from a peer; and by the module, whoever brings it."""

    async def scenario() -> None:
        async with market("buyer", "seller") as world:
            buyer = world["buyer"]
            module = buyer.modules["arca"].module
            assert module is not None
            envelope = {
                "schema_version": "v1",
                "envelope_kind": "peer-message",
                "msg": "offer-catalog.push",
                "chain_kind": "inbound-peer",
                "correlation_id": "m1",
                "remote_node_id": world["seller"].node_id,
                "payload": {"offers": [{}] * 50_000},
            }
            work = module.handle("POST", "/v1/middleware/invoke", {}, envelope)
            status, decision = buyer.run(work)
            assert status == 200
            error = decision["patch"]["error"]
            assert error["code"] == "too_many_offers"
            assert "50,000" in error["message"]
            assert catalog_of(buyer).counts() == {"local": 0, "observed": 0, "hidden": 0}
            assert catalog_of(buyer).facts.diagnostics() == []

    play(scenario)


# -- remote queries --------------------------------------------------------------------------


def test_a_remote_query_is_complete_when_all_have_answered() -> None:
    async def scenario() -> None:
        async with market("buyer", "a", "b") as world:
            buyer = world["buyer"]
            await published(world["a"], "a1", **{"pricing/amount": 7})
            await published(world["b"], "b1", **{"pricing/amount": 3})
            await published(world["b"], "b2", **{"service/type": "text/translate"})
            nodes = [world[name].node_id for name in "ab"]
            body = {"filter": {"service/type": SERVICE}, "node_ids": nodes}
            answer = (await buyer.request("POST", REMOTE, body)).body
            assert answer["status"] == "complete"
            assert [one["offer/id"] for one in answer["offers"]] == ["offer:b1", "offer:a1"]
            assert await names(buyer) == ["b1", "a1"]
            again = await buyer.request("GET", f"{REMOTE}/{answer['query_id']}")
            assert again.body == answer

    play(scenario)


def test_a_remote_query_asks_the_catalogs_that_are_known_where_none_is_named() -> None:
    async def scenario() -> None:
        async with market("buyer", "seller") as world:
            answer = (await world["buyer"].request("POST", REMOTE, {})).body
            assert (answer["status"], answer["nodes"]) == ("complete", [])
            await published(world["seller"], "one")
            await introduced(world, "seller")
            answer = (await world["buyer"].request("POST", REMOTE, {})).body
            assert [one["offer/id"] for one in answer["offers"]] == ["offer:one"]

    play(scenario)


def test_a_remote_query_that_nobody_answers_ends_in_its_time() -> None:
    async def scenario() -> None:
        async with market("buyer", "seller") as world:
            buyer = world["buyer"]
            await world.drop("buyer", "seller")
            before = world.clock.now()
            body = {"node_ids": [world["seller"].node_id], "timeout_ms": 700}
            answer = (await buyer.request("POST", REMOTE, body)).body
            assert (answer["status"], answer["offers"]) == ("timeout", [])
            assert 0 < world.clock.now() - before <= 1_000

    play(scenario)


def test_late_answers_find_their_query() -> None:
    """One answers, one is slow: partial; when the slow one has answered, complete."""

    async def scenario() -> None:
        async with market("buyer", "fast", "slow") as world:
            buyer, slow = world["buyer"], world["slow"]
            for name in ("fast", "slow"):
                await published(world[name], name)
            world.fate = lambda _from, to, _data: Fate((3.0,)) if to is slow else Fate()
            nodes = [world[name].node_id for name in ("fast", "slow")]
            body = {"node_ids": nodes, "timeout_ms": 1_000}
            answer = (await buyer.request("POST", REMOTE, body)).body
            assert answer["status"] == "partial"
            assert [one["offer/id"] for one in answer["offers"]] == ["offer:fast"]
            assert {one["status"] for one in answer["nodes"]} == {"answered", "waiting"}
            await world.advance(20)
            late = (await buyer.request("GET", f"{REMOTE}/{answer['query_id']}")).body
            assert late["status"] == "complete"
            assert [one["offer/id"] for one in late["offers"]] == ["offer:fast", "offer:slow"]

    play(scenario)


def test_an_answer_that_comes_as_a_message_of_its_own_finds_its_query() -> None:
    """Only from a node that was asked."""

    async def scenario() -> None:
        async with market("buyer", "seller", "other") as world:
            buyer, seller, other = (world[name] for name in ("buyer", "seller", "other"))
            await world.drop("buyer", "seller")
            body = {"node_ids": [seller.node_id], "timeout_ms": 100}
            query_id = (await buyer.request("POST", REMOTE, body)).body["query_id"]
            await world.heal("buyer", "seller")
            relay = relay_of(await published(other, "x"), other.node_id, world.clock.now())
            await pushed(other, buyer, {"offers": [relay], "query_id": query_id}, "fetch.response")
            state = (await buyer.request("GET", f"{REMOTE}/{query_id}")).body
            assert (state["status"], state["offers"]) == ("timeout", [])
            relay = relay_of(await published(seller, "one"), seller.node_id, world.clock.now())
            said = {"offers": [relay], "query_id": query_id, "node_id": seller.node_id}
            await pushed(seller, buyer, said, "fetch.response")
            state = (await buyer.request("GET", f"{REMOTE}/{query_id}")).body
            assert state["status"] == "complete"
            assert [one["offer/id"] for one in state["offers"]] == ["offer:one"]

    play(scenario)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"node_ids": ["seller"]}, "bad_input"),
        ({"node_ids": "x"}, "schema"),
        ({"timeout_ms": 0}, "schema"),
        ({"timeout_ms": 50_001}, "schema"),
        ({"filter": {"limit": 0}}, "bad_query"),
        ({"filters": {}}, "schema"),
        ([], "schema"),
        (None, "schema"),
    ],
)
def test_a_remote_query_that_makes_no_sense_is_refused(body: Any, code: str) -> None:
    async def scenario() -> None:
        async with market("buyer") as world:
            answer = await world["buyer"].request("POST", REMOTE, body)
            assert answer.status == 400
            assert answer.body["code"] in (code, "input", "bad_identity")
            found = await world["buyer"].request("GET", f"{REMOTE}/unknown")
            assert (found.status, found.body["code"]) == (404, "query_not_found")

    play(scenario)


# -- peers that ask for an offer -------------------------------------------------------------


def fan_out(world: World, **changes: Any) -> dict[str, Any]:
    return {
        "schema_version": "v1",
        "dispatch_id": "dispatch:1",
        "run_id": "run:1",
        "step_id": "offers",
        "service_type": SERVICE,
        "input": {"text": "rivers"},
        "respond_by": rfc3339(world.clock.now() + 10_000),
        **changes,
    }


async def asked(world: World, payload: Any) -> Any:
    source = world["asker"]
    assert source.node is not None
    answer = source.run(
        source.node.context.peers.request(
            world["seller"].node_id,
            "workflow.fanout.request",
            payload,
            correlation_id="dispatch:1",
            seconds=30,
        )
    )
    assert check(answer, kind="workflow.fanout.response", at=world.clock.now()) == []
    return answer


def test_a_peer_that_asks_gets_the_cheapest_local_offer_or_none() -> None:
    async def scenario() -> None:
        async with market("seller", "asker") as world:
            seller = world["seller"]
            found = await asked(world, fan_out(world))
            assert found == {
                "schema_version": "v1", "dispatch_id": "dispatch:1", "status": "no_offer_available"
            }  # fmt: skip
            await published(seller, "b", **{"pricing/amount": 9})
            await published(seller, "c", **{"pricing/amount": 4, "pricing/currency": "EUR"})
            cheap = await published(seller, "a", **{"pricing/amount": 4})
            await published(seller, "full", **{"pricing/amount": 1, "queue/max-depth": 0})
            relay = relay_of(
                await published(world["asker"], "others", **{"pricing/amount": 0}),
                world["asker"].node_id,
                world.clock.now(),
            )
            await pushed(world["asker"], seller, relay)
            assert await names(seller), "the offer of another node is known"
            assert (await asked(world, fan_out(world)))["offer"] == cheap
            euro = {"filter": {"pricing/currency": "EUR", "scope.region": "eu"}}
            assert (await asked(world, fan_out(world, **euro)))["offer"]["offer/id"] == "offer:c"
            for none in (
                {"service_type": "text/translate"},
                {"filter": {"pricing/currency": "USD"}},
                {"filter": {"service_type": "text/translate"}},
            ):
                found = await asked(world, fan_out(world, **none))
                assert found["status"] == "no_offer_available"
            await seller.request("POST", f"{OFFERS}/offer:a/withdraw")
            assert (await asked(world, fan_out(world)))["offer"]["offer/id"] == "offer:c"

    play(scenario)


def test_a_fan_out_request_that_makes_no_sense_is_answered_with_an_error() -> None:
    async def scenario() -> None:
        async with market("seller", "asker") as world:
            for wrong, code in (
                ({"dispatch_id": "dispatch:2"}, "missing-field"),
                (fan_out(world, respond_by="2020-01-01T00:00:00Z"), "expired"),
                (fan_out(world, input=[]), "wrong-type"),
                ("x", "not-an-object"),
            ):
                answer = await asked(world, wrong)
                assert (answer["status"], answer["error"]["code"]) == ("error", code)

    play(scenario)


# -- the replay ------------------------------------------------------------------------------


def test_agora_is_replayed_with_status_resync_and_reset(tmp_path: Path) -> None:
    source = tmp_path / "agora.jsonl"

    async def scenario() -> None:
        config = ArcaConfig(agora_source=str(source))
        async with market("buyer", config=config) as world:
            buyer = world["buyer"]
            await world.advance(START / 1000 - world.clock.now() / 1000 + 1)
            trusted = {"participant_id": PEER.participant_id}
            await buyer.request("POST", "/v1/trusted-providers", trusted)
            state = (await buyer.request("GET", f"{REPLAY}/status")).body
            assert "agora_source" in state["problem"], "there is no file yet"
            bad = await buyer.request("POST", f"{REPLAY}/resync")
            assert (bad.status, bad.body["code"]) == (400, "agora_source")
            one = line(record(numbered(PEER, "offer:one", 1)))
            source.write_bytes(one + b"{}\n" + b"no JSON\n")
            found = (await buyer.request("POST", f"{REPLAY}/resync")).body
            assert found["counts"] == {"stored": 1, "stale": 0, "rejected": 1, "ignored": 1}
            assert await names(buyer) == ["one"]
            state = (await buyer.request("GET", f"{REPLAY}/status")).body
            assert (state["enabled"], state["behind_bytes"], state["problem"]) == (True, 0, None)
            (told,) = (await buyer.request("GET", f"{REPLAY}/diagnostics")).body["items"]
            assert told["code"] == "not-json"
            source.write_bytes(source.read_bytes() + line(record(numbered(PEER, "offer:two", 1))))
            await world.advance(130)
            assert await names(buyer) == ["one", "two"], "again and again"
            state = (await buyer.request("POST", f"{REPLAY}/reset-cursor")).body
            assert state["behind_bytes"] == source.stat().st_size
            found = (await buyer.request("POST", f"{REPLAY}/resync")).body
            assert found["counts"]["stale"] == 2

    play(scenario)


def test_without_a_source_there_is_no_replay() -> None:
    async def scenario() -> None:
        async with market("buyer") as world:
            buyer = world["buyer"]
            assert (await buyer.request("GET", f"{REPLAY}/status")).body["enabled"] is False
            bad = await buyer.request("POST", f"{REPLAY}/resync")
            assert (bad.status, bad.body["code"]) == (400, "agora_source")

    play(scenario)


# -- restarts --------------------------------------------------------------------------------


def test_a_catalog_goes_on_where_it_was_after_module_and_node_were_killed() -> None:
    async def scenario() -> None:
        async with market("buyer", "seller") as world:
            buyer = world["buyer"]
            await published(world["seller"], "one")
            await introduced(world, "seller")
            await buyer.request("POST", SYNC)
            await world.crash("buyer", 5)
            await world.advance(10)
            assert await names(buyer) == ["one"]
            await published(world["seller"], "two")
            await world.advance(300)
            assert await names(buyer) == ["one", "two"]

    play(scenario)


def test_answers_stay_below_what_a_host_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    from anabranch.modules.arca import catalog

    monkeypatch.setattr(catalog, "ANSWER_BYTES", 6_000)

    async def scenario() -> None:
        async with market("buyer") as world:
            for number in range(5):
                await published(world["buyer"], f"n{number}")
            answer = (await world["buyer"].request("GET", CATALOG)).body
            assert 0 < len(answer["offers"]) < 5
            assert "more fit" in answer["message"]
            assert len(msgspec.json.encode(answer)) < 9_000

    play(scenario)
