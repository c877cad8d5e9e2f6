"""What becomes of a relay: stored, stale or rejected, by its class; and of rows as time passes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from anabranch.market.catalog.relays import OFFER_BYTES, forwarded
from anabranch.market.documents import check
from anabranch.market.documents.offers import HOPS_MAX
from anabranch.market.node.check import check_streams
from anabranch.market.node.offers.records import FAMILIES, OBSERVED, TrustReviewed

from .support import (
    ARCA,
    DAY,
    HOUR,
    ME,
    OTHER,
    PEER,
    START,
    STRANGER,
    Desk,
    Keys,
    numbered,
    offer,
    relay,
    rfc3339,
    unsigned,
)

NAME = "offer:summaries"
FORGED = {**offer(), "pricing/amount": 1}
NOT_TOO_LARGE, TOO_LARGE = (
    offer(**{"service/description": "x" * (length - len(msgspec.json.encode(offer())) + 9)})
    for length in (OFFER_BYTES, OFFER_BYTES + 1)
)
BY_NODE = PEER.sign_as_node(unsigned(PEER))


def later(milliseconds: int) -> str:
    return rfc3339(START + milliseconds)


@pytest.mark.parametrize(
    ("given", "source", "outcome"),
    [
        (relay(), PEER, ("stored", "")),
        (relay(hops=3), PEER, ("stored", "")),
        (relay(hops=1), OTHER, ("stored", "")),
        (relay(more={"relay/intended-node-id": ME.node_id}), PEER, ("stored", "")),
        (relay(offer(**{"offer/status": "withdrawn"})), PEER, ("stored", "")),
        (relay(more={"relay/relayed-at": later(60_000)}), PEER, ("stored", "")),
        (relay(offer(**{"published-at": later(60_000)})), PEER, ("stored", "")),
        (relay(NOT_TOO_LARGE), PEER, ("stored", "")),
        (relay(TOO_LARGE), PEER, ("rejected", "too-large")),
        (relay(hops=4), PEER, ("rejected", "too-many-hops")),
        (relay(hops=-1), PEER, ("rejected", "too-many-hops")),
        (relay(), OTHER, ("rejected", "origin-mismatch")),
        (relay(), STRANGER, ("rejected", "origin-mismatch")),
        (relay(more={"relay/intended-node-id": OTHER.node_id}), PEER, ("rejected", "not-intended")),
        (relay(more={"relay/relayed-at": later(HOUR)}), PEER, ("rejected", "not-yet-valid")),
        (relay(offer(**{"published-at": later(HOUR)})), PEER, ("rejected", "not-yet-valid")),
        (relay(offer(**{"expires-at": later(0)})), PEER, ("rejected", "expired")),
        (relay(FORGED), PEER, ("rejected", "wrong-signature")),
        (relay(BY_NODE), PEER, ("rejected", "wrong-signature")),
        (relay(unsigned()), PEER, ("rejected", "missing-field")),
        (relay(offer(ME)), PEER, ("rejected", "local-offer")),
        (relay(more={"relay/id": "r1"}), PEER, ("rejected", "bad-text")),
        (
            relay(more={"relay/origin-node-id": PEER.participant_id}),
            PEER,
            ("rejected", "wrong-role"),
        ),
        ({"offer": offer()}, PEER, ("rejected", "missing-field")),
        (offer(), PEER, ("rejected", "missing-field")),
        (None, PEER, ("rejected", "not-an-object")),
        ("relay", PEER, ("rejected", "not-an-object")),
        ({}, PEER, ("rejected", "missing-field")),
    ],
)
def test_a_relay_is_stored_or_rejected_by_its_class(
    given: Any, source: Keys, outcome: tuple[str, str]
) -> None:
    desk = Desk()
    assert desk.admit(given, source) == outcome
    assert desk.store.node_streams.stream_names() == (
        [f"state/observed-offer/{NAME}"] if outcome[0] == "stored" else []
    )


@pytest.mark.parametrize(
    ("sequence", "outcome"), [(0, "stale"), (2, "stale"), (3, "stale"), (4, "stored")]
)
def test_only_a_greater_number_replaces_what_is_known(sequence: int, outcome: str) -> None:
    desk = Desk()
    desk.admit(relay())
    other = offer(**{"sequence/no": sequence, "pricing/amount": 7})
    assert desk.admit(relay(other)) == (outcome, "")
    assert desk.part.offer(NAME) == (other if outcome == "stored" else offer())
    assert desk.again().part.offer(NAME) == desk.part.offer(NAME)


def test_a_withdrawn_offer_is_known_and_not_active() -> None:
    desk = Desk()
    desk.admit(relay())
    gone = offer(**{"sequence/no": 4, "offer/status": "withdrawn"})
    assert desk.admit(relay(gone)) == ("stored", "")
    assert desk.admit(relay()) == ("stale", ""), "what was withdrawn does not come back"
    assert desk.part.offer(NAME) == gone, "for the classes of orders"
    assert desk.ask("GET", "/v1/service-offers?source=observed")[1]["offers"] == []
    assert desk.seen() == [NAME]


# -- trust -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "source", "hops", "trust"),
    [
        (PEER, PEER, 0, "federation"),
        (PEER, OTHER, 1, "federation"),
        (PEER, STRANGER, 1, "untrusted"),
        (STRANGER, STRANGER, 0, "untrusted"),
        (STRANGER, PEER, 1, "untrusted"),
    ],
)
def test_trust_is_derived_from_who_is_known(
    origin: Keys, source: Keys, hops: int, trust: str
) -> None:
    desk = Desk()
    assert desk.admit(relay(origin=origin, hops=hops), source) == ("stored", "")
    assert desk.trust_of() == trust
    assert desk.seen() == ([NAME] if trust != "untrusted" else [])
    found = desk.part.offer(NAME)
    assert (found is None) == (trust == "untrusted")
    status, body = desk.ask("GET", f"/v1/service-offers/{NAME}")
    if trust == "untrusted":
        assert (status, body["code"]) == (404, "offer-not-found")
    else:
        assert body["trust_level"] == trust
        assert (body["source_node_id"], body["relay_hops"]) == (source.node_id, hops)
        assert body["relay_origin_node_id"] == origin.node_id
        assert body["observed_at"] == rfc3339(START)


def test_a_trusted_provider_is_explicit_whoever_brings_the_offer() -> None:
    desk = Desk()
    desk.ask("POST", "/v1/trusted-providers", {"participant_id": PEER.participant_id})
    desk.admit(relay(origin=STRANGER), STRANGER)
    assert desk.trust_of() == "explicit"


@pytest.mark.parametrize(
    ("federation", "trust"),
    [("none", "untrusted"), ([], "untrusted"), ([PEER.node_id], "federation"),
     ([OTHER.node_id], "untrusted"), ("known-peers", "federation")],
)  # fmt: skip
def test_the_operator_says_who_is_of_the_federation(federation: Any, trust: str) -> None:
    desk = Desk({"federation": federation})
    desk.admit(relay())
    assert desk.trust_of() == trust


def test_fields_about_trust_in_a_relay_count_for_nothing() -> None:
    desk = Desk()
    desk.admit(
        relay(origin=STRANGER, more={"trust_level": "explicit", "source": "local"}), STRANGER
    )
    assert (desk.trust_of(), desk.seen()) == ("untrusted", [])


def test_trust_is_not_retroactive_and_reviewed_when_the_offer_comes_again() -> None:
    desk = Desk()
    desk.admit(relay(origin=STRANGER), STRANGER)
    desk.ask("POST", "/v1/trusted-providers", {"participant_id": PEER.participant_id})
    assert desk.seen() == []
    assert desk.admit(relay(origin=STRANGER), STRANGER) == ("stale", "")
    assert (desk.seen(), desk.trust_of()) == ([NAME], "explicit")
    desk.ask("DELETE", f"/v1/trusted-providers/{PEER.participant_id}")
    assert desk.seen() == [NAME]
    assert desk.admit(relay(origin=STRANGER), STRANGER) == ("stale", "")
    assert (desk.seen(), desk.trust_of()) == ([], "untrusted")


def test_no_stranger_hides_an_offer_by_relaying_it() -> None:
    desk = Desk()
    desk.admit(relay())
    newer = numbered(PEER, NAME, 4)
    for given in (offer(), newer):
        desk.admit(relay(given, origin=STRANGER), STRANGER)
        assert desk.trust_of() == "federation"
    assert desk.part.offer(NAME) == newer
    del desk.directory.known[PEER.node_id]
    assert desk.admit(relay(numbered(PEER, NAME, 5), origin=STRANGER), STRANGER)[0] == "stored"
    assert desk.trust_of() == "untrusted", "the peer who vouched is not known any more"


# -- one id, several participants ------------------------------------------------------------


def test_an_id_belongs_to_the_participant_who_was_first() -> None:
    desk = Desk()
    desk.admit(relay())
    theirs = numbered(OTHER, NAME, 99)
    assert desk.admit(relay(theirs, OTHER), OTHER) == ("rejected", "provider-mismatch")
    assert desk.part.offer(NAME) == offer()


def test_a_stranger_does_not_keep_an_id_from_a_trusted_participant() -> None:
    desk = Desk()
    squatted = numbered(STRANGER, NAME, 2**40)
    desk.admit(relay(squatted, STRANGER), STRANGER)
    another = Keys(9)
    theirs = numbered(another, NAME, 1)
    assert desk.admit(relay(theirs, another), another) == ("rejected", "provider-mismatch")
    assert desk.admit(relay()) == ("stored", "")
    assert desk.part.offer(NAME) == offer()


def test_a_peer_does_not_keep_an_id_from_a_participant_whom_the_operator_trusts() -> None:
    desk = Desk()
    desk.admit(relay(numbered(OTHER, NAME, 99), OTHER), OTHER)
    assert desk.trust_of() == "federation"
    desk.ask("POST", "/v1/trusted-providers", {"participant_id": PEER.participant_id})
    assert desk.admit(relay(origin=STRANGER), STRANGER) == ("stored", "")
    assert desk.part.offer(NAME) == offer()
    theirs = numbered(OTHER, NAME, 100)
    assert desk.admit(relay(theirs, OTHER), OTHER) == ("rejected", "provider-mismatch")


# -- time and room ---------------------------------------------------------------------------


def test_what_strangers_sent_is_gone_after_an_hour() -> None:
    desk = Desk()
    desk.admit(relay(origin=STRANGER), STRANGER)
    desk.pass_time(HOUR - 1)
    assert desk.trust_of() == "untrusted"
    desk.pass_time(1)
    assert desk.trust_of() == ""
    assert desk.entities.count_open(OBSERVED) == 0
    old = numbered(PEER, NAME, 1)
    assert desk.admit(relay(old, origin=STRANGER), STRANGER) == ("stored", ""), "all is forgotten"


def test_the_hour_is_over_also_for_a_node_that_was_down() -> None:
    desk = Desk()
    desk.admit(relay(origin=STRANGER), STRANGER)
    desk.clock.advance_to(START + 2 * HOUR)
    again = desk.again()
    again.wake()
    assert again.trust_of() == ""


def test_an_expired_offer_stays_for_a_week_and_its_number_longer() -> None:
    desk = Desk()
    short = offer(**{"expires-at": later(DAY)})
    desk.admit(relay(short))
    desk.pass_time(2 * DAY)
    assert desk.part.offer(NAME) == short, "for the classes of orders"
    desk.pass_time(6 * DAY)
    assert desk.part.offer(NAME) is None
    older = numbered(PEER, NAME, 2)
    assert desk.admit(relay(older)) == ("stale", "")
    desk.pass_time(2 * DAY)
    again = desk.again()
    assert again.store.node_streams.stream_names() == []


def many(desk: Desk, keys: Keys, first: int, count: int) -> list[tuple[str, str]]:
    return [
        desk.admit(relay(numbered(keys, f"offer:n{number}", 1), keys), keys)
        for number in range(first, first + count)
    ]


def test_so_many_rows_are_kept_and_strangers_leave_first() -> None:
    desk = Desk({"observed_max": 3})
    assert {one for one, _ in many(desk, STRANGER, 0, 2)} == {"stored"}
    assert many(desk, PEER, 10, 1) == [("stored", "")]
    assert many(desk, STRANGER, 2, 1) == [("rejected", "catalog-full")], "strangers do not push"
    assert many(desk, PEER, 11, 2) == [("stored", "")] * 2
    assert desk.seen() == ["offer:n10", "offer:n11", "offer:n12"]
    assert many(desk, PEER, 13, 1) == [("rejected", "catalog-full")]
    newer = numbered(PEER, "offer:n10", 2)
    assert desk.admit(relay(newer)) == ("stored", ""), "a newer version needs no more room"


def test_whoever_has_the_most_gives_up_for_others_and_nobody_for_who_is_trusted_less() -> None:
    desk = Desk({"observed_max": 4})
    assert many(desk, PEER, 0, 4) == [("stored", "")] * 4
    assert many(desk, STRANGER, 10, 1) == [("rejected", "catalog-full")]
    full = ("rejected", "catalog-full")
    assert many(desk, OTHER, 20, 3) == [("stored", ""), ("stored", ""), full]
    assert desk.seen() == ["offer:n2", "offer:n20", "offer:n21", "offer:n3"]
    assert many(desk, PEER, 0, 1) == [full], "there is no place for it"
    # A provider whom the operator trusts comes in whatever there is, and in turn has a share.
    trusted = (Keys(8), Keys(9))
    for keys in trusted:
        desk.ask("POST", "/v1/trusted-providers", {"participant_id": keys.participant_id})
    brought = [
        desk.admit(relay(numbered(keys, f"offer:t{number}", 1), STRANGER), STRANGER)[0]
        for number, keys in enumerate((*trusted[:1] * 5, *trusted[1:] * 3))
    ]
    assert brought == ["stored"] * 4 + ["rejected"] + ["stored"] * 2 + ["rejected"]
    assert desk.seen() == ["offer:t2", "offer:t3", "offer:t5", "offer:t6"]
    # What had to leave comes again as it was where there is room, and nothing older.
    desk.ask("POST", "/v1/service-offers/drop", {"by": trusted[0].participant_id})
    older = numbered(PEER, "offer:n3", 0)
    assert desk.admit(relay(older))[0] in ("stale", "rejected")
    assert many(desk, PEER, 3, 1) == [("stored", "")]


def test_an_offer_is_kept_for_a_while_whatever_it_says_and_longer_where_it_is_heard_of() -> None:
    desk = Desk()
    for_ever = {"expires-at": "9999-01-01T00:00:00Z"}
    given = [relay(offer(**for_ever, **{"offer/id": f"offer:{name}"})) for name in "ab"]
    for one in given:
        desk.admit(one)
    for _ in range(3):
        desk.pass_time(40 * DAY)
        desk.admit(given[0])
        assert desk.seen()[0] == "offer:a"
    assert desk.seen() == ["offer:a"]
    assert desk.admit(given[1]) == ("stored", ""), "it is told again"


def test_offers_of_a_version_that_kept_them_for_ever_leave_as_well() -> None:
    desk = Desk()
    desk.admit(relay(offer(**{"expires-at": "9999-01-01T00:00:00Z"})))
    row = desk.entities.get(OBSERVED, NAME)
    assert row is not None
    with desk.entities.change() as change:
        change.add(OBSERVED, NAME, TrustReviewed(row.trust, row.route, START, 2**45))
    asyncio.run(desk.entities.durable())
    again = desk.again()
    again.pass_time(60 * DAY)
    assert again.seen() == []


def test_of_an_offer_the_newest_version_alone_is_kept() -> None:
    desk = Desk()
    large = {"service/description": "x" * 50_000}
    for number in range(1, 40):
        desk.admit(relay(offer(**large, **{"sequence/no": number})))
    streams = desk.store.node_streams
    rows = streams.stream_events(OBSERVED.stream(NAME))
    assert sum(len(row.events) for row in rows) < 60_000
    assert desk.again().part.offer(NAME) == desk.part.offer(NAME)
    assert check_streams(streams, FAMILIES).problems == []


def test_the_operator_drops_offers_by_who_provides_or_brought_them() -> None:
    desk = Desk()
    path = "/v1/service-offers/drop"
    many(desk, PEER, 0, 2)
    many(desk, OTHER, 10, 1)
    many(desk, STRANGER, 20, 2)
    for by, status in ((PEER.participant_id, 200), (PEER.node_id, 404), (OTHER.node_id, 200),
                       (STRANGER.node_id, 200), ("network", 400)):  # fmt: skip
        assert desk.ask("POST", path, {"by": by})[0] == status
    assert desk.ask("POST", path, {"by": PEER.node_id}, ARCA)[0] == 403
    assert desk.entities.count_open(OBSERVED) == 0
    assert many(desk, PEER, 0, 1) == [("stale", "")]
    assert desk.admit(relay(numbered(PEER, "offer:n0", 2))) == ("stored", "")


def test_what_has_expired_makes_room() -> None:
    desk = Desk({"observed_max": 1})
    desk.admit(relay(offer(**{"expires-at": later(HOUR)})))
    assert many(desk, STRANGER, 0, 1) == [("rejected", "catalog-full")]
    desk.pass_time(HOUR)
    assert many(desk, STRANGER, 0, 1) == [("stored", "")]


# -- passing on ------------------------------------------------------------------------------


@pytest.mark.parametrize("hops", range(HOPS_MAX + 1))
@pytest.mark.parametrize("keep", [None, False, True])
def test_a_relay_is_passed_on_with_one_hop_more_unless_it_goes_too_far(
    hops: int, keep: bool | None
) -> None:
    desk = Desk()
    given = relay(hops=hops, more={"relay/do-not-forward": keep})
    desk.admit(given, PEER)
    row = desk.entities.get(OBSERVED, NAME)
    assert row is not None
    passed = forwarded(row.offer, row.route, START + 5)
    if keep or hops == HOPS_MAX:
        assert passed is None
    else:
        assert passed is not None
        assert check(passed, kind="service-offer-relay.v1", at=START + 5) == []
        assert (passed["relay/hops"], passed["offer"]) == (hops + 1, offer())
        assert passed["relay/origin-node-id"] == PEER.node_id
        assert passed["relay/relayed-at"] == rfc3339(START + 5)
