"""Messages between nodes, over a network that loses, doubles and delays them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from anabranch.errors import InputError
from anabranch.market.node.api import OPEN, Call
from anabranch.market.node.errors import NodeError
from anabranch.market.node.peers.envelope import read_envelope, seal
from anabranch.market.node.peers.memory_transport import (
    ANSWER_LOST,
    ARRIVES,
    LOST,
    Fate,
    MemoryNetwork,
    Sent,
    call_of,
)
from anabranch.market.node.ports import InboundMessage, PeerUnreachable
from seeds import seeds
from virtual import run_virtually

from .support import Echo, Host, KeySigner, LoopClock, acquainted


async def pair(network: MemoryNetwork, **second: Any) -> tuple[Host, Host, Echo]:
    alice, bob = await Host(network, 1).open(), await Host(network, 2, **second).open()
    acquainted(alice, bob)
    echo = Echo()
    bob.context.peers.on("a.request", echo)
    return alice, bob, echo


async def ask(alice: Host, bob: Host, payload: Any = 1, seconds: float = 10) -> Any:
    return await alice.context.peers.request(
        bob.id, "a.request", payload, correlation_id="c1", seconds=seconds
    )


async def unreachable(alice: Host, bob: Host, seconds: float = 10) -> str:
    with pytest.raises(PeerUnreachable) as error:
        await ask(alice, bob, seconds=seconds)
    return error.value.code


def test_a_request_is_answered_and_its_source_is_who_signed() -> None:
    async def scenario() -> None:
        alice, bob, echo = await pair(MemoryNetwork())
        payload = {"from": "node:did:key:zSomebodyElse", "remote_node_id": bob.id, "x": 1.5}
        assert await ask(alice, bob, payload) == {"echo": payload}
        (message,) = echo.seen
        assert message.remote_node_id == alice.id
        assert (message.msg, message.correlation_id) == ("a.request", "c1")
        assert await ask(alice, bob, 2) == {"echo": 2}
        assert len(bob.node.parts[0].messenger.receiver.sessions) == 1  # type: ignore[attr-defined]

    run_virtually(scenario())


def test_a_node_answers_itself_without_a_network() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        _, bob, echo = await pair(network)
        network.fate = lambda _sent: LOST
        assert await ask(bob, bob, 3) == {"echo": 3}
        assert echo.seen[0].remote_node_id == bob.id

    run_virtually(scenario())


def test_what_the_host_does_not_know_is_for_the_modules() -> None:
    class Modules:
        async def peer_message(self, message: InboundMessage) -> Any:
            return None if message.msg == "b.silent" else [message.msg, message.payload]

    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork())
        peers = alice.context.peers
        with pytest.raises(NodeError) as error:
            await peers.request(bob.id, "b.request", 1, correlation_id="c", seconds=5)
        assert error.value.code == "message_unknown"
        bob.context.modules = Modules()  # type: ignore[assignment]
        found = await peers.request(bob.id, "b.request", 1, correlation_id="c", seconds=5)
        assert found == ["b.request", 1]
        assert await peers.request(bob.id, "b.silent", 1, correlation_id="c", seconds=5) is None

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NodeError(404, "offer_unknown", "no such offer"), "offer_unknown"),
        (InputError("wrong"), "input"),
        (ZeroDivisionError("secret detail"), "peer_handler_failed"),
    ],
)
def test_an_error_of_the_handler_is_told_by_its_class_and_without_its_inside(
    error: Exception, code: str
) -> None:
    async def fails(_message: InboundMessage) -> Any:
        raise error

    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork())
        bob.context.peers.on("f.request", fails)
        with pytest.raises(NodeError) as told:
            await alice.context.peers.request(bob.id, "f.request", 1, correlation_id="c", seconds=5)
        assert told.value.code == code
        assert "secret" not in told.value.message

    run_virtually(scenario())


def test_a_handler_that_hangs_is_given_up() -> None:
    async def hangs(_message: InboundMessage) -> Any:
        await asyncio.sleep(10_000)

    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork(), raw={"peers": {"handler_ms": 2000}})
        bob.context.peers.on("h.request", hangs)
        with pytest.raises(NodeError) as told:
            await alice.context.peers.request(bob.id, "h.request", 1, correlation_id="c", seconds=9)
        assert told.value.code == "peer_handler_timeout"

    run_virtually(scenario())


@pytest.mark.parametrize("setting", ["in_flight", "in_flight_all"])
def test_more_messages_than_are_answered_at_once_are_refused(setting: str) -> None:
    gate = asyncio.Event()

    async def waits(_message: InboundMessage) -> Any:
        await gate.wait()

    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork(), raw={"peers": {setting: 2}})
        bob.context.peers.on("w.request", waits)

        async def one() -> Any:
            return await alice.context.peers.request(
                bob.id, "w.request", 1, correlation_id="c", seconds=9
            )

        tasks = [asyncio.ensure_future(one()) for _ in range(3)]
        await asyncio.sleep(1)
        gate.set()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        codes = Counter(getattr(each, "code", each) for each in ended)
        assert codes == {None: 2, "peer_busy": 1}

    run_virtually(scenario())


def test_peers_with_nothing_but_a_key_leave_places_to_trusted_ones() -> None:
    gate = asyncio.Event()

    async def waits(_message: InboundMessage) -> Any:
        await gate.wait()

    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork(), raw={"peers": {"in_flight_all": 4}})
        bob.context.peers.on("w.request", waits)

        async def one() -> Any:
            return await alice.context.peers.request(
                bob.id, "w.request", 1, correlation_id="c", seconds=9
            )

        async def codes(count: int) -> list[Any]:
            tasks = [asyncio.ensure_future(one()) for _ in range(count)]
            started.extend(tasks)
            await asyncio.sleep(1)
            return [getattr(each.exception(), "code", "") for each in tasks if each.done()]

        started: list[asyncio.Future[Any]] = []
        assert await codes(4) == ["peer_busy"]
        bob.context.directory.trusted.add(alice.id)  # type: ignore[attr-defined]
        assert await codes(2) == ["peer_busy"]
        gate.set()
        ended = await asyncio.gather(*started, return_exceptions=True)
        assert ended.count(None) == 4

    run_virtually(scenario())


# -- absence ---------------------------------------------------------------------------------


def test_a_peer_without_an_address_is_unreachable_at_once() -> None:
    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork())
        alice.context.directory.places.clear()  # type: ignore[attr-defined]
        assert await unreachable(alice, bob) == "peer_unknown"
        acquainted(alice, bob)
        assert await ask(alice, bob) == {"echo": 1}

    run_virtually(scenario())


def test_a_silent_peer_is_found_in_bounded_time_and_not_tried_again_at_once() -> None:
    async def scenario() -> None:
        network, loop = MemoryNetwork(), asyncio.get_running_loop()
        alice, bob, _ = await pair(network)
        network.drop(alice.id, bob.id)
        begin = loop.time()
        assert await unreachable(alice, bob, seconds=60) == "peer_timeout"
        assert loop.time() - begin < 6  # establish_ms, not the 60 s of the message
        begin = loop.time()
        assert await unreachable(alice, bob) == "peer_backoff"
        assert loop.time() == begin
        row = (await alice.call("GET", "/v1/peers")).body["items"][0]
        assert (row["status"], row["failures"]) == ("unreachable", 1)
        await asyncio.sleep(0.25)
        network.restore(alice.id, bob.id)
        assert await ask(alice, bob) == {"echo": 1}
        row = (await alice.call("GET", "/v1/peers")).body["items"][0]
        assert (row["status"], row["failures"], row["url"]) == ("reachable", 0, bob.url)

    run_virtually(scenario())


def test_the_wait_after_failures_doubles_up_to_its_limit_and_ends_when_the_peer_is_heard() -> None:
    async def scenario() -> None:
        network, loop = MemoryNetwork(), asyncio.get_running_loop()
        alice, bob, _ = await pair(network)
        alice.context.peers.on("a.request", Echo())
        network.drop(alice.id, bob.id)
        waits = []
        for _ in range(8):
            await unreachable(alice, bob)
            begin = loop.time()
            while await unreachable(alice, bob, 0.001) == "peer_backoff":
                await asyncio.sleep(0.05)
            waits.append(round(loop.time() - begin, 1))
            await asyncio.sleep(6)
        assert waits == sorted(waits)
        assert waits[-1] <= 10.1
        network.restore(alice.id, bob.id)
        await unreachable(alice, bob, 0.001)
        assert await ask(bob, alice) == {"echo": 1}
        assert await ask(alice, bob) == {"echo": 1}

    run_virtually(scenario())


def test_several_who_ask_a_silent_peer_wait_for_one_handshake() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        alice, bob, _ = await pair(network)
        seen: list[Sent] = []
        network.fate = lambda sent: (seen.append(sent), ARRIVES)[1]  # type: ignore[func-returns-value]
        assert await asyncio.gather(*(ask(alice, bob, n) for n in range(20))) == [
            {"echo": n} for n in range(20)
        ]
        assert len(seen) == 21

    run_virtually(scenario())


@pytest.mark.parametrize("who", ["asked", "asking"])
def test_after_a_restart_of_either_the_session_is_opened_anew(who: str) -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        alice, bob, echo = await pair(network)
        assert await ask(alice, bob) == {"echo": 1}
        old = bob if who == "asked" else alice
        await old.close()
        new = await Host(network, 2 if who == "asked" else 1, store=old.store).open()
        alice, bob = (alice, new) if who == "asked" else (new, bob)
        acquainted(alice, bob)
        if who == "asked":
            bob.context.peers.on("a.request", echo)
        assert await ask(alice, bob, 2) == {"echo": 2}
        assert [message.payload for message in echo.seen] == [1, 2]

    run_virtually(scenario())


def test_a_session_that_expired_is_opened_anew() -> None:
    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork(), raw={"peers": {"session_ms": 60_000}})
        first = await alice.context.peers.establish(bob.id, 5)
        assert await alice.context.peers.establish(bob.id, 5) == first
        await asyncio.sleep(61)
        assert await ask(alice, bob) == {"echo": 1}
        assert await alice.context.peers.establish(bob.id, 5) != first

    run_virtually(scenario())


# -- lies ------------------------------------------------------------------------------------


def test_an_hour_of_skew_is_refused_by_name_on_both_sides() -> None:
    async def scenario() -> None:
        alice, bob, echo = await pair(MemoryNetwork(), clock=LoopClock(3_600_000))
        assert await unreachable(alice, bob) == "clock_skew"
        bob.context.peers.on("x.request", echo)
        with pytest.raises(PeerUnreachable) as error:
            await bob.context.peers.request(alice.id, "x.request", 1, correlation_id="c", seconds=5)
        assert error.value.code == "clock_skew"
        assert echo.seen == []

    run_virtually(scenario())


def test_another_node_that_answers_in_place_of_the_peer_is_not_believed() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        alice, bob, _ = await pair(network)
        mallory = await Host(network, 3).open()
        network.attach(bob.id, bob.url, mallory.node.handle)
        assert await unreachable(alice, bob) == "peer_recipient"

        async def lies(call: Call) -> Any:
            fields = read_envelope(call.raw)
            data = seal(
                KeySigner(3), to=alice.id, msg=fields.msg, kind="response", payload={},
                correlation_id=fields.correlation_id, now=alice.clock.now(), nonce="0" * 32,
                session=fields.session, sequence=fields.sequence,
            )  # fmt: skip
            return msgspec.structs.replace(
                await mallory.node.handle(call), status=200, body=msgspec.Raw(data)
            )

        network.attach(bob.id, bob.url, lies)
        await asyncio.sleep(60)
        assert await unreachable(alice, bob) == "peer_impostor"

    run_virtually(scenario())


def test_an_answer_to_another_message_is_not_taken_for_this_one() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        alice, bob, _ = await pair(network)
        recorded: list[Any] = []

        async def replays(call: Call) -> Any:
            answer = await bob.node.handle(call)
            if read_envelope(call.raw).msg == "a.request":
                recorded.append(answer)
                return recorded[0]
            return answer

        network.attach(bob.id, bob.url, replays)
        assert await ask(alice, bob, "first") == {"echo": "first"}
        assert await unreachable(alice, bob) == "peer_answer"

    run_virtually(scenario())


def test_a_recorded_message_is_refused_also_after_a_restart() -> None:
    async def scenario() -> None:
        network = MemoryNetwork()
        sent: list[Sent] = []
        network.fate = lambda one: (sent.append(one), ARRIVES)[1]  # type: ignore[func-returns-value]
        alice, bob, echo = await pair(network)
        await ask(alice, bob)
        for one in sent:
            answer = await bob.node.handle(call_of(one))
            assert (answer.status, answer.body["code"]) == (409, "peer_replay")
        await bob.close()
        again = await Host(network, 2, store=bob.store).open()
        again.context.peers.on("a.request", echo)
        answer = await again.node.handle(call_of(sent[1]))
        assert (answer.status, answer.body["code"]) == (409, "session_unknown")
        assert len(echo.seen) == 1

    run_virtually(scenario())


@pytest.mark.parametrize("kind", ["response", "error"])
def test_answers_are_not_taken_where_requests_are_posted(kind: Any) -> None:
    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork())
        data = seal(
            alice.signer, to=bob.id, msg="a.request", kind=kind, payload=1, correlation_id="c",
            now=alice.clock.now(),
        )  # fmt: skip
        answer = await bob.call("POST", "/peer/messages", caller=OPEN, raw=data)
        assert (answer.status, answer.body["code"]) == (400, "peer_envelope")

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("section", "named"),
    [({"skew_ms": 0}, "skew_ms"), ({"skew": 1}, "skew"), ({"addresses": 5}, "addresses")],
)
def test_a_wrong_setting_is_named(section: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=rf"`peers` of the node.*{named}"):
        Host(MemoryNetwork(), 1, raw={"peers": section})


# -- a hostile network against what must hold ------------------------------------------------


def fate_of(random_: random.Random) -> Fate:
    late = random_.choice((0.0, 0.5, 3.0))
    return random_.choice(
        (
            ARRIVES,
            ARRIVES,
            LOST,
            ANSWER_LOST,
            Fate((late,)),
            Fate((0.0, late)),
            Fate((late, 0.0), 4.0),
        )
    )


@pytest.mark.parametrize("seed", seeds(200))
def test_whatever_the_network_does_a_message_is_handled_once_and_answered_with_its_own(
    seed: int,
) -> None:
    random_ = random.Random(seed)

    async def scenario() -> None:
        network = MemoryNetwork()
        alice, bob, echo = await pair(network)
        network.fate = lambda _sent: fate_of(random_)
        answered: list[int] = []

        async def one(number: int) -> None:
            await asyncio.sleep(random_.random() * 20)
            try:
                assert await ask(alice, bob, number, seconds=2) == {"echo": number}
                answered.append(number)
            except PeerUnreachable:
                pass

        await asyncio.gather(*(one(number) for number in range(30)))
        await asyncio.sleep(30)
        handled = Counter(message.payload for message in echo.seen)
        assert max(handled.values(), default=1) == 1
        assert set(answered) <= set(handled)
        network.fate = lambda _sent: ARRIVES
        await asyncio.sleep(20)
        assert await ask(alice, bob, "at last") == {"echo": "at last"}

    run_virtually(scenario())
