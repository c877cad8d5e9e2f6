"""Offers of this node: drafts are completed and signed, signatures are verified and never replaced,
a version needs a greater number."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.market.catalog.relays import problem_of
from anabranch.market.documents import check
from anabranch.market.node.api import OPEN
from anabranch.market.node.offers import drafts, part
from anabranch.market.node.offers.records import LOCAL, TRUSTED, LocalPublished, ProviderTrusted

from .support import ARCA, DATOR, DAY, ME, START, STRANGER, Desk, offer, relay, rfc3339, unsigned

PATH = "/v1/service-offers"
DRAFT = {"service/type": "text/summarise", "pricing/amount": 100}


def test_a_draft_gets_provider_defaults_and_signature() -> None:
    desk = Desk()
    status, body = desk.ask("POST", PATH, DRAFT)
    assert (status, body["status"]) == (201, "stored")
    made = body["offer"]
    assert check(made, kind="service-offer.v1", at=START) == []
    assert made["provider/node-id"] == ME.node_id
    assert made["provider/participant-id"] == ME.participant_id
    assert made["offer/id"].startswith("offer:text-summarise-")
    assert (made["sequence/no"], made["offer/status"]) == (1, "active")
    assert (made["published-at"], made["expires-at"]) == (rfc3339(START), rfc3339(START + 30 * DAY))
    assert made["queue/current-depth"] == 0
    assert desk.part.offer(made["offer/id"]) == made
    assert desk.ask("GET", f"{PATH}/{made['offer/id']}") == (
        200,
        {
            "offer": made,
            "source": "local",
            "trust_level": "local",
            "source_node_id": ME.node_id,
            "relay_origin_node_id": None,
            "relay_hops": None,
            "observed_at": None,
            "queue": {"max_depth": 16, "current_depth": 0, "saturated": False},
        },
    )


def test_what_a_draft_says_is_kept() -> None:
    said = unsigned(ME, **{"queue/max-depth": 0, "hybrid": True, "x/own": {"a": [1]}})
    status, body = Desk().ask("POST", PATH, said)
    assert status == 201
    assert {key: body["offer"][key] for key in said} == said


def test_the_same_draft_again_is_the_next_version() -> None:
    desk = Desk()
    first = desk.ask("POST", PATH, DRAFT)[1]["offer"]
    desk.clock.advance_to(START + 5)
    second = desk.ask("POST", PATH, {**DRAFT, "pricing/amount": 120})[1]["offer"]
    assert second["offer/id"] == first["offer/id"]
    assert second["sequence/no"] == 2
    assert second["created-at"] == first["created-at"]
    assert desk.again().part.offer(first["offer/id"]) == second


def test_a_signed_offer_is_kept_as_it_is() -> None:
    desk = Desk()
    signed = offer(ME)
    assert desk.ask("POST", PATH, signed) == (201, {"status": "stored", "offer": signed})
    assert desk.ask("POST", PATH, signed) == (200, {"status": "unchanged", "offer": signed})
    assert desk.again().part.offer("offer:summaries") == signed


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"pricing/amount": 99}, "wrong-signature"),
        ({"signature": {"alg": "ed25519", "value": "base64url:…"}}, "bad-signature"),
        ({"signature": None}, "bad-signature"),
        ({"expires-at": rfc3339(START)}, "expired"),
        ({"published-at": rfc3339(START + 31 * DAY)}, "times-out-of-order"),
    ],
)
def test_a_signed_offer_with_something_wrong_is_refused(changes: Any, code: str) -> None:
    desk = Desk()
    status, body = desk.ask("POST", PATH, {**offer(ME), **changes})
    assert (status, body["code"]) == (400, "invalid_document")
    assert code in [one["code"] for one in body["problems"]]
    assert desk.ask("GET", PATH)[1]["offers"] == []


def test_the_key_of_a_node_signs_no_offer() -> None:
    given = unsigned(ME)
    status, body = Desk().ask("POST", PATH, ME.sign_as_node(given))
    assert (status, body["problems"][0]["code"]) == (400, "wrong-signature")


@pytest.mark.parametrize(
    "given",
    [
        offer(STRANGER),
        unsigned(STRANGER),
        unsigned(ME, **{"provider/participant-id": STRANGER.participant_id}),
        {**DRAFT, "provider/node-id": STRANGER.node_id},
    ],
)
def test_an_offer_of_another_provider_is_not_published_here(given: Any) -> None:
    desk = Desk()
    status, body = desk.ask("POST", PATH, given)
    assert (status, body["code"]) == (400, "provider-mismatch")
    assert desk.part.local() == []


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ([], None),
        ("offer", None),
        ({"pricing/amount": 1}, "/service~1type"),
        ({"service/type": "x"}, "/pricing~1amount"),
        ({**DRAFT, "pricing/amount": -1}, "/pricing~1amount"),
        ({**DRAFT, "pricing/amount": 1.5}, "/pricing~1amount"),
        ({**DRAFT, "offer/id": "summaries"}, "/offer~1id"),
        ({**DRAFT, "offer/id": 7}, "/offer~1id"),
        ({**DRAFT, "offer/status": "gone"}, "/offer~1status"),
        ({**DRAFT, "sequence/no": -1}, "/sequence~1no"),
        ({**DRAFT, "sequence/no": 2**53 - 1}, "/sequence~1no"),
        ({**DRAFT, "expires-at": rfc3339(START - 1)}, "/expires-at"),
        ({**DRAFT, "model-first": True}, "/model-first"),
        ({**DRAFT, "service/description": "x" * 64 * 1024}, ""),
        ({**DRAFT, "queue/current-depth": -1}, "/queue~1current-depth"),
        ({**DRAFT, "published-at": rfc3339(START + DAY)}, "/published-at"),
    ],
)
def test_a_draft_with_something_wrong_changes_nothing(given: Any, path: str | None) -> None:
    desk = Desk()
    status, body = desk.ask("POST", PATH, given)
    assert (status, body["code"]) == (400, "invalid_document")
    if path is not None:
        assert path in [one["path"] for one in body["problems"]]
    assert desk.store.node_streams.stream_names() == []


@pytest.mark.parametrize("sequence", [0, 2, 3])
def test_a_version_without_a_greater_number_is_stale(sequence: int) -> None:
    desk = Desk()
    desk.ask("POST", PATH, offer(ME))
    other = offer(ME, **{"sequence/no": sequence, "pricing/amount": 7})
    status, body = desk.ask("POST", PATH, other)
    assert (status, body["code"]) == (409, "stale-sequence")
    assert (body["current/sequence-no"], body["submitted/sequence-no"]) == (3, sequence)
    assert desk.part.offer("offer:summaries") == offer(ME)


def test_a_withdrawal_is_a_version_with_a_greater_number_that_is_still_valid() -> None:
    desk = Desk()
    desk.ask("POST", PATH, offer(ME))
    desk.clock.advance_to(START + 7)
    status, body = desk.ask("POST", f"{PATH}/offer:summaries/withdraw")
    gone = body["offer"]
    assert (status, body["status"]) == (200, "withdrawn")
    assert (gone["offer/status"], gone["sequence/no"]) == ("withdrawn", 4)
    assert gone["expires-at"] == offer(ME)["expires-at"]
    assert check(gone, kind="service-offer.v1", at=START + 7) == []
    assert desk.part.local() == []
    assert desk.part.local(active_only=False) == [gone]
    assert desk.part.offer("offer:summaries") == gone
    assert desk.ask("POST", f"{PATH}/offer:summaries/withdraw")[1]["status"] == "unchanged"
    status, body = desk.ask("POST", PATH, {**DRAFT, "offer/id": "offer:summaries"})
    assert (status, body["offer"]["sequence/no"]) == (201, 5), "it can be offered again"


def test_what_is_not_there_or_has_expired_is_not_withdrawn() -> None:
    desk = Desk()
    status, body = desk.ask("POST", f"{PATH}/offer:summaries/withdraw")
    assert (status, body["code"]) == (404, "offer-not-found")
    desk.ask("POST", PATH, offer(ME))
    desk.clock.advance_to(START + 30 * DAY)
    status, body = desk.ask("POST", f"{PATH}/offer:summaries/withdraw")
    assert (status, body["code"]) == (409, "offer-expired")


def test_the_largest_offer_can_be_withdrawn_everywhere() -> None:
    desk = Desk()
    longest = {"sequence/no": 9, "service/description": ""}
    size = len(msgspec.json.encode(offer(ME, **longest)))
    for length, status in ((drafts.OWN_BYTES, 201), (drafts.OWN_BYTES + 1, 400)):
        said = {**longest, "service/description": "x" * (length - size)}
        assert desk.ask("POST", PATH, offer(ME, **said))[0] == status
    gone = desk.ask("POST", f"{PATH}/offer:summaries/withdraw")[1]["offer"]
    assert len(msgspec.json.encode(gone)) > drafts.OWN_BYTES
    assert problem_of(relay(gone, ME), ME.node_id, STRANGER.node_id, START) == ("", "")


def test_what_is_unchanged_is_on_the_disk_before_that_is_said() -> None:
    signed = offer(ME)
    gone = offer(ME, **{"offer/id": "offer:gone", "offer/status": "withdrawn"})
    trusted = {"participant_id": STRANGER.participant_id}
    repeated: list[tuple[str, Any, Any]] = [
        (PATH, signed, (LOCAL, "offer:summaries", LocalPublished(signed, "operator", START))),
        (f"{PATH}/offer:gone/withdraw", None, (LOCAL, "offer:gone",
         LocalPublished(gone, "operator", START))),
        ("/v1/trusted-providers", trusted, (TRUSTED, STRANGER.participant_id,
         ProviderTrusted(STRANGER.participant_id, "operator", "", START))),
    ]  # fmt: skip
    for path, body, (family, thing, event) in repeated:
        desk = Desk()
        with desk.entities.change() as change:  # of another call, which is not durable yet
            change.add(family, thing, event)
        assert desk.ask("POST", path, body)[0] == 200
        assert desk.again().entities.get(family, thing) == desk.entities.get(family, thing)


def test_answers_have_nothing_that_came_while_they_waited_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What another call did meanwhile is not durable, so it is not told."""
    for path, status in ((PATH, 200), (f"{PATH}/offer:summaries", 404), ("", 200)):
        desk = Desk()
        durable = desk.entities.durable

        async def busy(desk: Desk = desk, durable: Any = durable) -> None:
            await durable()
            with desk.entities.change() as change:
                event = LocalPublished(offer(ME), "operator", START)
                change.add(LOCAL, "offer:summaries", event)

        monkeypatch.setattr(desk.entities, "durable", busy)
        answer = desk.ask("GET", path) if path else desk.capability(part.QUERY, {})
        assert answer[0] == status
        assert answer[1].get("offers", []) == []


