"""A driver of no cluster, which answers a question when the next one has come; it says too much of
a ticket with the name `huge` or `loud`."""

from __future__ import annotations

import struct
import sys

from anabranch.pools.backend import Capacity, Progressed, Started
from anabranch.pools.driver.wire import (
    LENGTH_BYTES,
    Cancel,
    Close,
    Connect,
    Connected,
    Look,
    Reply,
    Request,
    Seen,
    Submit,
    Told,
    Withdrawn,
    framed,
    length_of,
    request_of,
    said_of,
)

LOUD = 3000
CAPACITY = Capacity(slots=1, workers=1)


def main() -> None:
    late: Reply | None = None
    while not isinstance(request := _receive(), Close):
        match request:
            case Connect():
                _send(Connected(CAPACITY))
            case Submit() if "huge" in request.tickets:
                sys.stdout.buffer.write(struct.pack(">Q", 1 << 40) + b"x" * 1000)
                sys.stdout.buffer.flush()
            case Submit() if "loud" in request.tickets:
                for number in range(LOUD):
                    _send(Told([said_of(Progressed("loud", b"%d" % number))]))
            case Submit():
                _send(Told([said_of(Started(ticket, "w", "")) for ticket in request.tickets]))
            case Look() | Cancel():
                if late is not None:
                    _send(late)
                late = _answer_to(request)


def _answer_to(question: Look | Cancel) -> Reply:
    if isinstance(question, Look):
        return Seen(question.number, CAPACITY)
    return Told([said_of(Withdrawn(question.number, question.tickets))])


def _receive() -> Request:
    head = sys.stdin.buffer.read(LENGTH_BYTES)
    return request_of(sys.stdin.buffer.read(length_of(head))) if head else Close()


def _send(reply: Reply) -> None:
    sys.stdout.buffer.write(framed(reply))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
