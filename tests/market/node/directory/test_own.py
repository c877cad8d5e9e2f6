"""What a node says of itself: passports, advertisements with numbers that never come twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.errors import AnabranchError, StoreError
from anabranch.market.documents import check
from anabranch.market.node.api import OPERATOR, Answer, Call, Caller
from anabranch.market.node.directory import registry
from anabranch.market.node.errors import NodeError
from anabranch.market.node.peers.memory_transport import ARRIVES, LOST, MemoryNetwork
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch
from market.node.peers.support import Host, KeySigner, LoopClock
from market.support import NOW
from virtual import run_virtually

from .support import (
    CAPABILITY,
    DAY,
    HOUR,
    advertisement_of,
    holders,
    host,
    part_of,
    passport_of,
    read,
    revocation_of,
    revoke,
)

N2, N3 = KeySigner(2), KeySigner(3)


async def issue(one: Host, **body: Any) -> dict[str, Any]:
    answer = await one.call("POST", "/v1/passports", {"capability_id": CAPABILITY, **body})
    assert answer.status == 201, answer.body
    found: dict[str, Any] = answer.body["passport"]
    return found


def test_a_node_issues_itself_a_passport_and_is_found_by_others() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        seed = await host(network, 1).open()
        one = await host(network, 2, seeds=[seed.url]).open()
        passport = await issue(one)
        assert check(passport, at=one.clock.now()) == []
        assert holders(one) == [one.id]
        assert holders(seed) == [one.id]
        assert seed.context.directory.endpoint(one.id) == one.url
        shown = (await read(seed, f"/adv/{one.id}")).body["advertisement"]
        assert check(shown, at=one.clock.now()) == []
        third = await host(network, 3, seeds=[seed.url]).open()
        assert holders(third) == [one.id]
        assert third.context.directory.nodes_of(one.participant) == [one.id]
        listed = (await one.call("GET", "/v1/passports")).body["items"]
        assert [(each["passport"], each["held"]) for each in listed] == [(passport, True)]

    run_virtually(scenario())


def test_what_the_file_of_the_node_names_is_issued_once() -> None:
    async def scenario() -> None:
        network, names = MemoryNetwork(), {"passports": [CAPABILITY, "other"]}
        one = await host(network, 2, directory=names).open()
        assert holders(one) == holders(one, "other") == [one.id]
        before = (await one.call("GET", "/v1/passports")).body
        await one.close()
        again = await host(network, 2, directory=names, store=one.store).open()
        assert (await again.call("GET", "/v1/passports")).body == before
        named = before["items"][0]["passport"]["passport_id"]
        await again.call("POST", "/v1/passports/revoke", {"passport_id": named})
        await again.close()
        last = await host(network, 2, directory=names, store=one.store).open()
        assert len(holders(last)) + len(holders(last, "other")) == 1

    run_virtually(scenario())


def test_a_passport_is_issued_anew_before_it_expires() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        seed = await host(network, 1).open()
        one = await host(network, 2, seeds=[seed.url]).open()
        first = await issue(one, life_seconds=3600)
        for _ in range(10):
            await asyncio.sleep(3000)
            assert holders(one) == holders(seed) == [one.id]
        listed = (await one.call("GET", "/v1/passports")).body["items"]
        assert len(listed) == 1
        assert listed[0]["passport"]["passport_id"] == first["passport_id"]
        assert listed[0]["passport"]["issued_at"] > first["issued_at"]
        await issue(one, capability_id="brief", life_seconds=3600, renew=False)
        await asyncio.sleep(3601)
        assert holders(one, "brief") == []

    run_virtually(scenario())


def test_a_passport_that_expired_while_the_node_was_down_is_issued_anew_when_it_opens() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        one = await host(network, 2).open()
        await issue(one, life_seconds=3600)
        await one.close()
        await asyncio.sleep(10_000)
        again = await host(network, 2, store=one.store).open()
        assert holders(again) == [again.id]

    run_virtually(scenario())


def test_a_revoked_passport_is_gone_at_the_seeds_and_the_next_one_has_another_id() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        seed = await host(network, 1).open()
        one = await host(network, 2, seeds=[seed.url]).open()
        first = await issue(one)
        answer = await one.call(
            "POST", "/v1/passports/revoke", {"passport_id": first["passport_id"]}
        )
        assert answer.status == 200
        assert check(answer.body["revocation"]) == []
        assert holders(one) == holders(seed) == []
        second = await issue(one)
        assert second["passport_id"] != first["passport_id"]
        assert holders(one) == holders(seed) == [one.id]
        unknown = await one.call("POST", "/v1/passports/revoke", {"passport_id": "x"})
        assert unknown.status == 404

    run_virtually(scenario())


def test_a_revocation_reaches_a_seed_that_was_down() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        seed = await host(network, 1).open()
        one = await host(network, 2, seeds=[seed.url]).open()
        passport = await issue(one)
        network.drop(seed.id, one.id)
        await one.call("POST", "/v1/passports/revoke", {"passport_id": passport["passport_id"]})
        assert holders(seed) == [one.id]
        network.restore(seed.id, one.id)
        await asyncio.sleep(61)
        assert holders(seed) == []

    run_virtually(scenario())


def test_the_own_revocations_have_no_limit_and_a_seed_that_refuses_one_takes_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "UNKNOWN_REVOCATIONS_OF_A_SIGNER", 1)

    async def scenario() -> None:
        network = MemoryNetwork()
        seed = await host(network, 1).open()
        one = await host(network, 2, seeds=[seed.url]).open()
        for node in (N3, KeySigner(4)):  # neither is registered anywhere
            passport = await issue(one, node_id=node.node_id)
            body = {"passport_id": passport["passport_id"]}
            assert (await one.call("POST", "/v1/passports/revoke", body)).status == 200
        assert "too-many-revocations" in part_of(one).own.errors[seed.url]
        await issue(one)
        assert holders(seed) == [one.id]

    run_virtually(scenario())


def test_a_seed_that_took_half_of_a_publication_shows_the_node_and_is_told_again_soon() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        seed = await host(network, 1).open()
        rarely = {"sync_ms": HOUR}
        one = await host(network, 2, seeds=[seed.url], directory=rarely).open()
        await issue(one, life_seconds=7200)
        refuse = True
        network.fate = lambda sent: LOST if refuse and sent.path.startswith("/cap/") else ARRIVES
        await asyncio.sleep(3606)  # it was issued anew, and the seed has the advertisement alone
        shown = (await read(seed, f"/adv/{one.id}")).body["advertisement"]
        (registered,) = (await read(seed, f"/cap/{one.id}")).body["items"]
        assert registered["passport"] != shown["capabilities/presented"][0]["passport"]
        assert holders(seed) == [one.id]
        refuse = False
        await asyncio.sleep(60)
        (registered,) = (await read(seed, f"/cap/{one.id}")).body["items"]
        assert registered["passport"] == shown["capabilities/presented"][0]["passport"]

    run_virtually(scenario())


def test_a_passport_of_one_participant_is_held_by_the_node_of_another() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        issuer = await host(network, 1).open()
        lists = {"issuers": [issuer.participant]}
        one = await host(network, 2, directory=lists).open()
        passport = await issue(issuer, node_id=one.id)
        assert holders(issuer) == []
        taken = await one.call("POST", "/v1/passports", {"passport": passport})
        assert taken.status == 201
        assert holders(one) == [one.id]
        assert (await one.call("POST", "/v1/passports", {"passport": passport})).status == 201
        answer = await one.call(
            "POST", "/v1/passports/revoke", {"passport_id": passport["passport_id"]}
        )
        assert answer.body["revocation"]["signed_by"] == "subject"
        assert holders(one) == []
        answer = await one.call("POST", "/v1/passports", {"passport": passport})
        assert (answer.status, answer.body["code"]) == (403, "revoked")

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "schema"),
        ({"capability_id": "x", "passport": {}}, 400, "schema"),
        ({"capability_id": "No Capability"}, 400, "schema"),
        ({"capability_id": "network-ledger"}, 400, "schema"),
        ({"capability_id": "x", "life_seconds": 0}, 400, "schema"),
        ({"capability_id": "x", "node_id": "nonsense"}, 400, "schema"),
        ({"capability_id": "x", "unknown": 1}, 400, "schema"),
        ({"passport": {}}, 400, "schema"),
        ({"passport": passport_of(N3)}, 403, "node-mismatch"),
        ({"passport": passport_of(N2, N3, issued=NOW - 2 * DAY)}, 403, "expired"),
        ({"passport": {**passport_of(N2), "scope": {"a": 1}}}, 403, "wrong-signature"),
    ],
)
def test_bad_input_for_a_passport_is_named_and_changes_nothing(
    body: dict[str, Any], status: int, code: str
) -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork(), 2).open()
        sequence = part_of(one).own.sequence
        answer = await one.call("POST", "/v1/passports", body)
        assert (answer.status, answer.body["code"]) == (status, code)
        assert part_of(one).own.sequence == sequence
        assert (await one.call("GET", "/v1/passports")).body == {"items": []}

    run_virtually(scenario())


def test_passports_are_issued_by_the_operator_alone() -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork(), 2).open()
        handler = one.context.capabilities.handler("capability.passport.issue")
        assert handler is not None
        with pytest.raises(NodeError) as refused:
            await handler({"capability_id": CAPABILITY}, Caller("module", module="arca"), {})
        assert refused.value.code == "host_capability_forbidden"
        answer = await handler({"capability_id": CAPABILITY}, OPERATOR, {})
        assert answer.status == 201

    run_virtually(scenario())


def test_a_revocation_by_another_keeps_the_node_from_presenting_the_passport() -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork(), 2).open()
        passport = passport_of(N2, N3)
        await one.call("POST", "/v1/passports", {"passport": passport})
        await revoke(one, revocation_of(passport, N3))
        await issue(one, capability_id="other")
        shown = part_of(one).registry.advertisements[one.id].advertisement
        assert [each["capability/id"] for each in shown["capabilities/presented"]] == ["other"]

    run_virtually(scenario())


# -- numbers ---------------------------------------------------------------------------------


def test_a_seed_that_holds_a_higher_number_is_overtaken() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        seed = await host(network, 1).open()
        body = {"advertisement": advertisement_of(N2), "sequence/no": 40}
        assert (await seed.call("PUT", f"/adv/{N2.node_id}", body)).status == 201
        one = await host(network, 2, seeds=[seed.url]).open()
        assert part_of(one).own.sequence == 41
        assert (await read(seed, f"/adv/{one.id}")).body["sequence/no"] == 41

    run_virtually(scenario())


@pytest.mark.parametrize("claimed", [2**53 - 1, 10**30])
def test_a_seed_that_lies_about_the_number_keeps_no_node_from_publishing(claimed: int) -> None:
    async def lies(call: Call) -> Answer:
        if call.method == "PUT":
            body = {"code": "stale-sequence", "detail": "stale", "current/sequence-no": claimed}
            return Answer(status=409, body=body)
        return Answer(body={"items": [], "next": None})

    async def scenario() -> None:
        network = MemoryNetwork()
        network.attach(N3.node_id, "http://liar.test", lies)
        honest = await host(network, 1).open()
        one = await host(network, 2, seeds=["http://liar.test", honest.url]).open()
        await issue(one)
        assert holders(honest) == [one.id]
        assert "number" in part_of(one).own.errors["http://liar.test"]
        await one.close()
        again = await host(network, 2, store=one.store, seeds=[honest.url]).open()
        assert part_of(again).own.sequence < 10
        assert (await read(honest, f"/adv/{one.id}")).status == 200

    run_virtually(scenario())


def test_a_clock_that_was_set_back_makes_nothing_stale() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        one = await host(network, 2).open()
        await issue(one)
        await one.close()
        behind = LoopClock(-HOUR)
        again = await host(network, 2, store=one.store, clock=behind).open()
        assert again.context.directory.endpoint(again.id)
        assert part_of(again).own.sequence > 2
        behind.ahead = HOUR
        assert (await again.call("POST", "/v1/passports", {"capability_id": "other"})).status == 201
        assert holders(again, "other") == [again.id]

    run_virtually(scenario())


class FailingStore(MemoryStore):
    """Its commits end with the one of that number, before or after it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 10**9
        self.written = False

    def commit(self, batch: Batch) -> None:
        self.left -= 1
        if self.left < 0:
            if self.written and self.left == -1:
                super().commit(batch)
            raise StoreError("killed")
        super().commit(batch)


