"""The routes of the seed directory: what each takes, refuses and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from anabranch.market.documents import check
from anabranch.market.node.directory import registry, seed_endpoints
from anabranch.market.node.directory.passport_cache import CachedPassport, PassportCache
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
    part_of,
    passport_of,
    read,
    register,
    revocation_of,
    revoke,
)

N2, N3, N4 = KeySigner(2), KeySigner(3), KeySigner(4)


def at_a_directory(work: Callable[[Host], Coroutine[Any, Any, None]], **more: Any) -> None:
    async def scenario() -> None:
        one = await host(MemoryNetwork(), 1, **more).open()
        await work(one)
        await one.close()

    run_virtually(scenario())


# -- advertisements --------------------------------------------------------------------------


def changed(node: KeySigner, field: str, value: Any, at: int = NOW) -> dict[str, Any]:
    """An advertisement with another value, which the node has signed too."""
    fields: dict[str, Any] = {field: value}
    return advertisement_of(node, at=at, **fields)


def test_an_advertisement_is_published_updated_and_read() -> None:
    async def work(one: Host) -> None:
        first = await advertise(one, advertisement_of(N2, url="http://two.test"))
        assert (first.status, first.body["status"]) == (201, "registered")
        newer = advertisement_of(N2, at=NOW + 1)
        assert (await advertise(one, newer, 2)).status == 200
        found = await read(one, f"/adv/{N2.node_id}")
        assert found.body == {"advertisement": newer, "sequence/no": 2}
        assert (await read(one, f"/adv/{N3.node_id}")).status == 404

    at_a_directory(work)


def test_an_advertisement_alone_has_its_signed_number_or_the_instant_of_its_publication() -> None:
    async def work(one: Host) -> None:
        path = f"/adv/{N2.node_id}"
        first = await one.call("PUT", path, changed(N2, "sequence/no", 3))
        assert (first.status, first.body["sequence/no"]) == (201, 3)
        again = await one.call("PUT", path, advertisement_of(N2, at=NOW + 5))
        assert (again.status, again.body["sequence/no"]) == (200, NOW + 5)
        assert (await one.call("PUT", path, advertisement_of(N2, at=NOW + 5))).status == 409
        wrong = await one.call("PUT", path, {**advertisement_of(N2), "signature": {}})
        assert wrong.status == 403
        other = await one.call("PUT", path, advertisement_of(N3, at=NOW + 9))
        assert (other.status, other.body["code"]) == (403, "node-mismatch")

    at_a_directory(work)


@pytest.mark.parametrize(
    ("case", "status", "code"),
    [
        ("forged", 403, "wrong-signature"),
        ("by another node", 403, "wrong-signature"),
        ("placeholder signature", 403, "bad-signature"),
        ("of another node", 403, "node-mismatch"),
        ("from the future", 403, "not-yet-valid"),
        ("expired", 403, "expired"),
        ("signed another number", 403, "sequence-mismatch"),
        ("no object", 400, "schema"),
        ("no advertisement", 400, "schema"),
        ("number 0", 400, "schema"),
        ("number true", 400, "schema"),
        ("number 2^53", 400, "schema"),
        ("no core", 400, "schema"),
    ],
)
def test_an_advertisement_is_refused_by_name(case: str, status: int, code: str) -> None:
    good = advertisement_of(N2)
    bodies: dict[str, Any] = {
        "forged": {**good, "protocol/version": "2"},
        "by another node": {**N3.sign_as_node({k: v for k, v in good.items() if k != "signature"})},
        "placeholder signature": {**good, "signature": {"alg": "ed25519", "value": "base64url:x"}},
        "of another node": advertisement_of(N3),
        "from the future": advertisement_of(N2, at=NOW + HOUR),
        "expired": changed(N2, "expires-at", "2026-02-02T02:40:00Z", at=NOW - 2),
        "signed another number": changed(N2, "sequence/no", 7),
        "no core": changed(N2, "capabilities/core", ["core/other"]),
    }
    numbers: dict[str, Any] = {"number 0": 0, "number true": True, "number 2^53": 2**53}

    async def work(one: Host) -> None:
        path = f"/adv/{N2.node_id}"
        body: Any = {"advertisement": bodies.get(case, good), "sequence/no": numbers.get(case, 1)}
        if case in ("no object", "no advertisement"):
            body = [1] if case == "no object" else {"sequence/no": 1}
        answer = await one.call("PUT", path, body)
        assert (answer.status, answer.body["code"]) == (status, code)
        assert (await read(one, path)).status == 404

    at_a_directory(work)


def test_a_stale_number_is_told_with_both_numbers_and_an_old_document_does_not_come_back() -> None:
    async def work(one: Host) -> None:
        old, new = advertisement_of(N2), advertisement_of(N2, at=NOW + 1)
        await advertise(one, new, 5)
        for number in (5, 4):
            answer = await advertise(one, new, number)
            assert (answer.status, answer.body["code"]) == (409, "stale-sequence")
            assert answer.body["current/sequence-no"] == 5
            assert answer.body["submitted/sequence-no"] == number
        answer = await advertise(one, old, 6)
        assert (answer.status, answer.body["code"]) == (409, "stale-advertisement")

    at_a_directory(work)


def test_a_copy_with_a_number_that_its_node_has_not_signed_keeps_nothing_of_the_node_out() -> None:
    most = 2**53 - 1
    passport, renewed = passport_of(N2), passport_of(N2, issued=NOW + 1)

    async def work(one: Host) -> None:
        copy = advertisement_of(N2, passport)
        await advertise(one, copy, 1)
        assert (await advertise(one, copy, most)).status == 200
        assert (await register(one, passport, N2, most, advertisement=copy)).status == 201
        assert (await advertise(one, copy, most)).status == 409
        # What the node publishes later counts whatever its number is.
        newer = advertisement_of(N2, renewed, at=NOW + 1)
        assert (await advertise(one, newer, 2)).status == 200
        assert (await register(one, renewed, N2, 2, advertisement=newer)).status == 200
        shown = (await read(one, f"/adv/{N2.node_id}")).body
        assert (shown["advertisement"], shown["sequence/no"]) == (newer, 2)
        # Once it signs its numbers, they alone say what is newer.
        numbers: list[dict[str, Any]] = [{"sequence/no": 7}, {"sequence/no": 6}]
        signed = advertisement_of(N2, renewed, at=NOW + 2, **numbers[0])
        assert (await advertise(one, newer, most)).status == 200
        assert (await advertise(one, signed, 7)).status == 200
        later = advertisement_of(N2, renewed, at=NOW + 3, **numbers[1])
        assert (await advertise(one, later, 6)).body["current/sequence-no"] == 7

    at_a_directory(work)


def test_advertisements_are_listed_after_a_number_or_an_instant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seed_endpoints, "ITEMS_MAX", 2)

    async def work(one: Host) -> None:
        for signer, at in ((N2, NOW), (N3, NOW + 1000), (N4, NOW + 2000)):
            await advertise(one, advertisement_of(signer, at=at))
        seen, since = [], "0"
        for _ in range(4):
            page = (await read(one, f"/adv?since={since}")).body
            seen += [item["advertisement"]["node/id"] for item in page["items"]]
            since = page["next"]
        assert seen == [one.id, N2.node_id, N3.node_id, N4.node_id]
        page = (await read(one, "/adv?since=2026-02-02T02:40:01Z")).body
        assert [item["advertisement"]["node/id"] for item in page["items"]] == [
            N3.node_id, N4.node_id,
        ]  # fmt: skip
        assert (await read(one, "/adv?since=soon")).status == 400

    at_a_directory(work)


# -- capabilities ----------------------------------------------------------------------------


def test_a_capability_is_registered_updated_and_found() -> None:
    async def work(one: Host) -> None:
        passport = passport_of(N2)
        shown = advertisement_of(N2, passport, url="http://two.test")
        first = await register(one, passport, N2, advertisement=shown, endorsement={"by": "x"})
        assert (first.status, first.body["sequence/no"]) == (201, 1)
        assert (await register(one, passport, N2, 2, advertisement=shown)).status == 200
        page = (await read(one, f"/cap?capability={CAPABILITY}")).body
        assert (page["next"], page["max-items"]) == (None, 500)
        (row,) = page["items"]
        assert check(row, kind="seed-directory-row", at=NOW) == []
        assert row["passport"] == passport
        assert (row["node_id"], row["sequence/no"]) == (N2.node_id, 2)
        assert row["endpoints"][0]["endpoint/url"] == "http://two.test"
        assert row["anchor_identity"] == N2.participant_id
        assert row["informal"] is False
        assert (await read(one, f"/cap/{N2.node_id}")).body["items"] == [row]
        assert (await read(one, f"/cap/{N3.node_id}")).status == 404
        assert (await read(one, "/cap?capability=other")).body["items"] == []

    at_a_directory(work)


@pytest.mark.parametrize(
    "capability",
    ["offer-catalog", "local-offer-catalog", "shared-offer-catalog", "offer-snapshot-publisher",
     "role/offer-catalog", f"~x@{N3.participant_id}"],
)  # fmt: skip
def test_any_capability_has_its_place_in_the_path(capability: str) -> None:
    async def work(one: Host) -> None:
        passport = passport_of(N2, capability=capability)
        assert (await register(one, passport, N2)).status == 201
        page = (await read(one, f"/cap?capability={capability}")).body
        assert [row["node_id"] for row in page["items"]] == [N2.node_id]

    at_a_directory(work)


@pytest.mark.parametrize(
    ("case", "status", "code"),
    [
        ("forged", 403, "wrong-signature"),
        ("signed by the node", 403, "wrong-signature"),
        ("expired", 403, "expired"),
        ("from the future", 403, "not-yet-valid"),
        ("of another node", 403, "node-mismatch"),
        ("path of another node", 403, "node-mismatch"),
        ("path of another capability", 403, "capability-mismatch"),
        ("advertisement of another node", 403, "node-mismatch"),
        ("forged advertisement", 403, "wrong-signature"),
        ("no scope", 400, "schema"),
        ("namespaces", 400, "schema"),
        ("ledger without namespaces", 400, "schema"),
        ("number 0", 400, "schema"),
        ("endorsement", 400, "schema"),
        ("no passport", 400, "schema"),
        ("not an object", 400, "schema"),
    ],
)
def test_a_registration_is_refused_by_name(case: str, status: int, code: str) -> None:
    good = passport_of(N2)
    draft = {key: value for key, value in good.items() if key != "signature"}
    passports: dict[str, Any] = {
        "forged": {**good, "capability_id": "other-thing"},
        "signed by the node": N2.sign_as_node(draft),
        "expired": passport_of(N2, issued=NOW - DAY),
        "from the future": passport_of(N2, issued=NOW + HOUR),
        "of another node": passport_of(N3, N2),
        "no scope": passport_of(N2, scope=None),
        "namespaces": passport_of(N2, scope={"account_namespaces": ["a"]}),
        "ledger without namespaces": passport_of(N2, capability="network-ledger"),
    }
    passport = passports.get(case, good)
    advertisement = advertisement_of(N2)
    if case == "advertisement of another node":
        advertisement = advertisement_of(N3)
    elif case == "forged advertisement":
        advertisement = {**advertisement, "protocol/version": "9"}
    paths = {
        "path of another node": (N3.node_id, CAPABILITY),
        "path of another capability": (N2.node_id, "other"),
        "forged": (N2.node_id, "other-thing"),
    }

    more: dict[str, Any] = {"endorsement": {"endorsement": 7}}
    without = {"advertisement": advertisement, "sequence/no": 1}

    async def work(one: Host) -> None:
        if case in ("not an object", "no passport"):
            body = "text" if case == "not an object" else without
            answer = await one.call("PUT", f"/cap/{N2.node_id}/{CAPABILITY}", body)
        else:
            answer = await register(
                one, passport, N2, 0 if case == "number 0" else 1, advertisement=advertisement,
                path=paths.get(case, ()), **more.get(case, {}),
            )  # fmt: skip
        assert (answer.status, answer.body["code"]) == (status, code)
        assert (await read(one, f"/cap/{N2.node_id}")).status == 404
        assert (await read(one, f"/adv/{N2.node_id}")).status == 404

    at_a_directory(work)


def test_a_stale_registration_and_a_replayed_passport_are_refused() -> None:
    async def work(one: Host) -> None:
        old, new = passport_of(N2), passport_of(N2, issued=NOW + 1)
        await register(one, old, N2, 3)
        answer = await register(one, old, N2, 3)
        assert (answer.status, answer.body["code"]) == (409, "stale-sequence")
        assert answer.body["current/sequence-no"] == 3
        assert answer.body["submitted/sequence-no"] == 3
        assert (await register(one, new, N2, 4)).status == 200
        answer = await register(one, old, N2, 5)
        assert (answer.status, answer.body["code"]) == (409, "stale-passport")

    at_a_directory(work)


def test_more_capabilities_than_a_node_may_have_are_refused_until_one_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert registry.CAPABILITIES_OF_A_NODE == 64
    monkeypatch.setattr(registry, "CAPABILITIES_OF_A_NODE", 3)

    async def work(one: Host) -> None:
        passports = [passport_of(N2, capability=f"c{number}") for number in range(4)]
        for passport in passports[:3]:
            assert (await register(one, passport, N2)).status == 201
        answer = await register(one, passports[3], N2)
        assert (answer.status, answer.body["code"]) == (429, "too-many-capabilities")
        assert (await register(one, passports[0], N2, 2)).status == 200
        assert (await register(one, passport_of(N3), N3)).status == 201
        await revoke(one, revocation_of(passports[0], N2))
        assert (await register(one, passports[3], N2)).status == 201

    at_a_directory(work)


def test_there_is_a_limit_to_the_nodes_that_are_known() -> None:
    async def work(one: Host) -> None:
        assert (await advertise(one, advertisement_of(N2))).status == 201
        for answer in (
            await advertise(one, advertisement_of(N3)),
            await register(one, passport_of(N3), N3),
        ):
            assert (answer.status, answer.body["code"]) == (429, "too-many-nodes")

    at_a_directory(work, directory={"nodes_max": 2})


def test_a_question_for_one_capability_makes_no_rows_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def row(cache: PassportCache, one: CachedPassport) -> dict[str, Any]:
        made.append(one.capability_id)
        return found(cache, one)

    found = PassportCache.row
    monkeypatch.setattr(PassportCache, "row", row)

    async def work(one: Host) -> None:
        for capability in ("a", "b", "c"):
            assert (await register(one, passport_of(N2, capability=capability), N2)).status == 201
        made.clear()
        rows = (await read(one, "/cap?capability=b")).body["items"]
        assert [each["capability_id"] for each in rows] == made == ["b"]

    at_a_directory(work)


def test_rows_come_in_pages() -> None:
    async def work(one: Host) -> None:
        for signer in (N2, N3, N4):
            await register(one, passport_of(signer), signer)
        seen, cursor = [], ""
        while True:
            page = (await read(one, f"/cap?limit=1&cursor={cursor}")).body
            seen += [row["node_id"] for row in page["items"]]
            if page["next"] is None:
                break
            cursor = page["next"]
        assert seen == sorted(signer.node_id for signer in (N2, N3, N4))
        for limit in ("0", "501", "x", "-1"):
            assert (await read(one, f"/cap?limit={limit}")).status == 400

    at_a_directory(work)


# -- revocations -----------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["issuer", "subject"])
def test_a_revoked_passport_is_gone_at_once_and_never_comes_back(who: str) -> None:
    async def work(one: Host) -> None:
        passport = passport_of(N2, N3)
        await register(one, passport, N2)
        signer = N3 if who == "issuer" else N2
        revocation = revocation_of(passport, signer, by_issuer=who == "issuer")
        answer = await revoke(one, revocation)
        assert (answer.status, answer.body["status"]) == (200, "revoked")
        assert (await read(one, f"/cap/{N2.node_id}")).status == 404
        answer = await register(one, passport, N2, 2)
        assert (answer.status, answer.body["code"]) == (403, "revoked")
        renewed = passport_of(N2, N3, issued=NOW + 1)
        assert (await register(one, renewed, N2, 3)).status == 403
        assert (await revoke(one, revocation)).body["status"] == "already-revoked"
        page = (await read(one, "/revocations")).body
        assert page["items"] == [
            {"artifact_family": "capability-passport-revocation", "artifact": revocation}
        ]
        assert (await read(one, f"/revocations?since={page['next']}")).body["items"] == []

    at_a_directory(work)


@pytest.mark.parametrize(
    ("case", "status", "code"),
    [
        ("forged", 403, "wrong-signature"),
        ("by the wrong key", 403, "wrong-signature"),
        ("two targets", 400, "schema"),
        ("no target", 400, "schema"),
        ("no issuer", 400, "schema"),
        ("issuer named by the subject", 400, "schema"),
        ("text", 400, "schema"),
    ],
)
def test_a_revocation_is_refused_by_name(case: str, status: int, code: str) -> None:
    passport = passport_of(N2, N3)
    good = revocation_of(passport, N3)
    changed: dict[str, Any] = {
        "forged": {**good, "passport_id": "passport:capability:other"},
        "by the wrong key": revocation_of(passport, N4),
        "two targets": revocation_of(passport, N3, target_id="delegation:key:x"),
        "no target": {key: value for key, value in good.items() if key != "passport_id"},
        "no issuer": {k: v for k, v in good.items() if k != "issuer/participant_id"},
        "issuer named by the subject": revocation_of(
            passport, N2, by_issuer=False, **{"issuer/participant_id": N3.participant_id}
        ),
        "text": "text",
    }

    async def work(one: Host) -> None:
        await register(one, passport, N2)
        answer = await revoke(one, changed[case])
        assert (answer.status, answer.body["code"]) == (status, code)
        assert (await read(one, f"/cap/{N2.node_id}")).status == 200
        assert (await read(one, "/revocations")).body["items"] == []

    at_a_directory(work)


def test_a_stranger_revokes_only_what_it_issued() -> None:
    async def work(one: Host) -> None:
        passport = passport_of(N2)
        await register(one, passport, N2)
        copy = passport_of(N2, N4, passport_id=passport["passport_id"])
        assert (await revoke(one, revocation_of(copy, N4))).status == 200
        assert (await read(one, f"/cap/{N2.node_id}")).status == 200

    at_a_directory(work)


@pytest.mark.parametrize("target", ["delegation", "reference"])
def test_a_passport_is_revoked_by_its_delegation_or_its_revocation_ref(target: str) -> None:
    async def work(one: Host) -> None:
        delegation = {
            "delegation_id": "delegation:key:d1", "proxy_key": "p", "principal_key": "q",
            "grants": [], "expires_at": "2027-01-01T00:00:00Z", "principal_signature": "s",
        }  # fmt: skip
        passport = passport_of(N2, revocation_ref="passport-revocation:r1")
        passport["issuer_delegation"] = delegation
        assert (await register(one, passport, N2)).status == 201
        revocation = revocation_of(passport, N2, revocation_id="passport-revocation:r1")
        if target == "delegation":
            draft = {
                **{k: v for k, v in revocation.items() if k not in ("passport_id", "signature")},
                "revocation_id": "passport-revocation:other", "target_id": "delegation:key:d1",
            }  # fmt: skip
            revocation = N2.sign_as_participant(draft)
        else:
            revocation = revocation_of(
                {**passport, "passport_id": "passport:capability:other"}, N2,
                revocation_id="passport-revocation:r1",
            )  # fmt: skip
        assert (await revoke(one, revocation)).status == 200
        assert (await read(one, f"/cap/{N2.node_id}")).status == 404

    at_a_directory(work)


def test_a_revocation_that_comes_first_keeps_the_passport_out() -> None:
    async def work(one: Host) -> None:
        passport = passport_of(N2)
        assert (await revoke(one, revocation_of(passport, N2))).status == 200
        answer = await register(one, passport, N2)
        assert (answer.status, answer.body["code"]) == (403, "revoked")

    at_a_directory(work)


def test_one_signer_cannot_fill_the_directory_with_revocations_of_unknown_passports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "UNKNOWN_REVOCATIONS_OF_A_SIGNER", 2)

    async def work(one: Host) -> None:
        unknown = [
            revocation_of(passport_of(N3, N4, passport_id=f"passport:capability:{n}"), N4)
            for n in range(3)
        ]
        answers = [await revoke(one, each) for each in unknown]
        assert [answer.status for answer in answers] == [200, 200, 429]
        passport = passport_of(N2)
        await register(one, passport, N2)
        assert (await revoke(one, revocation_of(passport, N2))).status == 200

    at_a_directory(work)


def test_made_up_revocations_that_name_a_registered_node_are_as_unknown_as_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "UNKNOWN_REVOCATIONS_OF_A_SIGNER", 2)

    async def work(one: Host) -> None:
        await register(one, passport_of(N3), N3)
        made_up = [
            revocation_of(passport_of(N3, N4, passport_id=f"passport:capability:{n}"), N4)
            for n in range(3)
        ]
        answers = [await revoke(one, each) for each in made_up]
        assert [answer.status for answer in answers] == [200, 200, 429]

    at_a_directory(work)


def test_a_flood_of_unknown_revocations_leaves_room_for_those_of_registered_passports() -> None:
    async def work(one: Host) -> None:
        passport = passport_of(N2)
        await register(one, passport, N2)
        flood = [
            revocation_of(passport_of(N3, signer), signer)
            for signer in (KeySigner(number) for number in range(20, 26))
        ]
        statuses = [(await revoke(one, each)).status for each in flood]
        assert statuses == [200, 200, 429, 429, 429, 429]
        assert (await revoke(one, revocation_of(passport, N2))).status == 200
        assert (await read(one, f"/cap/{N2.node_id}")).status == 404

    at_a_directory(work, directory={"revocations_max": 4})


# -- participants ----------------------------------------------------------------------------


def test_a_participant_is_shown_with_the_nodes_that_confirm_it() -> None:
    async def work(one: Host) -> None:
        await register(one, passport_of(N2), N2)
        hijacked = passport_of(N3, N2)  # N3 never presents it
        await register(one, hijacked, N3, advertisement=advertisement_of(N3))
        found = (await read(one, f"/participant/{N2.participant_id}")).body
        assert [node["node_id"] for node in found["nodes"]] == [N2.node_id]
        assert found["nodes"][0]["capabilities"] == [CAPABILITY]
        assert (await read(one, f"/participant/{N4.participant_id}")).status == 404

    at_a_directory(work)


# -- state -----------------------------------------------------------------------------------


def test_a_restart_changes_nothing() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        one = await host(network).open()
        passport, other = passport_of(N2), passport_of(N3)
        await register(one, passport, N2, 4)
        await register(one, other, N3, 2)
        await revoke(one, revocation_of(other, N3))
        paths = ("/cap", "/revocations", f"/adv/{N2.node_id}", f"/adv/{N3.node_id}")
        before = [(await read(one, path)).body for path in paths]
        await one.close()
        again = await host(network, store=one.store).open()
        assert [(await read(again, path)).body for path in paths] == before
        answer = await register(again, passport, N2, 4)
        assert answer.body["current/sequence-no"] == 4
        assert (await register(again, other, N3, 9)).body["code"] == "revoked"
        await again.close()

    run_virtually(scenario())


def test_a_registration_ends_with_its_passport_and_its_number_is_remembered() -> None:
    async def work(one: Host) -> None:
        await register(one, passport_of(N2, life=HOUR), N2, 7)
        await asyncio.sleep(3601)
        assert (await read(one, f"/cap/{N2.node_id}")).status == 404
        assert part_of(one).registry.registrations.get(N2.node_id) is None
        again = passport_of(N2, issued=NOW + HOUR)
        answer = await register(one, again, N2, 7)
        assert (answer.status, answer.body["current/sequence-no"]) == (409, 7)
        assert (await register(one, again, N2, 8)).status == 200

    at_a_directory(work)
