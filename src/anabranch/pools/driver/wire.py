"""What the engine and a driver say to each other: frames over the driver's pipes.

A frame is its length in eight bytes, and a message in msgpack. No frame is longer than the largest
outcome, and a little: a driver sends none, and an engine reads none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from anabranch.pools.address import PoolOptions
from anabranch.pools.backend import (
    CameBack,
    Capacity,
    Event,
    Finished,
    Lost,
    Progressed,
    Started,
    Unusable,
    WentAway,
)

T = TypeVar("T")

OUTCOME_BYTES = 256 * 1024 * 1024  # of one job, where no larger results are allowed
ROOM_BYTES = 16 * 1024 * 1024  # in a frame, for what is said beside outcomes
REASON_MAX = 4000  # letters
NAME_MAX = 1000  # letters of a worker or a process
_LENGTH = struct.Struct(">Q")
LENGTH_BYTES = _LENGTH.size


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


# -- from the engine -------------------------------------------------------------------------


class Connect(_Message, frozen=True):
    """The first message."""

    pool: PoolOptions
    entry: str  # the module whose functions do the jobs
    versions: dict[str, str]  # of the engine, see `fitness`
    outcome_bytes: int = OUTCOME_BYTES


class Submit(_Message, frozen=True):
    """Jobs that are given to the cluster together."""

    jobs: list[tuple[str, bytes]]  # ticket and blob

    @property
    def tickets(self) -> list[str]:
        return [ticket for ticket, _ in self.jobs]


class Cancel(_Message, frozen=True):
    """Answered by something said: `Withdrawn` with this number."""

    number: int
    tickets: list[str]
    force: bool


class Look(_Message, frozen=True):
    """Answered by `Seen` with this number."""

    number: int


class Close(_Message, frozen=True):
    """Withdraw everything, disconnect and end."""


Request = Connect | Submit | Cancel | Look | Close


# -- from the driver -------------------------------------------------------------------------


class Connected(_Message, frozen=True):
    capacity: Capacity


class Refused(_Message, frozen=True):
    """Instead of `Connected`; the driver ends."""

    reason: str
    unfit: bool


class Withdrawn(msgspec.Struct, frozen=True):
    """What of a `Cancel` is over with it: nothing more is told of these tickets."""

    number: int
    tickets: list[str]


Word = Event | Withdrawn

#: The first part of a thing said, and what the others are.
WORDS: Mapping[str, type[Any]] = {
    "started": Started,
    "progressed": Progressed,
    "finished": Finished,
    "lost": Lost,
    "unusable": Unusable,
    "away": WentAway,
    "back": CameBack,
    "withdrawn": Withdrawn,
}
_NAMES = {kind: name for name, kind in WORDS.items()}


def word_of(said: Sequence[Any]) -> Word:
    """Raises `ValueError` for what is none: a driver is no more trusted than its cluster."""
    name, *values = said or ("",)
    kind = WORDS.get(name) if isinstance(name, str) else None
    if kind is None or len(values) != len(kind.__struct_fields__):
        raise ValueError(f"{name!r:.40} with {len(values)} values is no word of a driver")
    fields = dict(zip(kind.__struct_fields__, values, strict=True))
    word: Word = msgspec.convert(fields, kind)
    return _shortened(word)


def _shortened(word: Word) -> Word:
    """A reason goes to logs and into the record of a run, a name is kept with its ticket."""
    if isinstance(word, Lost | Unusable | WentAway) and len(word.reason) > REASON_MAX:
        return msgspec.structs.replace(word, reason=word.reason[:REASON_MAX])
    if isinstance(word, Started | Finished) and len(word.worker) > NAME_MAX:
        word = msgspec.structs.replace(word, worker=word.worker[:NAME_MAX])
    if isinstance(word, Started) and len(word.process) > NAME_MAX:
        word = msgspec.structs.replace(word, process=word.process[:NAME_MAX])
    return word


def said_of(word: Word) -> tuple[Any, ...]:
    return _NAMES[type(word)], *msgspec.structs.astuple(word)


class Told(_Message, frozen=True):
    """What became of tickets and of the contact, in this order: see `WORDS`."""

    said: list[tuple[Any, ...]]


def told_of(words: Iterable[Word], outcome_bytes: int) -> Iterator[Told]:
    """As many words in a message as fit into a frame."""
    said: list[tuple[Any, ...]] = []
    size = 0
    for word in words:
        fitting = _fitting(word, outcome_bytes)
        if fitting is None:
            continue
        more = _size(fitting)
        if said and size + more > outcome_bytes:
            yield Told(said)
            said, size = [], 0
        said.append(said_of(fitting))
        size += more
    if said:
        yield Told(said)


def _fitting(word: Word, most: int) -> Word | None:
    """What is too large for a frame fails its attempt; a progress like that is not told."""
    size = _size(word)
    if isinstance(word, Finished) and size > most:
        reason = f"its outcome has {size:,} bytes, and a pool takes at most {most:,}"
        return Unusable(word.ticket, f"{reason}: keep large values elsewhere, or do less at once")
    if isinstance(word, Progressed) and size > most:
        return None
    return _shortened(word)


def _size(word: Word) -> int:
    return len(word.said) if isinstance(word, Finished | Progressed) else 0


class Seen(_Message, frozen=True):
    """What the cluster has now, or why that cannot be said."""

    number: int
    capacity: Capacity | None
    reason: str = ""


class Logged(_Message, frozen=True):
    """A line for the log of the engine."""

    level: int
    text: str


class Beat(_Message, frozen=True):
    """The cluster still answers."""

    capacity: Capacity


class Away(_Message, frozen=True):
    """The cluster no longer answers; the driver ends."""

    reason: str


Reply = Connected | Refused | Told | Seen | Logged | Beat | Away

request_of: Callable[[bytes], Request] = msgspec.msgpack.Decoder(Request).decode
_decode_reply: Callable[[bytes], Reply] = msgspec.msgpack.Decoder(Reply).decode


def reply_of(body: bytes) -> Reply:
    """Raises `ValueError` for what is none."""
    return _read(_decode_reply, body)


def _read(decode: Callable[[bytes], T], body: bytes) -> T:
    """Raises `ValueError` also for what is nested too deeply."""
    try:
        return decode(body)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def _plain(value: object) -> bytes:
    """Sealed blobs are bytes that print nothing."""
    if isinstance(value, bytes):
        return bytes(value)
    raise TypeError(f"a frame cannot hold a {type(value).__name__}")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode


#: Things said, on their way to a driver.
encode_said: Callable[[Sequence[tuple[Any, ...]]], bytes] = _encode
_decode_said = msgspec.msgpack.Decoder(list[tuple[Any, ...]]).decode


def decode_said(said: Any) -> list[tuple[Any, ...]]:
    """Raises `ValueError` for anything but bytes of `encode_said`."""
    if not isinstance(said, bytes):
        raise ValueError(f"the cluster says no bytes of ours but a {type(said).__name__}")
    return _read(_decode_said, said)


def framed(message: Request | Reply) -> bytes:
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


def length_of(head: bytes) -> int:
    length: int = _LENGTH.unpack(head)[0]
    return length


def require_length(length: int, outcome_bytes: int) -> None:
    """Raises `ValueError` for a frame that no driver of ours sends."""
    if length > outcome_bytes + ROOM_BYTES:
        raise ValueError(f"a frame of {length:,} bytes is longer than any outcome")
