"""The section `peers` of the file of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.node.peers.envelope import ENVELOPE_BYTES, SKEW_MS

Positive = Annotated[int, msgspec.Meta(ge=1)]


class PeerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    addresses: str = "loopback"  # which addresses peers may have; words of `http_addresses`
    endpoints: Mapping[str, str] = {}  # node → URL, before what the directory says
    skew_ms: Positive = SKEW_MS
    session_ms: Positive = 60 * 60 * 1000
    establish_ms: Positive = 5_000  # at most, for a peer to open a session
    handler_ms: Positive = 120_000  # at most, to answer a message of a peer
    backoff_ms: Positive = 250  # after the first failure; doubles
    backoff_max_ms: Positive = 10_000
    envelope_bytes: Positive = ENVELOPE_BYTES
    in_flight: Positive = 64  # messages of one peer that are being answered
    in_flight_all: Positive = 1024  # and of all peers: anyone can make keys


def peer_settings(raw: Mapping[str, Any]) -> PeerSettings:
    try:
        return msgspec.convert(raw.get("peers") or {}, PeerSettings)
    except msgspec.ValidationError as error:
        raise InputError(f"`peers` of the node: {error}") from None
