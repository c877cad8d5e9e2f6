"""What becomes of a relay at a catalog, what is seen of it, and what passes with time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.clock import ManualClock
from anabranch.errors import InputError, NotFound, StoreError
from anabranch.market import OfferCatalog, check
from anabranch.market.catalog import admission, relays
from anabranch.market.catalog.listing import CatalogFilter, filter_of
from anabranch.market.documents.offers import HOPS_MAX
from hangs import HANG_SECONDS

from ..node.offers.support import (
    DAY,
    HOUR,
    ME,
    OTHER,
    PEER,
    START,
    STRANGER,
    Keys,
    numbered,
    offer,
    relay,
    rfc3339,
    unsigned,
)

NAME = "offer:summaries"
KNOWN = {PEER.node_id, OTHER.node_id}
FORGED = {**offer(), "pricing/amount": 1}
LATER = rfc3339(START + HOUR)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def catalog(clock: ManualClock) -> Iterator[OfferCatalog]:
    found = OfferCatalog(clock=clock, node_id=ME.node_id, known_peers=KNOWN)
    yield found
    found.close()


def admit(catalog: OfferCatalog, given: Any, source: Keys = PEER) -> tuple[str, str]:
    status, reason = catalog.admit(given, source_node=source.node_id)
    return status, reason


def names(catalog: OfferCatalog, **more: Any) -> list[str]:
    return [row["offer"]["offer/id"] for row in catalog.rows(**more)]


def pass_time(clock: ManualClock, milliseconds: int) -> None:
    clock.advance_to(clock.now() + milliseconds)


# -- what becomes of a relay -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "source", "outcome"),
    [
        (relay(), PEER, ("stored", "")),
        (relay(hops=3), PEER, ("stored", "")),
        (relay(), STRANGER, ("stored", "untrusted")),
        (relay(origin=STRANGER), STRANGER, ("stored", "untrusted")),
        (relay(more={"relay/intended-node-id": ME.node_id}), PEER, ("stored", "")),
        (relay(offer(**{"offer/status": "withdrawn"})), PEER, ("stored", "")),
        (relay(more={"relay/relayed-at": rfc3339(START + 60_000)}), PEER, ("stored", "")),
        (relay(hops=4), PEER, ("rejected", "too-many-hops")),
        (relay(hops=-1), PEER, ("rejected", "too-many-hops")),
        (relay(FORGED), PEER, ("rejected", "wrong-signature")),
        (relay(PEER.sign_as_node(unsigned(PEER))), PEER, ("rejected", "wrong-signature")),
        (relay(unsigned()), PEER, ("rejected", "missing-field")),
        (relay(offer(**{"expires-at": rfc3339(START)})), PEER, ("rejected", "expired")),
        (relay(offer(ME)), PEER, ("rejected", "local-offer")),
        (relay(more={"relay/intended-node-id": OTHER.node_id}), PEER, ("rejected", "not-intended")),
        (relay(more={"relay/relayed-at": LATER}), PEER, ("rejected", "not-yet-valid")),
        (relay(offer(**{"service/description": "x" * 65_536})), PEER, ("rejected", "too-large")),
        (None, PEER, ("rejected", "not-an-object")),
        ([], PEER, ("rejected", "not-an-object")),
        ({"offer": 7}, PEER, ("rejected", "missing-field")),
        ({"offer": {"offer/id": {}}}, PEER, ("rejected", "missing-field")),
        (relay({**offer(), "x": float("nan")}), PEER, ("rejected", "bad-number")),
        (relay({**offer(), "x": b"bytes"}), PEER, ("rejected", "not-json")),
    ],
)  # fmt: skip
def test_a_relay_is_stored_or_rejected_by_its_class(
    catalog: OfferCatalog, given: Any, source: Keys, outcome: tuple[str, str]
) -> None:
    assert admit(catalog, given, source) == outcome
    assert (catalog.row(NAME, hidden=True) is not None) == (outcome[0] == "stored")


@pytest.mark.parametrize(
    ("sequence", "outcome"), [(0, "stale"), (2, "stale"), (3, "stale"), (4, "stored")]
)
def test_only_a_greater_number_replaces_even_where_the_content_differs(
    catalog: OfferCatalog, sequence: int, outcome: str
) -> None:
    admit(catalog, relay())
    other = offer(**{"sequence/no": sequence, "pricing/amount": 7})
    assert admit(catalog, relay(other))[0] == outcome
    row = catalog.row(NAME)
    assert row is not None
    assert row["offer"] == (other if outcome == "stored" else offer())


def test_a_forged_version_of_a_known_offer_is_rejected_whatever_its_number(
    catalog: OfferCatalog,
) -> None:
    admit(catalog, relay())
    for sequence in (2, 3, 4):
        forged = {**FORGED, "sequence/no": sequence}
        assert admit(catalog, relay(forged)) == ("rejected", "wrong-signature")


def test_the_same_again_is_not_checked_again_and_what_differs_is(
    catalog: OfferCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[Any] = []

    def counted(document: Any, **more: Any) -> Any:
        checks.append(document)
        return check(document, **more)

    monkeypatch.setattr(relays, "check", counted)
    assert admit(catalog, relay()) == ("stored", "")
    assert admit(catalog, relay(hops=1), OTHER) == ("stale", "sequence")
    assert len(checks) == 1
    assert admit(catalog, relay(hops=4)) == ("rejected", "too-many-hops")
    assert admit(catalog, relay(more={"relay/id": 7})) == ("rejected", "wrong-type")
    assert len(checks) == 1
    assert admit(catalog, relay(FORGED)) == ("rejected", "wrong-signature")
    assert len(checks) == 2


def test_a_withdrawn_offer_is_known_not_active_and_does_not_come_back(
    catalog: OfferCatalog,
) -> None:
    admit(catalog, relay())
    gone = offer(**{"sequence/no": 4, "offer/status": "withdrawn"})
    assert admit(catalog, relay(gone)) == ("stored", "")
    assert admit(catalog, relay()) == ("stale", "sequence")
    assert names(catalog) == []
    assert names(catalog, wanted=CatalogFilter(active_only=False)) == [NAME]


def test_a_relay_without_a_hop_that_another_node_sends_is_worth_what_its_provider_is(
    catalog: OfferCatalog,
) -> None:
    """A file or a person may hand it in; a peer may not."""
    found = catalog.admit(relay(), source_node=STRANGER.node_id, by_peer=True)
    assert tuple(found) == ("rejected", "origin-mismatch")
    assert admit(catalog, relay(), STRANGER) == ("stored", "untrusted")


# -- trust -----------------------------------------------------------------------------------


def test_trust_is_added_and_removed_as_facts_and_counts_from_the_next_admission(
    catalog: OfferCatalog, clock: ManualClock
) -> None:
    stranger = relay(offer(STRANGER), STRANGER)
    assert admit(catalog, stranger, STRANGER) == ("stored", "untrusted")
    assert catalog.facts.trust(STRANGER.participant_id, note="a friend")
    assert not catalog.facts.trust(STRANGER.participant_id)
    (entry,) = catalog.facts.trusted()
    assert check(entry, kind="trusted-provider.v1", at=START) == []
    assert names(catalog) == [], "not before it comes in again"
    assert admit(catalog, stranger, STRANGER) == ("stale", "sequence")
    assert names(catalog) == [NAME]
    row = catalog.row(NAME)
    assert row is not None
    assert row["trust_level"] == "explicit"
    catalog.facts.distrust(STRANGER.participant_id)
    assert catalog.facts.trusted() == []
    assert names(catalog) == [NAME]
    assert admit(catalog, stranger, STRANGER) == ("stale", "sequence")
    assert names(catalog) == []


def test_whom_the_host_trusts_counts_for_one_admission(catalog: OfferCatalog) -> None:
    given = relay(offer(STRANGER), STRANGER)
    source = STRANGER.node_id
    found = catalog.admit(given, source_node=source, trusted={STRANGER.participant_id})
    assert tuple(found) == ("stored", "")
    assert catalog.admit(given, source_node=source).status == "stale"
    assert names(catalog) == []


def test_a_node_cannot_be_trusted_as_a_participant(catalog: OfferCatalog) -> None:
    for wrong in (PEER.node_id, "participant:x", ""):
        with pytest.raises(InputError):
            catalog.facts.trust(wrong)
    with pytest.raises(NotFound):
        catalog.facts.distrust(PEER.participant_id)


def test_a_stranger_cannot_take_an_id_or_hide_an_offer(catalog: OfferCatalog) -> None:
    admit(catalog, relay())
    taken = relay(offer(STRANGER, **{"sequence/no": 9}), STRANGER)
    assert admit(catalog, taken, STRANGER) == ("rejected", "provider-mismatch")
    newer = relay(offer(**{"sequence/no": 9}), PEER, hops=1)
    assert admit(catalog, newer, STRANGER) == ("stored", "")
    assert names(catalog) == [NAME]


# -- time and room ---------------------------------------------------------------------------


def test_what_strangers_sent_is_gone_after_an_hour_however_often_they_send_it(
    catalog: OfferCatalog, clock: ManualClock
) -> None:
    stranger = relay(offer(STRANGER), STRANGER)
    admit(catalog, stranger, STRANGER)
    for _ in range(3):
        pass_time(clock, HOUR // 4)
        assert admit(catalog, stranger, STRANGER)[0] == "stale"
    assert catalog.purge() == 0
    pass_time(clock, HOUR // 4)
    assert catalog.purge() == 1
    assert catalog.counts() == {"local": 0, "observed": 0, "hidden": 0}


def test_over_days_nothing_late_stays_and_nothing_trusted_leaves(
    catalog: OfferCatalog, clock: ManualClock
) -> None:
    catalog.facts.trust(PEER.participant_id)
    admit(catalog, relay())
    for hour in range(72):
        name = f"offer:stranger-{hour}"
        assert admit(catalog, relay(numbered(STRANGER, name, 1), STRANGER), STRANGER)[1] == (
            "untrusted"
        )
        assert catalog.counts() == {"local": 0, "observed": 1, "hidden": 1}
        pass_time(clock, HOUR)
    assert names(catalog) == [NAME]
    pass_time(clock, 30 * DAY)
    assert names(catalog) == [], "expired"
    catalog.purge()
    assert catalog.counts()["observed"] == 1, "its number is known for a week"
    pass_time(clock, 7 * DAY)
    catalog.purge()
    assert catalog.counts()["observed"] == 0


def test_a_full_catalog_takes_trusted_offers_in_the_place_of_strangers(clock: ManualClock) -> None:
    catalog = OfferCatalog(clock=clock, known_peers=KNOWN, max_rows=2)
    for number in range(2):
        pass_time(clock, 1)
        one = relay(numbered(STRANGER, f"offer:s{number}", 1), STRANGER)
        assert admit(catalog, one, STRANGER)[0] == "stored"
    more = relay(numbered(STRANGER, "offer:s2", 1), STRANGER)
    assert admit(catalog, more, STRANGER) == ("rejected", "catalog-full")
    for number in range(2):
        assert admit(catalog, relay(numbered(PEER, f"offer:p{number}", 1))) == ("stored", "")
    assert names(catalog) == ["offer:p0", "offer:p1"]
    assert admit(catalog, relay(numbered(PEER, "offer:p2", 1))) == ("rejected", "catalog-full")
    assert admit(catalog, relay(numbered(PEER, "offer:p1", 2))) == ("stored", ""), "no new row"
    pass_time(clock, 31 * DAY)
    now = {"published-at": rfc3339(clock.now()), "expires-at": rfc3339(clock.now() + DAY)}
    assert admit(catalog, relay(offer(**now))) == ("stored", ""), "what has expired leaves"


def test_a_full_catalog_is_shared_by_who_is_trusted_as_much(clock: ManualClock) -> None:
    catalog = OfferCatalog(clock=clock, known_peers=KNOWN, max_rows=4)

    def all_of(keys: Keys, first: int, count: int, source: Keys) -> list[str]:
        numbers = range(first, first + count)
        given = [relay(numbered(keys, f"offer:n{number}", 1), source) for number in numbers]
        return [one.status for one in catalog.admit_all(given, source_node=source.node_id)]

    assert all_of(PEER, 0, 5, PEER) == ["stored"] * 4 + ["rejected"]
    assert all_of(OTHER, 20, 3, OTHER) == ["stored"] * 2 + ["rejected"]
    assert names(catalog) == ["offer:n2", "offer:n20", "offer:n21", "offer:n3"]
    catalog.facts.trust(STRANGER.participant_id)
    assert all_of(STRANGER, 30, 5, STRANGER) == ["stored"] * 4 + ["rejected"]
    assert all_of(OTHER, 22, 1, OTHER) == ["rejected"]
    catalog.facts.trust(OTHER.participant_id)
    assert all_of(OTHER, 40, 3, OTHER) == ["stored"] * 2 + ["rejected"]
    catalog.close()


def test_an_offer_that_says_that_it_never_expires_is_kept_for_a_while(
    catalog: OfferCatalog, clock: ManualClock
) -> None:
    given = relay(offer(**{"expires-at": "9999-01-01T00:00:00Z"}))
    admit(catalog, given)
    pass_time(clock, 60 * DAY)
    catalog.purge()
    assert names(catalog) == []
    assert admit(catalog, given) == ("stored", ""), "whoever has it tells it again"


# -- forwarding ------------------------------------------------------------------------------


def test_a_relay_is_passed_on_with_one_hop_more_and_no_further_than_relays_go(
    catalog: OfferCatalog, clock: ManualClock
) -> None:
    pass_time(clock, 5)
    given = relay(more={"relay/intended-node-id": ME.node_id})
    for hops in range(1, HOPS_MAX + 1):
        passed = catalog.forward(given)
        assert passed is not None
        assert (passed["relay/hops"], passed["relay/origin-node-id"]) == (hops, PEER.node_id)
        assert passed["relay/relayed-at"] == rfc3339(START + 5)
        assert "relay/intended-node-id" not in passed
        assert check(passed, kind="service-offer-relay.v1", at=clock.now()) == []
        given = passed
    assert catalog.forward(given) is None
    assert catalog.forward(relay(more={"relay/do-not-forward": True})) is None


# -- offers of the node itself ---------------------------------------------------------------


def test_the_local_offer_beats_the_observed_one_and_is_listed_before_all(
    catalog: OfferCatalog,
) -> None:
    admit(catalog, relay())
    admit(catalog, relay(numbered(OTHER, "offer:a", 1), OTHER), OTHER)
    own = offer(ME, **{"pricing/amount": 900})
    assert catalog.put_local([own, {**own, "offer/id": "offer:forged"}], ME.node_id) == 1
    assert names(catalog) == [NAME, "offer:a"]
    assert names(catalog, cheapest=True) == ["offer:a", NAME]
    row = catalog.row(NAME)
    assert row is not None
    assert (row["source"], row["trust_level"], row["offer"]) == ("local", "local", own)
    assert admit(catalog, relay(offer(**{"sequence/no": 99}))) == ("rejected", "local-offer")
    assert catalog.put_local([], ME.node_id) == 0
    assert names(catalog) == ["offer:a"]


# -- queries ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, "bac"),
        ({"service_type": "text/translate"}, "ba"),
        ({"service/type": "none"}, ""),
        ({"provider/participant-id": OTHER.participant_id}, "c"),
        ({"provider/node-id": PEER.node_id, "service/type": "text/summarise"}, ""),
        ({"active_only": False}, "bdac"),
        ({"limit": 2}, "ba"),
        ({"after": "offer:a"}, "bc"),
        ({"pricing/unit": "page"}, "c"),
        ({"pricing/amount": 5}, "a"),
        ({"pricing/amount": True}, ""),
        ({"service/type": ["text/translate"]}, ""),
        ({"no/field": None}, ""),
    ],
)
def test_offers_are_found_by_what_they_are_the_cheapest_first(
    catalog: OfferCatalog, wanted: Any, found: str
) -> None:
    translate = {"service/type": "text/translate"}
    for keys, name, more in (
        (PEER, "a", {**translate, "pricing/amount": 5}),
        (PEER, "b", {**translate, "pricing/amount": 1}),
        (OTHER, "c", {"pricing/unit": "page", "pricing/amount": 7}),
        (PEER, "d", {"offer/status": "withdrawn", "pricing/amount": 2}),
        (STRANGER, "e", translate),
    ):
        document = offer(keys, **{"offer/id": f"offer:{name}", **more})
        assert admit(catalog, relay(document, keys), keys)[0] == "stored"
    assert "".join(name[-1] for name in names(catalog, wanted=filter_of(wanted))) == found
    assert "e" not in found
    hidden = names(catalog, wanted=filter_of({"active_only": False}), hidden=True)
    assert sorted(hidden) == [f"offer:{name}" for name in "abcde"]


def test_rows_say_where_an_offer_was_seen(catalog: OfferCatalog) -> None:
    admit(catalog, relay(hops=2), OTHER)
    (row,) = catalog.rows()
    assert {key: row[key] for key in row if key != "offer"} == {
        "source": "observed",
        "trust_level": "federation",
        "source_node_id": OTHER.node_id,
        "relay_origin_node_id": PEER.node_id,
        "relay_hops": 2,
        "observed_at": rfc3339(START),
        "agora_record_id": None,
        "queue": {"max_depth": 10, "current_depth": 0, "saturated": False},
    }


def test_questions_are_answered_by_an_index_in_its_order(catalog: OfferCatalog) -> None:
    plans: list[str] = []
    with catalog.file.look() as db:
        db.set_trace_callback(plans.append)
        for fields in ({}, {"service_type": "a"}, {"provider/participant-id": "p"}):
            catalog.rows(filter_of(fields), source="observed")
        db.set_trace_callback(None)
        explained = [
            " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")) for sql in plans
        ]
    for plan, index in zip(explained, ("price", "service", "provider"), strict=True):
        assert f"offers_by_{index}" in plan
        assert "TEMP B-TREE" not in plan


# -- many at once ----------------------------------------------------------------------------


def test_a_batch_is_decided_in_its_order_beside_the_loop(
    catalog: OfferCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "AT_ONCE", 7)
    given: list[Any] = [relay(numbered(PEER, f"offer:n{number}", 1)) for number in range(30)]
    given += [relay(numbered(PEER, "offer:n3", 2)), relay(numbered(PEER, "offer:n3", 1)), None]
    work = catalog.admit_batch(given, source_node=PEER.node_id, by_peer=True)
    found = asyncio.run(work)
    assert [one.status for one in found] == ["stored"] * 31 + ["stale", "rejected"]
    assert [one.offer_id for one in found[:2]] == ["offer:n0", "offer:n1"]
    assert len(names(catalog, wanted=CatalogFilter(limit=500))) == 30


def test_the_parties_of_a_batch_are_those_of_the_kept_versions_too(catalog: OfferCatalog) -> None:
    admit(catalog, relay(hops=1), OTHER)
    wrong: list[Any] = [None, {"offer": []}, {"relay/origin-node-id": 7}]
    given = relay(offer(**{"sequence/no": 4}), STRANGER, hops=1)
    participants, nodes = catalog.parties([given, *wrong], STRANGER.node_id)
    assert participants == {PEER.participant_id}
    assert nodes == {PEER.node_id, OTHER.node_id, STRANGER.node_id}


# -- the file --------------------------------------------------------------------------------


def test_a_catalog_outlives_its_process(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "offers.db"
    first = OfferCatalog(path, clock=clock, known_peers=KNOWN)
    admit(first, relay())
    first.facts.trust(PEER.participant_id)
    first.close()
    second = OfferCatalog(path, clock=clock)
    assert names(second) == [NAME]
    assert len(second.facts.trusted()) == 1


def test_two_processes_share_a_file(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "offers.db"
    module, shell = (OfferCatalog(path, clock=clock, known_peers=KNOWN) for _ in range(2))
    shell.facts.trust(STRANGER.participant_id)
    assert admit(module, relay(offer(STRANGER), STRANGER), STRANGER) == ("stored", "")
    assert names(shell) == [NAME]


def test_a_change_that_fails_has_changed_nothing(catalog: OfferCatalog) -> None:
    admit(catalog, relay())
    with pytest.raises(StoreError):
        _fail_after_a_deletion(catalog)
    assert names(catalog) == [NAME]


def _fail_after_a_deletion(catalog: OfferCatalog) -> None:
    with catalog.file.change() as db:
        db.execute("DELETE FROM offers")
        db.execute("INSERT INTO offers (offer_id) VALUES ('x')")


@pytest.mark.parametrize("content", [b"no database at all, but a text of some length" * 40, b"x"])
def test_a_file_that_is_no_catalog_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        OfferCatalog(path)
    assert caught.value.code == "catalog_file"
    assert path.read_bytes() == content


def test_a_database_of_another_program_or_version_is_refused(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "offers.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE other (x)")
    with pytest.raises(InputError) as caught:
        OfferCatalog(path)
    assert caught.value.code == "catalog_file"
    newer = tmp_path / "newer.db"
    OfferCatalog(newer).close()
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 2")
    with pytest.raises(InputError) as caught:
        OfferCatalog(newer)
    assert caught.value.code == "catalog_version"
    with pytest.raises(InputError):
        OfferCatalog(tmp_path / "none" / "offers.db")


def test_what_was_refused_is_told_and_a_flood_does_not_fill_the_file(catalog: OfferCatalog) -> None:
    wrong = catalog.admit_all([relay(hops=4)] * 30, source_node=PEER.node_id)
    catalog.facts.refused("peer", wrong)
    found = catalog.facts.diagnostics()
    assert [one["code"] for one in found] == ["more", *["too-many-hops"] * 20]
    for _ in range(40):
        catalog.facts.refused("peer", wrong)
    assert len(catalog.facts.diagnostics(10_000)) == 500


def test_hostile_values_leave_the_catalog_whole(catalog: OfferCatalog) -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    sql = "x'); DROP TABLE offers; --"
    for wrong in (
        deep,
        relay({**offer(), "x": deep}),
        relay({**offer(), "offer/id": sql}),
        relay({**offer(), "offer/id": "offer:\ud800"}),
        {**relay(), "relay/origin-node-id": "node:\ud800"},
        {**relay(), "relay/origin-node-id": []},
        relay({**offer(), "sequence/no": 2**70}),
        {**relay(), "relay/origin-node-id": "node:" + "x" * 100_000},
        {str(number): number for number in range(2000)},
    ):
        assert admit(catalog, wrong)[0] == "rejected"
    assert catalog.rows(filter_of({"service_type": sql})) == []
    assert catalog.counts() == {"local": 0, "observed": 0, "hidden": 0}
    assert msgspec.json.encode(catalog.facts.diagnostics()) == b"[]"


def test_who_looks_does_not_wait_for_who_writes(tmp_path: Path, clock: ManualClock) -> None:
    """An event loop looks, while a thread has many offers to admit."""
    catalog = OfferCatalog(tmp_path / "offers.db", clock=clock, known_peers=KNOWN)
    assert admit(catalog, relay()) == ("stored", "")
    with catalog.file.change() as db:
        db.execute("DELETE FROM offers")
        looked: list[Any] = []
        other = threading.Thread(target=lambda: looked.append(names(catalog)), daemon=True)
        other.start()
        other.join(HANG_SECONDS)
        assert looked == [[NAME]]
    assert names(catalog) == []
    catalog.close()


def test_local_offers_that_are_known_are_not_written_again(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are copied before every search, also while another process writes."""
    catalog = OfferCatalog(tmp_path / "offers.db", clock=clock, node_id=ME.node_id)
    own = [offer(ME, **{"offer/id": "offer:own"})]
    assert catalog.put_local(own) == 1

    def no_change() -> Any:
        raise AssertionError("nothing has changed")

    monkeypatch.setattr(catalog.file, "change", no_change)
    assert catalog.put_local(own) == 1
    with pytest.raises(AssertionError):
        catalog.put_local([])
    catalog.close()


def test_what_strangers_sent_is_gone_also_where_the_clock_went_back(clock: ManualClock) -> None:
    catalog = OfferCatalog(clock=clock, known_peers=KNOWN)
    assert admit(catalog, relay(origin=STRANGER), STRANGER) == ("stored", "untrusted")
    catalog.clock = ManualClock(START - DAY)
    assert catalog.purge() == 1
