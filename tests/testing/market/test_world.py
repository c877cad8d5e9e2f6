"""The world of nodes: virtual time, links that are cut, processes that die at any commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from anabranch.errors import AnabranchError, InputError
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Family
from anabranch.market.node.ports import NodeContext, PeerUnreachable
from anabranch.testing.market import Fate, NodeSpec, World
from anabranch.testing.market.disk import Died
from in_loop import in_loop


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    by: int


class Counter(msgspec.Struct, frozen=True):
    total: int
    wake: int | None = None


def count(state: Counter | None, event: Counted) -> Counter:
    return Counter((state.total if state else 0) + event.by)


COUNTERS = Family("counter", Counter, Counted, count, is_open=lambda _state: True)


class Counting:
    """A part that counts, sleeps, and asks the same of another node."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def endpoints(self) -> Sequence[Endpoint]:
        rows = (
            ("POST", "/count/{name}", self._count),
            ("GET", "/count/{name}", self._show),
            ("POST", "/sleep", self._sleep),
            ("POST", "/ask", self._ask),
            ("POST", "/peer/messages", self._heard),
        )
        return [
            Endpoint(
                method=method, path=path, scopes=("operator", "open"), handler=handler, summary=""
            )
            for method, path, handler in rows
        ]

    async def _count(self, call: Call) -> Answer:
        entities = self._context.entities
        with entities.change() as change:
            state = change.add(COUNTERS, call.params["name"], Counted(1))
        await entities.durable()
        return Answer(body={"total": state.total})

    async def _show(self, call: Call) -> Answer:
        state = self._context.entities.get(COUNTERS, call.params["name"])
        return Answer(body={"total": state.total if state else 0})

    async def _sleep(self, call: Call) -> Answer:
        await asyncio.sleep(call.body["seconds"])
        return Answer(body={"now": self._context.clock.now()})

    async def _ask(self, call: Call) -> Answer:
        body = msgspec.json.encode(call.body)
        try:
            data = await self._context.transport.send(call.body["to"], "", body, 5)
        except PeerUnreachable as error:
            return Answer(status=503, body={"detail": error.message})
        return Answer(body=msgspec.json.decode(data))

    async def _heard(self, call: Call) -> Answer:
        heard = msgspec.structs.replace(call, params={"name": call.body["name"]})
        if call.body["name"] == "broken":
            raise LookupError("a defect")
        return await self._count(heard)

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def wake(self, family: Family[Any], thing: str) -> None:
        pass


def world(*nodes: str) -> World:
    return World(nodes, makers=lambda: [(Counting, (COUNTERS,))])


@in_loop
async def test_a_request_is_answered_and_unpacks_as_status_and_body() -> None:
    a = world("a")["a"]
    status, body = await a.request("POST", "/count/x")
    assert (status, body) == (200, {"total": 1})
    assert (await a.request("GET", "/nowhere")).status == 404
    assert (await a.request("DELETE", "/count/x")).headers["Allow"] == "POST, GET"


@in_loop
async def test_time_passes_only_where_a_node_waits_or_a_test_says_so() -> None:
    one = world("a")
    before = one.clock.now()
    await one["a"].request("POST", "/count/x")
    assert one.clock.now() == before
    await one["a"].request("POST", "/sleep", {"seconds": 30})
    assert one.clock.now() == before + 30_000
    await one.advance(60)
    assert one.clock.now() == before + 90_000
    with pytest.raises(AnabranchError, match="virtual seconds"):
        await one["a"].request("POST", "/sleep", {"seconds": 300}, seconds=10)


@in_loop
async def test_a_crash_loses_what_was_in_memory_and_keeps_what_was_durable() -> None:
    one = world("a")
    await one["a"].request("POST", "/count/x")
    one.crash("a")
    assert (await one["a"].request("GET", "/count/x")).body == {"total": 1}


@pytest.mark.parametrize(("when", "total"), [("before", 0), ("after", 1)])
@in_loop
async def test_a_process_can_die_just_before_and_just_after_a_commit(when: str, total: int) -> None:
    one = world("a")
    node = one["a"]

    def die(at: str, _number: int) -> None:
        if at == when:
            raise Died(9)

    node.on_commit = die
    with pytest.raises(AnabranchError, match="'a' died meanwhile"):
        await node.request("POST", "/count/x")
    node.on_commit = lambda _when, _number: None
    assert node.node is None
    node.start()
    assert (await node.request("GET", "/count/x")).body == {"total": total}


@in_loop
async def test_a_link_that_is_cut_swallows_messages_until_it_is_healed() -> None:
    one = world("a", "b")
    ask = {"to": one["b"].node_id, "name": "x"}
    assert (await one["a"].request("POST", "/ask", ask)).body == {"total": 1}
    one.drop("a", "b")
    assert (await one["a"].request("POST", "/ask", ask)).status == 503
    one.heal("a", "b")
    assert (await one["a"].request("POST", "/ask", ask)).body == {"total": 2}


@in_loop
async def test_a_message_can_be_lost_doubled_or_answered_to_no_one() -> None:
    one = world("a", "b")
    ask = {"to": one["b"].node_id, "name": "x"}
    totals = []
    for fate in (Fate(()), Fate((0.0, 0.5)), Fate((0.0,), answered=False)):
        one.fate = lambda _from, _to, _data, fate=fate: fate  # type: ignore[misc]
        await one["a"].request("POST", "/ask", ask)
        one.advance(1)
        totals.append((await one["b"].request("GET", "/count/x")).body["total"])
    assert totals == [0, 2, 3]


@in_loop
async def test_a_defect_in_who_answers_a_peer_is_not_taken_for_silence() -> None:
    one = world("a", "b")
    with pytest.raises(LookupError, match="a defect"):
        await one["a"].request("POST", "/ask", {"to": one["b"].node_id, "name": "broken"})


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"[", 400, "not_json"),
        (b'{"a": 1, "a": 2}', 400, "duplicate_key"),
        (b"[" * 200 + b"]" * 200, 400, "too_deep"),
        (b'"' + b"x" * 16 * 1024 * 1024 + b'"', 413, "too_large"),
    ],
)
@in_loop
async def test_a_body_is_refused_as_over_http(body: bytes, status: int, code: str) -> None:
    a = world("a")["a"]
    answer = await a.request("POST", "/count/x", body)
    assert (answer.status, answer.body["status"], answer.body["code"]) == (status, status, code)
    assert (await a.request("GET", "/count/x")).body == {"total": 0}


@in_loop
async def test_keys_come_from_seeds_by_role() -> None:
    spec = NodeSpec(name="a", seeds={"node": bytes([0x29]) * 32})
    one = World([spec], makers=list)
    assert one["a"].node_id == "node:did:key:z6MkwJFpvJVFe15ygGgYLTYuiPwfhkkDRkMG4eKQFT8g65yE"
    with pytest.raises(InputError, match=r"seeds\.node .* 32 bytes"):
        World([{"name": "a", "seeds": {"node": b"short"}}])
    with pytest.raises(InputError, match="no role 'nodes'"):
        World([{"name": "a", "seeds": {"nodes": bytes(32)}}])
    with pytest.raises(InputError, match="no 'seed', but name"):
        World([{"name": "a", "seed": bytes(32)}])
