"""Rows of a directory say where a node is; whoever was asked least recently is asked next."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.work.participants.book import Book
from anabranch.work.participants.performers import DispatchPerformer
from anabranch.work.participants.port import ParticipantQuery
from anabranch.work.participants.rotation import Rotation
from work.participants.loopback_participants import closed_port, party, says
from work.support import fault_of, perform, run, task

from .support import CAPABILITY, ISSUER, directory, node, participant, passport

BINDINGS = {node(2): participant(2), node(3): participant(3)}


def row(number: int, *urls: str, **more: Any) -> dict[str, Any]:
    endpoints = [{"endpoint/url": url, "endpoint/priority": at} for at, url in enumerate(urls)]
    return {"node_id": node(number), "passport": passport(number), "endpoints": endpoints, **more}


def asked(rows: list[Any], name: str = participant(2), addresses: str = "loopback") -> Any:
    """What a dispatch to somebody comes to who is in no book."""
    found = directory(passports={"items": rows}, bindings=BINDINGS, addresses=addresses)

    async def once() -> Any:
        work = DispatchPerformer(found.book, elsewhere=found.elsewhere)
        try:
            return await perform(work, task("dispatch", target=name, step_id="s", input={}))
        finally:
            await found.book.close()

    return run(once())


def test_somebody_outside_the_book_is_asked_at_the_endpoint_of_its_row() -> None:
    with party(good=says({"price": 2})) as server:
        answer = asked([row(2, server.url("good"))])
        assert answer.result == {"price": 2}


def test_the_next_endpoint_is_tried_where_nobody_is_at_the_first() -> None:
    away = f"http://127.0.0.1:{closed_port()}/"
    with party(good=says({"price": 2})) as server:
        urls = [
            {"endpoint/url": server.url("good"), "endpoint/priority": 9},
            {"endpoint/url": "wss://peer.example/"},
            {"endpoint/url": away, "endpoint/priority": 1},
        ]
        assert asked([row(2, endpoints=urls)]).result == {"price": 2}
    assert "127.0.0.1" in fault_of(asked([row(2, away)])).message


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([row(2, "wss://peer.example/")], "its endpoints in the directory are for 'wss'"),
        ([row(2)], "the directory gives no endpoint of it"),
        ([], "is not in the book of participants"),
        ([row(2, "http://192.0.2.1/", passport={"schema": "x"})], "is not in the book"),
        ([{**row(2, "http://x.example/"), "endpoints": {"a": 1}}], "gives no endpoint"),
    ],
)
def test_who_cannot_be_asked_is_unreachable_with_the_reason(rows: list[Any], says: str) -> None:
    fault = fault_of(asked(rows))
    assert (fault.kind, fault.code) == ("unreachable", "unknown_participant")
    assert says in fault.message


def test_endpoints_lead_to_public_addresses_only_unless_the_book_says_otherwise() -> None:
    with party(good=says({"price": 2})) as server:
        fault = fault_of(asked([row(2, server.url("good"))], addresses="public"))
        assert fault.kind == "unreachable"
        assert "127.0.0.1 is not a public address (setting directory.addresses)" in fault.message
        assert "write `directory.addresses: any` into the book" in fault.message
        assert server.visits == []


def test_an_expired_passport_gives_no_endpoint() -> None:
    old = row(2, "http://127.0.0.1:9/")
    old["passport"] = passport(2, expires_at="2026-01-02T00:00:00Z")
    assert "is not in the book" in fault_of(asked([old])).message


# -- whose turn it is ------------------------------------------------------------------------------


def test_those_asked_least_recently_come_first_and_everybody_gets_a_turn() -> None:
    found = directory(
        passports=[passport(number) for number in (2, 3, 4, 5)],
        bindings={node(number): participant(number) for number in (2, 3, 4, 5)},
    )
    query = ParticipantQuery(
        resolve="capability", capability_id=CAPABILITY, limit=3, order="least_recently_asked"
    )
    turns = [found.find(query) for _ in range(4)]
    everybody = sorted(participant(number) for number in (2, 3, 4, 5))
    assert turns[0] == everybody[:3]
    assert turns[1][0] == everybody[3]
    for name in everybody:
        assert sum(name in turn for turn in turns) == 3, "four turns of three are three for each"
    again = directory(
        passports=[passport(number) for number in (2, 3, 4, 5)],
        bindings={node(number): participant(number) for number in (2, 3, 4, 5)},
    )
    assert [again.find(query) for _ in range(4)] == turns, "the same searches find the same"


def test_without_that_order_the_first_ones_are_found_every_time() -> None:
    people = {name: {"function": print, "service_types": ["x"]} for name in ("a", "b", "c")}
    found = directory(participants=people)
    query = ParticipantQuery(resolve="task_type", task_type="x", limit=2)
    assert [found.find(query) for _ in range(3)] == [["a", "b"]] * 3
    turning = ParticipantQuery(
        resolve="task_type", task_type="x", limit=2, order="least_recently_asked"
    )
    assert [found.find(turning) for _ in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]
    one = ParticipantQuery(
        resolve="static", participants=["a", "b"], one=True, order="least_recently_asked"
    )
    assert {tuple(found.find(one)) for _ in range(2)} == {("a",), ("b",)}


def test_whoever_is_new_has_the_first_turn() -> None:
    turns = Rotation()
    assert turns.chosen(["a", "b"], 1) == ["a"]
    assert turns.chosen(["a", "b", "c"], 2) == ["b", "c"]
    assert turns.chosen(["a", "b", "c"], None) == ["a", "b", "c"]


def test_an_issuer_keeps_its_place_in_the_book() -> None:
    book = Book({"participants": {ISSUER.identity("participant"): print}})
    assert book.participant(ISSUER.identity("participant")) is not None