@pytest.mark.parametrize("written", [False, True])
def test_killed_at_any_commit_a_node_never_publishes_under_a_number_twice(written: bool) -> None:
    async def scenario() -> None:
        network, seen = MemoryNetwork(), dict[int, Any]()
        seed = await host(network, 1).open()

        async def watch(call: Any) -> Any:
            if call.method == "PUT":
                content = call.body["advertisement"]
                assert seen.setdefault(call.body["sequence/no"], content) == content
            return await seed.node.handle(call)

        network.attach(seed.id, seed.url, watch)
        store = FailingStore()
        for commits in range(12):
            store.left, store.written = commits, written
            rarely = {"sync_ms": HOUR}
            one = host(network, 2, store=store, seeds=[seed.url], directory=rarely)
            try:
                await one.open()
                body = {"capability_id": f"c{commits}", "life_seconds": 3600}
                await one.call("POST", "/v1/passports", body)
                await asyncio.sleep(2000)
                await one.call("POST", "/v1/directory/sync")
                await one.close()
            except AnabranchError:
                network.detach(one.id)
        store.left = 10**9
        last = await host(network, 2, store=store, seeds=[seed.url]).open()
        taken = part_of(seed).registry.advertisements[last.id]
        assert taken.sequence == part_of(last).own.sequence == max(seen)
        presented = {
            each["capability/id"] for each in taken.advertisement["capabilities/presented"]
        }
        held = {one.passport["capability_id"] for one in part_of(last).own.held()}
        assert presented == held

    run_virtually(scenario())