def test_modules_publish_with_the_grant_alone() -> None:
    desk = Desk()
    status, body = desk.ask("POST", PATH, DRAFT, DATOR)
    assert status == 201
    name = body["offer"]["offer/id"]
    for path, given in ((PATH, DRAFT), (f"{PATH}/{name}/withdraw", None)):
        status, body = desk.ask("POST", path, given, ARCA)
        assert (status, body["code"]) == (403, "host_capability_forbidden")
    assert desk.ask("POST", PATH, DRAFT, OPEN)[0] == 401
    assert desk.part.local()[0]["sequence/no"] == 1


def test_the_capability_publishes_as_the_endpoint_does() -> None:
    desk = Desk()
    status, body = desk.capability(part.PUBLISH, DRAFT, DATOR)
    assert (status, body["status"]) == (201, "stored")
    assert desk.part.local() == [body["offer"]]


def test_a_local_offer_beats_the_observed_one_of_its_id() -> None:
    desk = Desk()
    assert desk.admit(relay()) == ("stored", "")
    assert desk.seen() == ["offer:summaries"]
    desk.ask("POST", PATH, {**DRAFT, "offer/id": "offer:summaries"})
    own = desk.part.offer("offer:summaries")
    assert own is not None
    assert own["provider/participant-id"] == ME.participant_id
    assert desk.seen() == []
    assert desk.admit(relay(offer(**{"sequence/no": 99}))) == ("rejected", "local-offer")


