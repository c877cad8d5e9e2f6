"""`peer.message.dispatch` and `peer.session.establish`: to whom, how many, and what came of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.market.node.api import Answer, Caller
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.chains import Outcome
from anabranch.market.node.peers import dispatch as dispatching
from anabranch.market.node.peers.memory_transport import MemoryNetwork
from anabranch.market.node.ports import InboundMessage
from market.node.directory.support import (
    CAPABILITY,
    host,
    passport_of,
    register,
    revocation_of,
    revoke,
)
from virtual import run_virtually

from .support import Echo, Host, KeySigner

MODULE = Caller("module", module="arca", actor="arca")


async def call(one: Host, name: str, body: Any) -> Answer:
    handler = one.context.capabilities.handler(name)
    assert handler is not None
    return await handler(body, MODULE, {})


async def dispatch(one: Host, destination: Any, **more: Any) -> Answer:
    body = {
        "schema_version": "v1", "capability_id": "peer_message_dispatch",
        "execution_mode": "blocking", "destination": destination, "msg": "a.request",
        "payload": {"x": 1}, "correlation_id": "c1", **more,
    }  # fmt: skip
    return await call(one, "peer.message.dispatch", body)


async def market(network: MemoryNetwork, count: int = 3) -> tuple[Host, list[Host]]:
    """A buyer, and nodes in order of their id that it trusts, hold a passport and answer."""
    signers = [KeySigner(number) for number in range(2, 2 + count)]
    bindings = {one.node_id: one.participant_id for one in signers}
    seed = await host(network, 1, directory={"bindings": bindings}).open()
    others = []
    for number in range(2, 2 + count):
        names = {"passports": [CAPABILITY]}
        one = await host(network, number, seeds=[seed.url], directory=names).open()
        one.context.peers.on("a.request", Echo())
        others.append(one)
    return seed, sorted(others, key=lambda one: one.id)


def nodes(answer: Answer) -> list[str]:
    return [one["node_id"] for one in answer.body["targets"]]


def statuses(answer: Answer) -> list[str]:
    return [one["status"] for one in answer.body["targets"]]


def test_a_message_to_one_node_is_answered() -> None:
    async def scenario() -> None:
        buyer, (first, *_) = await market(MemoryNetwork())
        answer = await dispatch(buyer, {"node_id": first.id})
        assert (answer.status, answer.body["status"]) == (200, "ok")
        assert answer.body["targets"] == [
            {"node_id": first.id, "status": "responded", "payload": {"echo": {"x": 1}}}
        ]

    run_virtually(scenario())


CHOSEN: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0, 1, 2]),
    ({"limit": 2}, [0, 1]),
    ({"limit": 2, "selection_mode": "last-n"}, [1, 2]),
    ({"limit": 9, "selection_mode": "last-n"}, [0, 1, 2]),
    ({"delivery_mode": "one"}, [0]),
    ({"delivery_mode": "one", "selection_mode": "last-n", "limit": 1}, [2]),
    ({"seed_filter": {"node_ids": [1, 2]}}, [1, 2]),
    ({"seed_filter": {"node_id": 1}}, [1]),
    ({"seed_filter": {"issuers": [0]}}, [0]),
    ({"seed_filter": {"issuer": 2}}, [2]),
    ({"seed_filter": {"passport_profile": "other"}}, []),
    ({"seed_filter": {"endorsement": {"by": "x"}}}, []),
    ({"seed_filter": {"endorsement": None}}, [0, 1, 2]),
]


def test_nodes_are_chosen_by_capability() -> None:
    async def scenario() -> None:
        buyer, others = await market(MemoryNetwork())
        wrong: list[Any] = []
        for more, expected in CHOSEN:
            wanted = dict(more)
            if "seed_filter" in wanted:
                wanted["seed_filter"] = {
                    key: _named(others, key, value) for key, value in wanted["seed_filter"].items()
                }
            answer = await dispatch(buyer, {"capability_id": CAPABILITY, **wanted})
            told = nodes(answer), answer.body["status"]
            if told != ([others[at].id for at in expected], "ok" if expected else "failed"):
                wrong.append((more, expected, told))
        assert wrong == []

    run_virtually(scenario())


def _named(others: list[Host], key: str, value: Any) -> Any:
    if key in ("node_id", "node_ids"):
        return [others[one].id for one in value] if isinstance(value, list) else others[value].id
    if key in ("issuer", "issuers"):
        found = [one.participant for one in others]
        return [found[one] for one in value] if isinstance(value, list) else found[value]
    return value


def test_each_target_has_its_own_outcome() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        buyer, (gone, silent, failing) = await market(network)
        network.drop(buyer.id, gone.id)

        async def nothing(_message: InboundMessage) -> Any:
            return None

        async def fails(_message: InboundMessage) -> Any:
            raise NodeError(404, "offer_unknown", "no such offer")

        silent.context.peers.on("b.request", nothing)
        failing.context.peers.on("b.request", fails)
        answer = await dispatch(
            buyer, {"capability_id": CAPABILITY}, msg="b.request", timeout_ms=3000
        )
        assert statuses(answer) == ["unreachable", "no_response", "error"]
        assert answer.body["targets"][2]["error"]["code"] == "offer_unknown"
        assert answer.body["status"] == "partial"

    run_virtually(scenario())


def test_delivered_to_one_the_next_is_tried_where_a_node_cannot_be_reached() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        buyer, (gone, second, _) = await market(network)
        network.drop(buyer.id, gone.id)
        wanted = {"capability_id": CAPABILITY, "delivery_mode": "one"}
        answer = await dispatch(buyer, wanted)
        assert nodes(answer) == [gone.id, second.id]
        assert statuses(answer) == ["unreachable", "responded"]
        assert answer.body["status"] == "ok"

    run_virtually(scenario())


def test_a_choice_is_kept_as_long_as_the_caller_says_and_no_revoked_node_is_in_it() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        buyer, (first, second, third) = await market(network)
        wanted = {"capability_id": CAPABILITY, "limit": 2, "cache_ttl_ms": 60_000}
        assert nodes(await dispatch(buyer, wanted)) == [first.id, second.id]
        (row,) = [
            one for one in buyer.context.directory.holders(CAPABILITY) if one["node_id"] == first.id
        ]
        await revoke(buyer, revocation_of(row["passport"], first.signer))
        assert nodes(await dispatch(buyer, wanted)) == [second.id]
        assert nodes(await dispatch(buyer, {**wanted, "cache_ttl_ms": 0})) == [second.id, third.id]
        await asyncio.sleep(61)
        assert nodes(await dispatch(buyer, wanted)) == [second.id, third.id]

    run_virtually(scenario())


def test_answers_to_an_async_message_come_back_as_messages_of_who_gave_them() -> None:
    async def scenario() -> None:
        buyer, others = await market(MemoryNetwork())
        heard = Echo()
        buyer.context.peers.on("a.response", heard)
        answer = await dispatch(buyer, {"capability_id": CAPABILITY}, execution_mode="async")
        assert (answer.status, answer.body["status"]) == (202, "queued")
        assert statuses(answer) == ["queued"] * 3
        await asyncio.sleep(1)
        found = [(one.remote_node_id, one.correlation_id, one.payload) for one in heard.seen]
        assert sorted(found) == [(one.id, "c1", {"echo": {"x": 1}}) for one in others]

    run_virtually(scenario())


class Chained:
    """Modules of a node: what they make of a message in each way, and what they were asked."""

    def __init__(self, **outcomes: Outcome) -> None:
        self.outcomes = outcomes
        self.asked: list[tuple[str, InboundMessage]] = []

    async def message(self, way: str, message: InboundMessage) -> Outcome:
        self.asked.append((way, message))
        return self.outcomes.get(way, Outcome("passed"))

    async def peer_message(self, message: InboundMessage) -> Any:
        return (await self.message("peer", message)).payload


def with_modules(one: Host, **outcomes: Outcome) -> Chained:
    chained = Chained(**outcomes)
    one.context.modules = chained  # type: ignore[assignment]
    return chained


@pytest.mark.parametrize(
    ("outcome", "target"),
    [
        (Outcome("passed"), {"status": "responded", "payload": {"echo": {"x": 1}}}),
        (Outcome("dropped"), {"status": "dropped"}),
        (Outcome("returned", 7), {"status": "responded", "payload": 7, "answered_by": "buyer"}),
    ],
)
def test_a_message_that_leaves_passes_the_modules_of_its_node(
    outcome: Outcome, target: dict[str, Any]
) -> None:
    async def scenario() -> None:
        buyer, (first, *_) = await market(MemoryNetwork(), 1)
        echo = Echo()
        first.context.peers.on("b.request", echo)
        chained = with_modules(buyer, send=outcome)
        answer = await dispatch(buyer, {"node_id": first.id})
        if "answered_by" in target:
            target["answered_by"] = buyer.id
        assert answer.body["targets"] == [{"node_id": first.id, **target}]
        assert answer.body["status"] == "ok"
        ((way, asked),) = chained.asked
        assert (way, asked.msg, asked.remote_node_id) == ("send", "a.request", first.id)
        await dispatch(buyer, {"node_id": first.id}, msg="b.request")
        assert bool(echo.seen) is (outcome.kind == "passed")

    run_virtually(scenario())


def test_the_answer_of_a_module_to_an_async_message_is_never_one_of_the_other_node() -> None:
    async def scenario() -> None:
        buyer, (first, *_) = await market(MemoryNetwork(), 1)
        with_modules(buyer, send=Outcome("returned", {"forged": True}))
        heard = Echo()
        buyer.context.peers.on("a.response", heard)
        await dispatch(buyer, {"node_id": first.id}, execution_mode="async")
        await asyncio.sleep(1)
        assert [one.remote_node_id for one in heard.seen] == [buyer.id]

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("destination", "way"),
    [
        ({"capability_id": CAPABILITY}, "broadcast"),
        ({"capability_id": CAPABILITY, "delivery_mode": "one"}, "peer"),
        ({"node_id": 0}, "peer"),
    ],
)
def test_what_goes_to_all_nodes_with_a_capability_is_a_broadcast_there(
    destination: dict[str, Any], way: str
) -> None:
    async def scenario() -> None:
        buyer, (first, *_) = await market(MemoryNetwork(), 1)
        chained = with_modules(first, **{way: Outcome("returned", 7)})
        if "node_id" in destination:
            destination["node_id"] = first.id
        answer = await dispatch(buyer, destination, msg="m")
        assert [one["payload"] for one in answer.body["targets"]] == [7]
        assert [each for each, _ in chained.asked] == [way]

    run_virtually(scenario())


def test_a_message_of_the_node_to_itself_is_answered_in_time_or_refused() -> None:
    async def scenario() -> None:
        buyer, _ = await market(MemoryNetwork(), 0)

        async def never(_message: InboundMessage) -> Any:
            await asyncio.Event().wait()

        buyer.context.peers.on("slow", never)
        answer = await dispatch(buyer, {"node_id": buyer.id}, msg="slow", timeout_ms=2000)
        (target,) = answer.body["targets"]
        assert (target["status"], target["error"]["code"]) == ("unreachable", "peer_timeout")

    run_virtually(scenario())


def test_there_is_a_limit_to_async_messages_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "ASYNC_MAX", 1)

    async def scenario() -> None:
        buyer, (first, *_) = await market(MemoryNetwork(), 1)
        assert (await dispatch(buyer, {"node_id": first.id}, execution_mode="async")).status == 202
        with pytest.raises(NodeError) as refused:
            await dispatch(buyer, {"node_id": first.id}, execution_mode="async")
        assert (refused.value.status, refused.value.code) == (429, "peer_busy")
        await asyncio.sleep(1)
        assert (await dispatch(buyer, {"node_id": first.id}, execution_mode="async")).status == 202

    run_virtually(scenario())


def test_an_async_message_whose_answer_is_for_no_one_harms_nothing() -> None:
    async def scenario() -> None:
        buyer, (first, *_) = await market(MemoryNetwork())
        await dispatch(buyer, {"node_id": first.id}, execution_mode="async")
        await asyncio.sleep(1)
        assert (await dispatch(buyer, {"node_id": first.id})).body["status"] == "ok"

    run_virtually(scenario())


@pytest.mark.parametrize(
    "body",
    [
        {"destination": {}}, {"destination": {"node_id": "n", "capability_id": "c"}},
        {"destination": {"capability_id": "c", "limit": 0}},
        {"destination": {"capability_id": "c", "limit": 257}},
        {"destination": {"capability_id": "c", "selection_mode": "any"}},
        {"destination": {"capability_id": "c", "delivery_mode": "some"}},
        {"destination": {"capability_id": "c", "seed_filter": {"color": "red"}}},
        {"destination": {"capability_id": "c", "cache_ttl_ms": -1}},
        {"execution_mode": "later"}, {"timeout_ms": 0}, {"timeout_ms": 120_001}, {"unknown": 1},
        {"msg": ""}, {"msg": "Not A Name"}, {"correlation_id": ""}, {"schema_version": "v2"},
        {"capability_id": "other"}, {"destination": None}, {"msg": 5},
    ],
)  # fmt: skip
def test_bad_input_is_refused_and_nothing_is_sent(body: dict[str, Any]) -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        one = await host(network, 1).open()
        good = {"destination": {"node_id": one.id}, "msg": "a.request", "correlation_id": "c"}
        with pytest.raises((NodeError, InputError)) as refused:
            await call(one, "peer.message.dispatch", {**good, **body})
        assert getattr(refused.value, "status", 400) == 400
        assert network.next_number() == 1

    run_virtually(scenario())


@pytest.mark.parametrize("msg", ["artifact-delivery.deliver", "peer.session.establish", "peer.x"])
def test_messages_of_the_host_are_not_for_modules(msg: str) -> None:
    async def scenario() -> None:
        buyer, (first, *_) = await market(MemoryNetwork(), 1)
        with pytest.raises(NodeError) as refused:
            await dispatch(buyer, {"node_id": first.id}, msg=msg)
        assert (refused.value.status, refused.value.code) == (403, "host_capability_forbidden")

    run_virtually(scenario())


def test_a_session_is_established_or_the_reason_is_named() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        buyer, (first, second, _) = await market(network)
        answer = await call(buyer, "peer.session.establish", {"node_id": first.id})
        assert answer.body["status"] == "established"
        assert answer.body["session_id"].startswith("session:")
        network.drop(buyer.id, second.id)
        with pytest.raises(NodeError) as refused:
            await call(buyer, "peer.session.establish", {"node_id": second.id, "timeout_ms": 1000})
        assert (refused.value.status, refused.value.code) == (503, "peer_timeout")
        with pytest.raises(NodeError) as refused:
            await call(buyer, "peer.session.establish", {"timeout_ms": 1000})
        assert refused.value.code == "schema"

    run_virtually(scenario())


def test_the_directory_is_asked_from_the_cache() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        buyer, others = await market(network)
        before = network.next_number()
        query: dict[str, Any] = {"capability_id": CAPABILITY, "limit": 2}
        body = {"schema_version": "v1", "capability_id": "seed_directory_query", "query": query}
        answer = await call(buyer, "seed.directory.query", body)
        assert answer.body["status"] == "ok"
        assert [row["node_id"] for row in answer.body["items"]] == [one.id for one in others[:2]]
        query["issuers"] = [others[2].participant]
        (row,) = (await call(buyer, "seed.directory.query", body)).body["items"]
        assert row["node_id"] == others[2].id
        body["query"] = {"participant_id": others[1].participant}
        (row,) = (await call(buyer, "seed.directory.query", body)).body["items"]
        assert row == {"node_id": others[1].id, "participant_id": others[1].participant}
        wrongs: list[Any] = [{}, {"query": {}}, {"query": {"capability_id": "x", "color": "red"}}]
        for wrong in wrongs:
            with pytest.raises(NodeError, match=r"."):
                await call(buyer, "seed.directory.query", wrong)
        assert network.next_number() == before + 1

    run_virtually(scenario())


@pytest.mark.parametrize("mode", ["first-n", "last-n"])
def test_strangers_take_no_place_of_a_node_that_is_trusted(mode: str) -> None:
    strangers = [KeySigner(number) for number in range(20, 40)]

    async def scenario() -> None:
        buyer, others = await market(MemoryNetwork())
        for each in strangers:
            await register(buyer, passport_of(each), each)
        wanted = {"capability_id": CAPABILITY, "selection_mode": mode, "limit": 3}
        assert nodes(await dispatch(buyer, wanted)) == [one.id for one in others]
        found = nodes(await dispatch(buyer, {**wanted, "limit": 5}))
        assert found[:3] == [one.id for one in others]
        assert len(set(found)) == 5

    run_virtually(scenario())
