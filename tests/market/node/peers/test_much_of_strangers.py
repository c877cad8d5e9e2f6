"""Messages and answers that are large or many: what strangers cost, and whom they keep out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.market.node.door import LARGE
from anabranch.market.node.peers import envelope, messenger, receiver
from anabranch.market.node.peers.memory_transport import MemoryNetwork
from anabranch.market.node.ports import InboundMessage, PeerUnreachable
from anabranch.work.values.served_json import BESIDE_BYTES
from market.checks import BESIDE, HERE, where
from virtual import run_virtually

from .test_messages import ask, pair, unreachable


def test_large_messages_of_strangers_have_a_total_whoever_answers_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages for modules had none: a module that is slow kept as many of them as there were."""
    monkeypatch.setattr(receiver, "WAITING_BYTES", 5 * LARGE)
    large = "x" * 2 * LARGE

    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork())
        trusted: set[str] = set()
        monkeypatch.setattr(bob.context.directory, "is_trusted", lambda node: node in trusted)
        held = asyncio.Event()

        class Modules:
            async def peer_message(self, _message: InboundMessage) -> Any:
                await held.wait()
                return "answered"

        bob.context.modules = Modules()  # type: ignore[assignment]

        async def sent(payload: Any) -> Any:
            try:
                return await alice.context.peers.request(
                    bob.id, "b.request", payload, correlation_id="c", seconds=60
                )
            except PeerUnreachable as error:
                return error.code

        waiting = [asyncio.create_task(sent(large)) for _ in range(2)]
        await asyncio.sleep(1)
        assert await sent(large) == "peer_busy"
        trusted.add(alice.id)
        waiting.append(asyncio.create_task(sent(large)))
        trusted_one = asyncio.create_task(sent("little"))
        await asyncio.sleep(1)
        held.set()
        assert await asyncio.gather(*waiting, trusted_one) == ["answered"] * 4
        trusted.clear()
        assert await sent(large) == "answered", "there is room again"

    run_virtually(scenario())


def test_what_is_much_in_a_message_or_an_answer_is_read_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight mebibytes of empty lists held the loop for a third of a second."""
    places: list[tuple[int, str]] = []
    read, checked = envelope.content_of, vars(envelope)["digest_of"]

    def noting(work: Any) -> Any:
        def noted(data: Any) -> Any:
            places.append((len(bytes(data)) // BESIDE_BYTES, where()))
            return work(data)

        return noted

    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork())
        await ask(alice, bob, 1)
        monkeypatch.setattr(envelope, "content_of", noting(read))
        for payload, size, expected in (
            ([1], 0, HERE),
            ([[]] * (BESIDE_BYTES // 3 + 9), 1, BESIDE),
        ):
            places.clear()
            assert await ask(alice, bob, payload) == {"echo": payload}
            assert places == [(size, expected)] * 2, "that of the request, that of the answer"
        monkeypatch.setattr(envelope, "digest_of", noting(checked))
        places.clear()
        await ask(alice, bob, "x" * BESIDE_BYTES)
        sealing = 2
        assert [place for _, place in places].count(BESIDE) == len(places) - sealing

    run_virtually(scenario())


def test_strangers_who_are_heard_once_make_nobody_forgotten_that_a_node_talks_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messenger, "REMEMBERED_MAX", 5)

    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork())
        await ask(alice, bob)
        part: Any = alice.node.parts[0]
        session = part.messenger.remotes[bob.id].session
        for number in range(20):
            part.messenger._heard(f"node:did:key:z{number}")
            await ask(alice, bob)
        assert part.messenger.remotes[bob.id].session is session is not None
        assert len(part.messenger.remotes) == 5

    run_virtually(scenario())


def test_a_stranger_answers_with_so_many_bytes_and_a_trusted_peer_with_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hundreds of them are asked at once, and their answers wait for each other."""
    much = "x" * messenger.STRANGERS_ANSWER_BYTES

    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork())
        trusted: set[str] = set()
        monkeypatch.setattr(alice.context.directory, "is_trusted", lambda node: node in trusted)
        with pytest.raises(PeerUnreachable) as error:
            await ask(alice, bob, much)
        assert error.value.code == "peer_answer_size"
        assert await ask(alice, bob, much[:1000]) == {"echo": much[:1000]}
        trusted.add(bob.id)
        assert await ask(alice, bob, much) == {"echo": much}

    run_virtually(scenario())


def test_strangers_who_do_not_answer_leave_connections_to_trusted_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results that went where strangers said held all connections of a node."""
    monkeypatch.setattr(messenger, "STRANGERS_AT_ONCE", 2)

    async def scenario() -> None:
        alice, bob, _ = await pair(MemoryNetwork())
        trusted: set[str] = set()
        monkeypatch.setattr(alice.context.directory, "is_trusted", lambda node: node in trusted)
        await ask(alice, bob)

        async def hangs(_message: InboundMessage) -> Any:
            await asyncio.sleep(1000)

        bob.context.peers.on("h.request", hangs)
        peers = alice.context.peers
        hanging = [
            asyncio.create_task(
                peers.request(bob.id, "h.request", 1, correlation_id="c", seconds=50)
            )
            for _ in range(2)
        ]
        await asyncio.sleep(1)
        assert await unreachable(alice, bob) == "peer_busy"
        trusted.add(bob.id)
        assert await ask(alice, bob, 2) == {"echo": 2}
        trusted.clear()
        found = await asyncio.gather(*hanging, return_exceptions=True)
        assert [type(one) for one in found] == [PeerUnreachable] * 2
        assert await ask(alice, bob, 3) == {"echo": 3}

    run_virtually(scenario())
