"""One HTTP/1.1 response, read strictly from whatever pieces it comes in. It knows no network.

What a participant sends is judged before it is used: a response that is not framed in exactly one
way, that is too large or that has more headers than anybody needs is broken. A response says of
itself whether the connection may carry another request: only where it came as HTTP/1.1, with a
length or in chunks, to its very end, and without a word about the connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

HEAD_MAX: Final = 64 * 1024
HEADERS_MAX: Final = 128
INTERIM_MAX: Final = 8  # responses that only say to go on
CHUNKS_MAX: Final = 20_000  # each takes a moment, however short it is
_LINE_MAX: Final = 8 * 1024  # of a chunk's size with its extensions, and of a trailer
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([^\x00\r\n]*))?")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00\r\n]*)")  # with its spaces
_LENGTH: Final = re.compile(r"[0-9]{1,15}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\x00\r\n]*)?")
_USUAL_END: Final = len(b"\n\r\n")
_NO_BODY: Final = frozenset({204, 304})


class BrokenResponse(Exception):
    """What came is no HTTP response that can be used; its text says why."""


class TooLarge(Exception):
    """The body has more bytes than are taken."""


class Head(msgspec.Struct, frozen=True):
    minor: int  # of the version: 1.0 or 1.1
    status: int
    reason: str
    headers: Mapping[str, str]  # names in lower case, repeated ones joined

    @property
    def length(self) -> int | None:
        """As announced; two lengths, or one in other words than digits, are none to rely on."""
        text = self.headers.get("content-length")
        if text is None:
            return None
        if not _LENGTH.fullmatch(text):
            raise BrokenResponse("its Content-Length is not one number")
        return int(text)


class ResponseReader:
    """`judge` hears of the head before the body is read, and may raise."""

    def __init__(self, body_max: int, judge: Callable[[Head], None]) -> None:
        self.head: Head | None = None
        self.body = bytearray()
        self.done = False
        self.begun = False  # a byte came
        self._body_max = body_max
        self._judge = judge
        self._rest = bytearray()  # not looked at yet
        self._interim = self._chunks = self._trailers = 0
        self._left: int | None = None  # of the body or the chunk; None: until the connection ends
        self._in_chunks = False
        self._reads: Callable[[], bool] = self._read_head
        self._strict = True  # nothing was passed over that others might read differently

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; True where it is over. Raises what is wrong with them, or what
        `judge` raises."""
        self.begun = True
        self._rest += data
        while not self.done and self._reads():
            pass
        return self.done

    def end(self) -> None:
        """No more will come."""
        if self.done:
            return
        if self.head is None or self._left is not None or self._in_chunks:
            raise BrokenResponse("the response ends too early")
        self.done = True

    @property
    def reusable(self) -> bool:
        """Another request may follow on the connection, as far as this response is concerned."""
        head = self.head
        if not self.done or head is None or self._rest or not self._strict or head.minor != 1:
            return False
        framed = self._in_chunks or head.length is not None or head.status in _NO_BODY
        said = head.headers.get("connection", "keep-alive").lower()
        return framed and said == "keep-alive" and "upgrade" not in head.headers

    # -- the head ----------------------------------------------------------------------------

    def _read_head(self) -> bool:
        end, length = _end_of_head(self._rest)
        if end > HEAD_MAX or (end < 0 and len(self._rest) > HEAD_MAX):
            raise BrokenResponse("its head does not end")
        if end < 0:
            return False
        lines = bytes(self._rest[:end]).split(b"\n")
        del self._rest[: end + length]
        head = _head(lines)
        if length != _USUAL_END or not all(line.endswith(b"\r") for line in lines):
            self._strict = False
        if head.status < 200:
            self._go_on(head)
            return True
        self.head = head
        self._judge(head)
        self._frame(head)
        return True

    def _go_on(self, head: Head) -> None:
        self._interim += 1
        if head.status == 101 or self._interim > INTERIM_MAX:
            raise BrokenResponse(f"it says {head.status} instead of an answer")

    def _frame(self, head: Head) -> None:
        """Where the body ends: said in one way, or not at all."""
        length, coding = head.length, head.headers.get("transfer-encoding")
        if head.status in _NO_BODY:
            self.done = True
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None or head.minor != 1:
                raise BrokenResponse("it does not say in one way how long it is")
            self._in_chunks, self._left, self._reads = True, 0, self._read_size
        else:
            self._left, self._reads = length, self._read_body
            if length is not None and length > self._body_max:
                raise TooLarge
            self.done = length == 0

    # -- the body ----------------------------------------------------------------------------

    def _read_body(self) -> bool:
        """Of a length, or until the connection ends."""
        self._take(len(self._rest) if self._left is None else min(self._left, len(self._rest)))
        self.done = self._left == 0
        return False

    def _take(self, count: int) -> None:
        if len(self.body) + count > self._body_max:
            raise TooLarge
        self.body += self._rest[:count]
        del self._rest[:count]
        if self._left is not None:
            self._left -= count

    def _read_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise BrokenResponse("a chunk has no size")
        self._left = int(found[1], 16)
        self._chunks += 1
        if self._left > self._body_max or self._chunks > CHUNKS_MAX:
            raise TooLarge
        self._reads = self._read_chunk if self._left else self._read_trailers
        return True

    def _read_chunk(self) -> bool:
        assert self._left is not None
        if self._left:
            self._take(min(self._left, len(self._rest)))
            if self._left:
                return False
        line = self._line()
        if line is None:
            return False
        if line:
            raise BrokenResponse("a chunk is longer than it says")
        self._reads = self._read_size
        return True

    def _read_trailers(self) -> bool:
        """They are passed over: nothing that is needed stands there."""
        line = self._line()
        if line is None:
            return False
        self._trailers += 1
        if self._trailers > HEADERS_MAX or (line and not _HEADER.fullmatch(line)):
            raise BrokenResponse("what follows the last chunk are no headers")
        self.done = not line
        return True

    def _line(self) -> bytes | None:
        """The next one without its end; None where it has not ended yet."""
        end = self._rest.find(b"\n")
        if end > _LINE_MAX or (end < 0 and len(self._rest) > _LINE_MAX):
            raise BrokenResponse("a line does not end")
        if end < 0:
            return None
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        if not line.endswith(b"\r"):
            self._strict = False
            return line
        return line[:-1]


def _end_of_head(data: bytearray) -> tuple[int, int]:
    """Where the end of the last header begins, and how long it is with the empty line after it;
    -1: it has not come."""
    usual = data.find(b"\n\r\n")
    odd = data.find(b"\n\n", 0, usual if usual >= 0 else len(data))
    return (odd, 2) if odd >= 0 else (usual, _USUAL_END)


def _head(lines: list[bytes]) -> Head:
    if len(lines) > HEADERS_MAX:
        raise BrokenResponse("it has too many headers")
    first = _STATUS_LINE.fullmatch(_without_cr(lines[0]))
    if first is None:
        raise BrokenResponse("it is no HTTP/1 response")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        found = _HEADER.fullmatch(_without_cr(line))
        if found is None:
            raise BrokenResponse("a header is malformed")
        name, value = found[1].decode().lower(), found[2].strip(b" \t").decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Head(int(first[1]), int(first[2]), (first[3] or b"").decode("latin-1"), headers)


def _without_cr(line: bytes) -> bytes:
    return line[:-1] if line.endswith(b"\r") else line
