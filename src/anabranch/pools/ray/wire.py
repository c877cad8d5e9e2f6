"""What the engine and its Ray driver say to each other: frames over the driver's pipes.

A frame is its length in eight bytes, and a message in msgpack.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec

from anabranch.pools.backend import Capacity

_LENGTH = struct.Struct(">Q")
LENGTH_BYTES = _LENGTH.size


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


# -- from the engine -------------------------------------------------------------------------


class Connect(_Message, frozen=True):
    """The first message."""

    address: str  # "auto", HOST:PORT of the head, or ray://HOST:PORT
    entry: str  # the module whose functions do the jobs
    versions: dict[str, str]  # of the engine, see `fitness`
    resources: dict[str, float]  # that a job takes
    runtime_env: dict[str, Any]


class Submit(_Message, frozen=True):
    """Jobs that are given to the cluster together."""

    jobs: list[tuple[str, bytes]]  # ticket and blob

    @property
    def tickets(self) -> list[str]:
        return [ticket for ticket, _ in self.jobs]


class Cancel(_Message, frozen=True):
    """Answered by something said: ("withdrawn", number, tickets)."""

    number: int
    tickets: list[str]
    force: bool


class Close(_Message, frozen=True):
    """Withdraw everything, disconnect and end."""


Request = Connect | Submit | Cancel | Close


# -- from the driver -------------------------------------------------------------------------


class Connected(_Message, frozen=True):
    capacity: Capacity


class Refused(_Message, frozen=True):
    """Instead of `Connected`; the driver ends."""

    reason: str
    unfit: bool


class Told(_Message, frozen=True):
    """What `worker.Relay` said, in its order."""

    said: list[tuple[Any, ...]]


class Beat(_Message, frozen=True):
    """The cluster still answers."""

    capacity: Capacity


class Away(_Message, frozen=True):
    """The cluster no longer answers; the driver ends."""

    reason: str


Reply = Connected | Refused | Told | Beat | Away

request_of: Callable[[bytes], Request] = msgspec.msgpack.Decoder(Request).decode
reply_of: Callable[[bytes], Reply] = msgspec.msgpack.Decoder(Reply).decode


def _plain(value: object) -> bytes:
    """Sealed blobs are bytes that print nothing."""
    if isinstance(value, bytes):
        return bytes(value)
    raise TypeError(f"a frame cannot hold a {type(value).__name__}")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode


def framed(message: Request | Reply) -> bytes:
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    length: int = _LENGTH.unpack(head)[0]
    return length
