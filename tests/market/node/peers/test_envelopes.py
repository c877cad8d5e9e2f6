"""Envelopes: who signed is who sent, and everything that was signed is what came."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InputError
from anabranch.market.node.errors import NodeError
from anabranch.market.node.peers.envelope import SKEW_MS, read_envelope, require_genuine, seal
from market.support import NOW

from .support import KeySigner

ALICE, BOB, CAROL = KeySigner(1), KeySigner(2), KeySigner(3)


def sealed(payload: Any = None, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "to": BOB.node_id, "msg": "a.request", "kind": "request", "payload": payload,
        "correlation_id": "c1", "now": NOW, "session": "session:x", "sequence": 1,
    }  # fmt: skip
    return seal(changes.pop("signer", ALICE), **{**fields, **changes})


def refusal(data: bytes, now: int = NOW) -> str:
    with pytest.raises(NodeError) as refused:
        require_genuine(read_envelope(data), BOB.node_id, now)
    return refused.value.code


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=20)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@settings(max_examples=50)
@given(json_values)
def test_any_json_arrives_as_it_was_sent(payload: Any) -> None:
    envelope = read_envelope(sealed(payload))
    require_genuine(envelope, BOB.node_id, NOW)
    assert asyncio.run(envelope.content()) == payload
    assert envelope.source == ALICE.node_id


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("from", CAROL.node_id),
        ("from", ALICE.participant_id),
        ("to", CAROL.node_id),
        ("session", "session:y"),
        ("sequence", 2),
        ("nonce", "0" * 32),
        ("correlation_id", "c2"),
        ("msg", "b.request"),
        ("kind", "response"),
        ("sent_at", "2026-02-02T02:40:01.000Z"),
        ("payload", {"other": 1}),
        ("payload_digest", "sha256:" + "A" * 43),
        ("signature", {"alg": "ed25519", "value": "A" * 86}),
        ("signature", {"alg": "ed25519", "value": "base64url:…"}),
        ("signature", {}),
    ],
)
def test_a_change_of_any_field_is_a_forgery(field: str, value: Any) -> None:
    fields = msgspec.json.decode(sealed({"a": 1}))
    assert fields[field] != value
    assert refusal(msgspec.json.encode({**fields, field: value})) == "peer_signature"


def test_a_peer_that_claims_to_be_another_is_refused() -> None:
    class Liar(KeySigner):
        node_id = property(lambda _self: CAROL.node_id, lambda _self, _value: None)

    assert refusal(sealed(signer=Liar(1))) == "peer_signature"


def test_an_envelope_for_another_node_is_refused() -> None:
    assert refusal(sealed(to=CAROL.node_id)) == "peer_recipient"


@pytest.mark.parametrize("skew", [3_600_000, SKEW_MS + 1, -SKEW_MS - 1, -3_600_000])
def test_a_clock_that_is_too_far_off_is_refused_by_name(skew: int) -> None:
    assert refusal(sealed(now=NOW + skew)) == "clock_skew"


@pytest.mark.parametrize("skew", [0, SKEW_MS, -SKEW_MS])
def test_a_little_skew_is_taken(skew: int) -> None:
    require_genuine(read_envelope(sealed(now=NOW + skew)), BOB.node_id, NOW)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"[]", b"nonsense", b"\xff", b'{"schema":"peer-envelope.v1"}',
        b"[" * 100_000, b'{"payload":' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    with pytest.raises(NodeError) as refused:
        read_envelope(data)
    assert refused.value.code == "peer_envelope"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", "peer-envelope.v2"), ("msg", ""), ("msg", "A"), ("msg", "a" * 129),
        ("correlation_id", ""), ("correlation_id", "c" * 257), ("sequence", -1), ("sequence", 1.5),
        ("nonce", "n" * 65), ("kind", "push"), ("unknown", 1), ("signature", None),
    ],
)  # fmt: skip
def test_a_field_out_of_bounds_is_refused(field: str, value: Any) -> None:
    fields = msgspec.json.decode(sealed())
    with pytest.raises(NodeError) as refused:
        read_envelope(msgspec.json.encode({**fields, field: value}))
    assert refused.value.code == "peer_envelope"


def test_an_envelope_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(NodeError) as refused:
        read_envelope(sealed("x" * 2000), limit=1000)
    assert (refused.value.status, refused.value.code) == (413, "peer_envelope_size")


def test_what_cannot_be_sent_is_refused_before_it_is_signed() -> None:
    for wrong in ({"payload": object()}, {"msg": "Nonsense!"}, {"correlation_id": ""}):
        with pytest.raises(InputError):
            sealed(**wrong)
