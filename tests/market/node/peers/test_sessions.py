"""Sessions: each message is taken once, whatever order they come in."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.market.node.errors import NodeError
from anabranch.market.node.peers import sessions as module
from anabranch.market.node.peers.envelope import PeerEnvelope, read_envelope, seal
from anabranch.market.node.peers.sessions import (
    ESTABLISH,
    SESSIONS_OF_A_PEER,
    InboundSession,
    ReplayWindow,
    Sessions,
)
from costs import operations
from market.support import NOW

from .support import KeySigner

ALICE, BOB = KeySigner(1), KeySigner(2)
HOUR, SKEW = 3_600_000, 300_000


def envelope(
    nonce: str = "", session: str = "", sequence: int = 0, by: KeySigner = ALICE
) -> PeerEnvelope:
    return read_envelope(
        seal(
            by,
            to=BOB.node_id,
            msg=ESTABLISH,
            kind="request",
            payload=None,
            correlation_id="c",
            now=NOW,
            nonce=nonce,
            session=session,
            sequence=sequence,
        )
    )


def opened(
    sessions: Sessions, number: int = 1, now: int = NOW, by: KeySigner = ALICE
) -> InboundSession:
    return sessions.open(envelope(f"{number:032}", by=by), f"{number:032x}", now)


@settings(max_examples=60)
@given(st.lists(st.integers(-2, 60), max_size=80), st.integers(1, 40))
def test_a_window_takes_each_number_once_unless_it_is_too_old(
    numbers: list[int], size: int
) -> None:
    window, taken, highest = ReplayWindow(size), set[int](), 0
    for number in numbers:
        fresh = number >= 1 and number not in taken and number > highest - size
        assert window.take(number) is fresh
        if fresh:
            taken.add(number)
            highest = max(highest, number)


def test_a_leap_to_a_huge_number_costs_no_memory() -> None:
    window = ReplayWindow()
    assert window.take(2**62)
    assert not window.take(2**62)
    assert not window.take(1)


def test_an_envelope_opens_one_session() -> None:
    sessions = Sessions(BOB.node_id, HOUR, SKEW)
    opened(sessions)
    with pytest.raises(NodeError) as refused:
        opened(sessions, now=NOW + SKEW)
    assert refused.value.code == "peer_replay"
    assert len(sessions) == 1


def test_a_nonce_is_remembered_as_long_as_its_envelope_could_be_taken() -> None:
    sessions = Sessions(BOB.node_id, HOUR, SKEW)
    opened(sessions)
    opened(sessions, 2, NOW + 2 * SKEW)
    assert sessions.remembered_nonces == 1


def test_the_sessions_of_one_peer_push_out_only_its_own() -> None:
    sessions = Sessions(BOB.node_id, HOUR, SKEW)
    other = opened(sessions, 1, by=BOB)
    made = [opened(sessions, number) for number in range(2, 12)]
    assert sessions.of(ALICE.node_id) == made[-SESSIONS_OF_A_PEER:]
    assert sessions.of(BOB.node_id) == [other]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NONCES_MAX", 3)
    monkeypatch.setattr(module, "SESSIONS_MAX", 2)
    sessions = Sessions(BOB.node_id, HOUR, SKEW)
    for number in range(5):
        opened(sessions, number)
    assert len(sessions) == 2
    assert sessions.remembered_nonces == 3


def test_a_peer_that_opens_many_sessions_keeps_no_other_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "NONCES_OF_A_PEER", 2)
    sessions = Sessions(BOB.node_id, HOUR, SKEW)
    opened(sessions, 1)
    opened(sessions, 2)
    with pytest.raises(NodeError) as refused:
        opened(sessions, 3)
    assert (refused.value.status, refused.value.code) == (429, "peer_busy")
    opened(sessions, 4, by=BOB)
    opened(sessions, 5, NOW + 2 * SKEW)  # and it may again


def test_a_short_nonce_is_refused() -> None:
    with pytest.raises(NodeError, match="nonce"):
        Sessions(BOB.node_id, HOUR, SKEW).open(envelope("short"), "0" * 32, NOW)


@pytest.mark.parametrize("case", ["unknown", "expired", "of another peer"])
def test_a_message_outside_a_session_of_its_sender_is_refused(case: str) -> None:
    sessions = Sessions(BOB.node_id, HOUR, SKEW)
    session = opened(sessions).session
    now = NOW + HOUR if case == "expired" else NOW
    by = BOB if case == "of another peer" else ALICE
    message = envelope(session="session:x" if case == "unknown" else session, sequence=1, by=by)
    with pytest.raises(NodeError) as refused:
        sessions.take(message, now)
    assert refused.value.code == "session_unknown"
    sessions.take(envelope(session=session, sequence=1), NOW)  # nothing was used up


def test_a_message_is_taken_once() -> None:
    sessions = Sessions(BOB.node_id, HOUR, SKEW)
    message = envelope(session=opened(sessions).session, sequence=1)
    sessions.take(message, NOW)
    with pytest.raises(NodeError) as refused:
        sessions.take(message, NOW)
    assert refused.value.code == "peer_replay"
    with pytest.raises(NodeError):
        sessions.take(msgspec.structs.replace(message, sequence=0), NOW)


def test_to_open_a_session_goes_through_none_of_the_others() -> None:
    """Anyone can open as many as there are places."""

    def cost(others: int) -> int:
        sessions = Sessions(BOB.node_id, HOUR, SKEW)
        for number in range(others):
            opened(sessions, number, by=KeySigner(number % 50 + 3))
        wanted = envelope("x" * 32)
        return operations(lambda: sessions.open(wanted, "y" * 32, NOW + 1))

    assert cost(200) < cost(2) * 1.5