def test_a_node_has_so_many_offers_and_no_more() -> None:
    desk = Desk({"local_max": 2})
    for number in range(2):
        assert desk.ask("POST", PATH, {**DRAFT, "offer/id": f"offer:{number}"})[0] == 201
    status, body = desk.ask("POST", PATH, {**DRAFT, "offer/id": "offer:2"})
    assert (status, body["code"]) == (409, "catalog-full")
    assert desk.ask("POST", PATH, {**DRAFT, "offer/id": "offer:1"})[0] == 201


def test_offers_that_are_not_active_make_room_and_their_numbers_stay() -> None:
    desk = Desk({"local_max": 2})
    short = {"offer/id": "offer:short", "expires-at": rfc3339(START + 5)}
    for more in ({"offer/id": "offer:0"}, short):
        assert desk.ask("POST", PATH, {**DRAFT, **more})[0] == 201
        desk.clock.advance_to(desk.clock.now() + 1)
    desk.ask("POST", f"{PATH}/offer:0/withdraw")
    assert desk.ask("POST", PATH, {**DRAFT, "offer/id": "offer:1"})[0] == 201
    assert desk.ask("POST", PATH, {**DRAFT, "offer/id": "offer:2"})[0] == 409
    desk.clock.advance_to(START + 5)
    assert desk.ask("POST", PATH, {**DRAFT, "offer/id": "offer:2"})[0] == 201
    desk = desk.again()
    assert [one["offer/id"] for one in desk.part.local(active_only=False)] == ["offer:1", "offer:2"]
    gone = desk.part.offer("offer:0")
    assert gone is not None, "for the classes of orders"
    assert gone["sequence/no"] == 2
    status, body = desk.ask("POST", PATH, {**DRAFT, "offer/id": "offer:0"})
    assert (status, body["code"]) == (409, "catalog-full")
    desk.ask("POST", f"{PATH}/offer:1/withdraw")
    status, body = desk.ask("POST", PATH, {**DRAFT, "offer/id": "offer:0"})
    assert (status, body["offer"]["sequence/no"]) == (201, 3)
    assert len(desk.part.local(active_only=False)) == 2
