"""Lists of offers: by source, type, provider and whether they are active; and who is trusted."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.market.documents import check
from anabranch.market.node.api import OPEN
from anabranch.market.node.errors import NodeError
from anabranch.market.node.offers import part
from anabranch.market.node.offers.config import offers_config

from .support import ARCA, ME, OTHER, PEER, START, STRANGER, Desk, offer, relay, rfc3339

PATH = "/v1/service-offers"
TRUST = "/v1/trusted-providers"


@pytest.fixture
def desk() -> Desk:
    """Three offers of its own, of which one is withdrawn; two of others, and a hidden one."""
    desk = Desk()
    for name, service in (
        ("a", "text/summarise"),
        ("b", "text/translate"),
        ("c", "text/translate"),
    ):
        draft = {"offer/id": f"offer:{name}", "service/type": service, "pricing/amount": 1}
        assert desk.ask("POST", PATH, draft)[0] == 201
    desk.ask("POST", f"{PATH}/offer:c/withdraw")
    for keys, name in ((PEER, "p"), (OTHER, "o"), (STRANGER, "s")):
        desk.admit(relay(offer(keys, **{"offer/id": f"offer:{name}"}), keys), keys)
    return desk


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", "ab"),
        ("source=local", "ab"),
        ("active_only=false", "abc"),
        ("service_type=text/translate", "b"),
        ("service_type=text/translate&active_only=false", "bc"),
        ("service_type=nothing", ""),
        ("source=observed", "op"),
        ("source=observed&service_type=text/summarise", "op"),
        (f"source=observed&provider={PEER.participant_id}", "p"),
        (f"source=observed&provider_node={OTHER.node_id}", "o"),
        (f"source=observed&provider={STRANGER.participant_id}", ""),
        ("source=all", "abop"),
        ("source=all&limit=3", "abo"),
        ("limit=1", "a"),
        ("source=all&hidden=true", "s"),
        ("source=all&hidden=false", "abop"),
        ("source=local&hidden=true", ""),
        (f"source=all&hidden=true&provider={PEER.participant_id}", ""),
    ],
)
def test_offers_are_listed_by_what_is_asked_for(desk: Desk, query: str, names: str) -> None:
    status, body = desk.ask("GET", f"{PATH}?{query}" if query else PATH)
    assert status == 200
    assert "".join(one["offer/id"][-1] for one in body["offers"]) == names
    assert check(body, kind="offer-catalog-query-response.v1") == []


def test_counts_tell_the_operator_what_is_hidden_and_modules_nothing_of_it(desk: Desk) -> None:
    path = f"{PATH}?source=all"
    assert desk.ask("GET", path)[1]["counts"] == {
        "local": 2, "observed": 2, "shown": 4, "hidden": 1,
    }  # fmt: skip
    assert desk.ask("GET", path, caller=ARCA)[1]["counts"] == {
        "local": 2, "observed": 2, "shown": 4,
    }  # fmt: skip


def test_modules_are_shown_nothing_that_is_hidden(desk: Desk) -> None:
    status, body = desk.ask("GET", f"{PATH}?source=all&hidden=true", caller=ARCA)
    assert (status, body["code"]) == (403, "forbidden")
    assert desk.ask("GET", f"{PATH}?source=all&hidden=false", caller=ARCA)[0] == 200


@pytest.mark.parametrize(
    "query",
    ["source=hidden", "hidden=yes", "active_only=1", "limit=0", "limit=501", "limit=x", "limit=-1"],
)
def test_a_query_that_makes_no_sense_is_refused(desk: Desk, query: str) -> None:
    status, body = desk.ask("GET", f"{PATH}?{query}")
    assert (status, body["code"]) == (400, "bad_query")
    assert query.partition("=")[0] in body["detail"]


def test_one_offer_that_is_not_there_or_hidden_is_not_found(desk: Desk) -> None:
    for name in ("offer:s", "offer:x", "nothing"):
        assert desk.ask("GET", f"{PATH}/{name}")[1]["code"] == "offer-not-found"
    assert desk.ask("GET", f"{PATH}/offer:p", caller=OPEN)[0] == 401


def test_the_queue_of_an_offer_is_shown() -> None:
    desk = Desk()
    depth = {"queue/max-depth": 2, "queue/current-depth": 2}
    desk.admit(relay(offer(**depth)))
    row = desk.ask("GET", f"{PATH}/offer:summaries")[1]
    assert row["queue"] == {"max_depth": 2, "current_depth": 2, "saturated": True}


# -- offers.local.query ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (None, "ab"),
        ({}, "ab"),
        ({"schema_version": "v1", "capability_id": "offers_local_query"}, "ab"),
        ({"service_type": "text/translate"}, "b"),
        ({"query": {"service/type": "text/translate", "active_only": False}}, "bc"),
        ({"filter": {"limit": 1}}, "a"),
        ({"filter": {"after": "offer:a"}}, "b"),
        ({"filter": {"pricing/amount": 1}}, "ab"),
        ({"filter": {"pricing/amount": True}}, ""),
        ({"filter": {"no/field": 1}}, ""),
    ],
)
def test_modules_ask_for_local_offers_alone(desk: Desk, body: Any, names: str) -> None:
    status, answer = desk.capability(part.QUERY, body)
    assert status == 200
    assert "".join(one["offer/id"][-1] for one in answer["offers"]) == names
    assert answer["observed_offers"] == []
    assert check(answer, kind="offer-catalog-query-response.v1") == []


@pytest.mark.parametrize(
    "body", [[], "x", {"schema_version": "v2"}, {"query": []}, {"limit": "1"}, {"active_only": 1}]
)
def test_a_question_of_a_module_that_makes_no_sense_is_refused(desk: Desk, body: Any) -> None:
    with pytest.raises(NodeError) as caught:
        desk.capability(part.QUERY, body)
    assert (caught.value.status, caught.value.code) == (400, "bad_query")


# -- offers.trust.query ----------------------------------------------------------------------


def test_modules_ask_whom_the_host_trusts_now() -> None:
    desk = Desk()
    asked = {
        "participant_ids": [PEER.participant_id, STRANGER.participant_id],
        "node_ids": [PEER.node_id, STRANGER.node_id, ME.node_id],
    }
    found = desk.capability(part.TRUST, asked)[1]
    assert found["node_id"] == ME.node_id
    assert (found["participant_ids"], found["node_ids"]) == ([], [PEER.node_id])
    desk.ask("POST", "/v1/trusted-providers", {"participant_id": STRANGER.participant_id})
    found = desk.capability(part.TRUST, asked)[1]
    assert found["participant_ids"] == [STRANGER.participant_id]
    desk.ask("DELETE", f"/v1/trusted-providers/{STRANGER.participant_id}")
    assert desk.capability(part.TRUST, asked)[1]["participant_ids"] == []


@pytest.mark.parametrize("body", [None, [], {"nodes": []}, {"node_ids": [7]}, {"node_ids": [""]}])
def test_a_question_about_trust_that_makes_no_sense_is_refused(body: Any) -> None:
    with pytest.raises(NodeError) as caught:
        Desk().capability(part.TRUST, body)
    assert (caught.value.status, caught.value.code) == (400, "schema")


# -- trusted providers -----------------------------------------------------------------------


def test_a_provider_is_trusted_and_no_more() -> None:
    desk = Desk()
    body = {"participant_id": PEER.participant_id, "note": "a friend"}
    entry = {
        "schema/v": 1,
        "entry/participant-id": PEER.participant_id,
        "entry/added-at": rfc3339(START),
        "entry/added-by": "operator",
        "entry/note": "a friend",
    }
    assert desk.ask("POST", TRUST, body) == (201, entry)
    assert check(entry, kind="trusted-provider.v1") == []
    desk.clock.advance_to(START + 5)
    assert desk.ask("POST", TRUST, {**body, "note": "again"}) == (200, entry)
    assert desk.again().ask("GET", TRUST) == (200, {"items": [entry]})
    gone = f"{TRUST}/{PEER.participant_id}"
    assert desk.ask("DELETE", gone)[1]["status"] == "removed"
    assert desk.ask("DELETE", gone)[0] == 404
    assert desk.ask("GET", TRUST)[1] == {"items": []}
    events = desk.store.node_streams.stream_events(f"state/trusted-provider/{PEER.participant_id}")
    assert sum(row.count for row in events) == 2, "a removal is a second fact"
    status, body = desk.ask("POST", TRUST, {"entry/participant-id": PEER.participant_id})
    assert (status, body["entry/added-at"]) == (201, rfc3339(START + 5))


def test_who_added_an_entry_and_when_is_said_by_the_host() -> None:
    given = {
        "schema/v": 1,
        "entry/participant-id": PEER.participant_id,
        "entry/added-at": "2020-01-01T00:00:00Z",
        "entry/added-by": STRANGER.participant_id,
    }
    entry = Desk().ask("POST", TRUST, given)[1]
    assert (entry["entry/added-at"], entry["entry/added-by"]) == (rfc3339(START), "operator")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"participant_id": 5},
        {"participant_id": PEER.node_id},
        {"participant_id": "participant:did:key:z6Mk"},
        {"participant_id": PEER.participant_id, "entry/participant-id": OTHER.participant_id},
        {"participant_id": PEER.participant_id, "note": "x" * 1025},
        [],
    ],
)
def test_an_entry_that_names_no_participant_is_refused(body: Any) -> None:
    desk = Desk()
    assert desk.ask("POST", TRUST, body)[0] == 400
    assert desk.ask("GET", TRUST)[1] == {"items": []}


def test_only_the_operator_says_who_is_trusted() -> None:
    desk = Desk()
    body = {"participant_id": PEER.participant_id}
    for caller, status in ((ARCA, 403), (OPEN, 401)):
        assert desk.ask("POST", TRUST, body, caller)[0] == status
        assert desk.ask("DELETE", f"{TRUST}/{PEER.participant_id}", None, caller)[0] == status
        assert desk.ask("GET", TRUST, None, caller)[0] == status


# -- configuration ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"untrusted_second": 5}, "untrusted_second"),
        ({"untrusted_seconds": 0}, "untrusted_seconds"),
        ({"observed_max": "many"}, "observed_max"),
        ({"federation": "all"}, "federation"),
        ({"federation": [PEER.participant_id]}, "federation"),
        ({"federation": ["node:did:key:z1"]}, "node:did:key:z1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(section: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        offers_config({"offers": section})


def test_without_a_section_the_defaults_hold() -> None:
    assert offers_config({}).observed_max == 4096
    assert ME.node_id not in str(offers_config({}))
