"""Offers between nodes: asked for, answered with local ones alone, pushed, passed on."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from anabranch.market.catalog import messages
from anabranch.market.catalog.listing import KEYS_MAX
from anabranch.market.catalog.messages import OFFERS_MAX, PUSH, REQUEST, RESPONSE
from anabranch.market.documents import check
from anabranch.market.node.errors import NodeError
from anabranch.market.node.offers.records import LOCAL, LocalPublished
from costs import calls

from .support import (
    ARCA,
    DATOR,
    ME,
    OTHER,
    PEER,
    START,
    STRANGER,
    Desk,
    Outcome,
    numbered,
    offer,
    relay,
    rfc3339,
)

PATH = "/v1/service-offers"
FETCH = f"{PATH}/fetch"
PUSHED = f"{PATH}/push"


def published(desk: Desk, *names: str) -> None:
    for name in names:
        service = "text/translate" if name == "b" else "text/summarise"
        draft = {"offer/id": f"offer:{name}", "service/type": service, "pricing/amount": 1}
        assert desk.ask("POST", PATH, draft)[0] == 201


def names_in(answer: Any) -> str:
    return "".join(one["offer"]["offer/id"][-1] for one in answer["offers"])


# -- asked -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "names"),
    [
        ({}, "abd"),
        ({"filter": None}, "abd"),
        ({"filter": {"service/type": "text/summarise"}}, "ad"),
        ({"filter": {"active_only": False}}, "abcd"),
        ({"filter": {"limit": 1}}, "a"),
        ({"filter": {"after": "offer:a"}}, "bd"),
        (None, "abd"),
    ],
)
def test_a_peer_that_asks_gets_local_offers_alone(payload: Any, names: str) -> None:
    desk = Desk()
    published(desk, *"abcd")
    desk.ask("POST", f"{PATH}/offer:c/withdraw")
    desk.admit(relay())
    answer = desk.message(REQUEST, payload, STRANGER)
    assert names_in(answer) == names
    assert check(answer, kind="offer-catalog.fetch.response", at=START) == []
    assert (answer["node_id"], answer["responded_at"]) == (ME.node_id, rfc3339(START))
    assert (answer["query_id"], answer["error"]) == ("c1", None)
    for one in answer["offers"]:
        assert (one["relay/hops"], one["relay/origin-node-id"]) == (0, ME.node_id)
        assert check(one, kind="service-offer-relay.v1", at=START) == []


def test_an_answer_that_leaves_offers_out_says_where_to_go_on() -> None:
    desk = Desk()
    published(desk, *"abc")
    first = desk.message(REQUEST, {"filter": {"limit": 2}})
    assert (names_in(first), first["next"]) == ("ab", "offer:b")
    assert check(first, kind="offer-catalog.fetch.response", at=START) == []
    second = desk.message(REQUEST, {"filter": {"limit": 2, "after": first["next"]}})
    assert names_in(second) == "c"
    assert "next" not in second


def test_the_id_of_a_query_comes_back() -> None:
    assert Desk().message(REQUEST, {"query_id": "q7"})["query_id"] == "q7"
    assert Desk().message(REQUEST, {"query_id": ["q7"]})["query_id"] == "c1"


def test_a_question_of_a_stranger_costs_no_more_than_its_answer() -> None:
    """A million keys of a filter held the loop; relays were made of every offer for one of them."""
    desk = Desk()
    published(desk, *"abcdefgh")

    def cost(wanted: Any) -> tuple[Any, Counter[str]]:
        with calls() as counted:
            return desk.message(REQUEST, {"filter": wanted}, STRANGER), counted

    answer, counted = cost({"limit": 2})
    assert (names_in(answer), answer["next"]) == ("ab", "offer:b")
    assert sum(times for name, times in counted.items() if name.endswith(".relay_of")) == 3
    answer, counted = cost(dict.fromkeys(map(str, range(KEYS_MAX + 1)), 1))
    assert answer["error"]["code"] == "bad_query"
    assert not [name for name in counted if name.endswith("CatalogFilter.fits")]


def test_a_filter_that_makes_no_sense_is_answered_with_an_error() -> None:
    desk = Desk()
    published(desk, "a")
    wrongs: list[Any] = [[], {"limit": 0}, {"active_only": "yes"}, {"after": 3}]
    for wrong in wrongs:
        answer = desk.message(REQUEST, {"filter": wrong})
        assert (answer["offers"], answer["error"]["code"]) == ([], "bad_query")
        assert check(answer, kind="offer-catalog.fetch.response") == []


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [(Outcome("returned", {"offers": []}), {"offers": []}), (Outcome("dropped"), None)],
)
def test_a_module_that_takes_the_question_answers_it(outcome: Outcome, answer: Any) -> None:
    desk = Desk()
    published(desk, "a")
    desk.modules.outcome = outcome
    assert desk.message(REQUEST, {}) == answer
    assert [one.msg for one in desk.modules.heard] == [REQUEST]


# -- told ------------------------------------------------------------------------------------


@pytest.mark.parametrize("msg", [RESPONSE, PUSH])
@pytest.mark.parametrize(
    "payload",
    [
        {"offers": [relay()], "node_id": PEER.node_id, "pushed_at": rfc3339(START)},
        {"offers": [relay()]},
        {"relay": relay()},
        relay(),
    ],
)
def test_every_form_of_a_push_is_admitted_and_shown_to_modules(msg: str, payload: Any) -> None:
    desk = Desk()
    assert desk.message(msg, payload) == {"status": "ok", "counts": {"stored": 1}}
    assert desk.part.offer("offer:summaries") == offer()
    assert [one.msg for one in desk.modules.heard] == [msg]
    assert desk.message(msg, payload) == {"status": "ok", "counts": {"stale": 1}}


def test_the_sender_is_the_one_who_signed_and_not_the_one_who_is_named() -> None:
    desk = Desk()
    claimed = {"offers": [relay()], "node_id": PEER.node_id, "pushed_at": rfc3339(START)}
    answer = desk.message(PUSH, claimed, STRANGER)
    assert answer["counts"] == {"rejected": 1}
    hidden = {**claimed, "offers": [relay(hops=1)]}
    assert desk.message(PUSH, hidden, STRANGER)["counts"] == {"stored": 1}
    assert (desk.trust_of(), desk.seen()) == ("untrusted", [])


def test_one_bad_relay_does_not_spoil_the_others() -> None:
    desk = Desk()
    good = relay(numbered(PEER, "offer:good", 1))
    forged = relay({**offer(), "pricing/amount": 1})
    answer = desk.message(PUSH, {"offers": [forged, good, 7, relay(hops=9)]})
    assert answer["counts"] == {"rejected": 3, "stored": 1}
    assert desk.seen() == ["offer:good"]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ([], "schema"),
        ("offers", "schema"),
        ({"offers": {}}, "schema"),
        ({"offers": [1] * (OFFERS_MAX + 1)}, "too_many_offers"),
    ],
)
def test_a_push_of_the_wrong_form_is_refused_as_a_whole(payload: Any, code: str) -> None:
    desk = Desk()
    with pytest.raises(NodeError) as caught:
        desk.message(PUSH, payload)
    assert caught.value.code == code
    assert desk.modules.heard == []


def test_a_push_without_offers_changes_nothing() -> None:
    assert Desk().message(PUSH, {}) == {"status": "ok", "counts": {}}


# -- asking ----------------------------------------------------------------------------------


def test_what_a_node_answers_is_admitted() -> None:
    desk = Desk()
    served = [relay(numbered(PEER, f"offer:{name}", 1)) for name in "abc"]

    def reply(_node: str, _msg: str, payload: Any) -> Any:
        return {"offers": served, "query_id": payload["query_id"], "error": None}

    desk.peers.reply = reply
    status, body = desk.ask("POST", FETCH, {"node_id": PEER.node_id, "filter": {"limit": 3}})
    assert (status, body["counts"], body["node_id"]) == (200, {"stored": 3}, PEER.node_id)
    assert [one["offer"]["offer/id"] for one in body["offers"]] == ["offer:a", "offer:b", "offer:c"]
    ((node_id, msg, payload),) = desk.peers.sent
    assert (node_id, msg, payload["filter"]) == (PEER.node_id, REQUEST, {"limit": 3})
    assert check(payload, kind="offer-catalog.fetch.request") == []
    assert desk.ask("POST", FETCH, {"node_id": PEER.node_id})[1]["counts"] == {"stale": 3}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "no catalog"),
        ([], "no catalog"),
        ({"query_id": "another"}, "another question"),
        ({"error": {"code": "busy"}}, "busy"),
        ({"offers": {}}, "list of relays"),
        ({"offers": [{}] * (OFFERS_MAX + 1)}, "501 offers"),
    ],
)
def test_an_answer_that_is_no_catalog_is_told(answer: Any, said: str) -> None:
    desk = Desk()
    desk.peers.reply = lambda _node, _msg, _payload: answer
    status, body = desk.ask("POST", FETCH, {"node_id": PEER.node_id})
    assert (status, body["code"]) == (502, "peer_answer")
    assert said in body["detail"]


def test_a_node_that_does_not_answer_is_unreachable() -> None:
    status, body = Desk().ask("POST", FETCH, {"node_id": PEER.node_id, "timeout_ms": 5})
    assert (status, body["code"]) == (503, "peer_unreachable")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (FETCH, {}),
        (FETCH, {"node_id": "peer"}),
        (FETCH, {"node_id": PEER.participant_id}),
        (FETCH, {"node_id": PEER.node_id, "timeout_ms": 0}),
        (FETCH, {"node_id": PEER.node_id, "filters": {}}),
        (PUSHED, {"node_ids": []}),
        (PUSHED, {"node_ids": [PEER.participant_id]}),
        (PUSHED, {"node_ids": PEER.node_id}),
    ],
)
def test_a_call_of_the_wrong_form_sends_nothing(path: str, body: Any) -> None:
    desk = Desk()
    assert desk.ask("POST", path, body)[0] == 400
    assert desk.peers.sent == []


def test_modules_fetch_and_push_with_the_grant_alone() -> None:
    desk = Desk()
    desk.peers.reply = lambda _node, _msg, _payload: {}
    for path, body in ((FETCH, {"node_id": PEER.node_id}), (PUSHED, {"node_ids": [PEER.node_id]})):
        assert desk.ask("POST", path, body, ARCA)[1]["code"] == "host_capability_forbidden"
        assert desk.ask("POST", path, body, DATOR)[0] == 200


# -- pushing ---------------------------------------------------------------------------------


def test_a_node_pushes_its_own_offers_and_passes_on_what_may_be_passed_on() -> None:
    desk = Desk()
    published(desk, "a", "c")
    desk.ask("POST", f"{PATH}/offer:c/withdraw")
    desk.admit(relay(numbered(PEER, "offer:p", 1), hops=2))
    desk.admit(relay(numbered(PEER, "offer:q", 1), more={"relay/do-not-forward": True}))
    desk.admit(relay(numbered(PEER, "offer:r", 1), hops=3))
    desk.admit(relay(numbered(STRANGER, "offer:s", 1), STRANGER), STRANGER)
    desk.peers.reply = lambda _node, _msg, _payload: {"status": "ok"}
    status, body = desk.ask("POST", PUSHED, {"node_ids": [OTHER.node_id, OTHER.node_id]})
    assert (status, body) == (
        200,
        {"results": [{"node_id": OTHER.node_id, "status": "sent", "offers": 1}]},
    )
    desk.ask("POST", PUSHED, {"node_ids": [OTHER.node_id], "observed": True})
    (_, msg, own), (_, _, both) = desk.peers.sent
    assert msg == PUSH
    assert [(one["offer"]["offer/id"], one["relay/hops"]) for one in own["offers"]] == [
        ("offer:a", 0)
    ]
    assert [(one["offer"]["offer/id"], one["relay/hops"]) for one in both["offers"]] == [
        ("offer:a", 0),
        ("offer:p", 3),
    ]
    assert check(both, kind="offer-catalog.push", at=START) == []


def test_all_offers_are_pushed_in_as_many_messages_as_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk, names = Desk(), [f"offer:n{number:03}" for number in range(101)]
    with desk.entities.change() as change:
        for name in names:
            change.add(LOCAL, name, LocalPublished(numbered(ME, name, 1), "operator", START))
    desk.peers.reply = lambda *_: None
    status, body = desk.ask("POST", PUSHED, {"node_ids": [PEER.node_id]})
    assert status == 200
    assert body["results"] == [{"node_id": PEER.node_id, "status": "sent", "offers": 101}]
    size = len(msgspec.json.encode(desk.peers.sent[0][2]["offers"]))
    monkeypatch.setattr(messages, "MESSAGE_BYTES", size * 2 // 3)
    desk.peers.sent.clear()
    assert desk.ask("POST", PUSHED, {"node_ids": [PEER.node_id]})[1] == body
    pages = [[one["offer"]["offer/id"] for one in sent[2]["offers"]] for sent in desk.peers.sent]
    assert len(pages) == 2
    assert [*pages[0], *pages[1]] == names
    answer = desk.message(REQUEST, {"filter": {"limit": 500}})
    assert [one["offer"]["offer/id"] for one in answer["offers"]] == pages[0]


def test_a_node_that_is_not_there_does_not_keep_the_others_from_a_push() -> None:
    desk = Desk()
    unreachable = desk.peers.reply

    def reply(node: str, msg: str, payload: Any) -> Any:
        return {} if node == OTHER.node_id else unreachable(node, msg, payload)

    desk.peers.reply = reply
    body = desk.ask("POST", PUSHED, {"node_ids": [PEER.node_id, OTHER.node_id]})[1]
    assert body["results"] == [
        {"node_id": PEER.node_id, "status": "failed", "reason": "peer_unreachable"},
        {"node_id": OTHER.node_id, "status": "sent", "offers": 0},
    ]


# -- answers that modules get ----------------------------------------------------------------


OWN = offer()


@pytest.mark.parametrize(
    ("payload", "counts"),
    [
        ({"offers": [relay()], "query_id": "q"}, {"stored": 1}),
        ({"status": "offer", "dispatch_id": "d1", "offer": OWN}, {"stored": 1}),
        (OWN, {"stored": 1}),
        ({"status": "no_offer_available", "dispatch_id": "d1"}, {}),
        ({"offer": {**OWN, "pricing/amount": 1}}, {"rejected": 1}),
        ({"offer": offer(OTHER)}, {"rejected": 1}),
        ({"offer": {"offer/id": "\ud800"}}, {"rejected": 1}),
        ({"offer": 7}, {}),
        ({"offers": 7}, {"rejected": 1}),
        ({"offers": [7]}, {"rejected": 1}),
        (None, {}),
        ([OWN], {}),
    ],
)
def test_offers_in_the_answers_of_nodes_are_known_before_they_are_ordered(
    payload: Any, counts: dict[str, int]
) -> None:
    desk = Desk()

    async def observed() -> Any:
        return await desk.context.catalog.observe(payload, PEER.node_id)

    assert asyncio.run(observed()) == counts
    assert desk.broken() == []
    assert (desk.part.offer("offer:summaries") == OWN) == ("stored" in counts)
