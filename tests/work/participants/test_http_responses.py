"""A response means the same in whatever pieces it comes, and is bounded in every direction."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from anabranch.work.participants.http_responses import (
    CHUNKS_MAX,
    HEAD_MAX,
    HEADERS_MAX,
    BrokenResponse,
    Head,
    ResponseReader,
    TooLarge,
)

HEAD = b"HTTP/1.1 200 OK\r\n"
WHOLE = {
    "length": HEAD + b"Content-Length: 5\r\nX: 1\r\nX: 2\r\n\r\nhello",
    "empty": HEAD + b"Content-Length: 0\r\n\r\n",
    "chunks": HEAD
    + b"Transfer-Encoding: Chunked\r\n\r\n3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\nT: x\r\n\r\n",
    "interim": b"HTTP/1.1 100 Go on\r\n\r\n" + HEAD + b"Content-Length: 5\r\n\r\nhello",
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
}


def reader(body_max: int = 100) -> ResponseReader:
    return ResponseReader(body_max, lambda _head: None)


def outcome(pieces: list[bytes], *, ends: bool = False) -> tuple[object, ...]:
    found = reader()
    try:
        for piece in pieces:
            found.feed(piece)
        if ends:
            found.end()
    except (BrokenResponse, TooLarge) as error:
        return (type(error),)
    return found.done, found.head, bytes(found.body), found.reusable


@pytest.mark.parametrize("data", WHOLE.values(), ids=WHOLE)
def test_a_response_means_the_same_in_whatever_pieces_it_comes(data: bytes) -> None:
    whole = outcome([data])
    assert (whole[0], whole[3]) == (True, True)
    assert outcome([data[at : at + 1] for at in range(len(data))]) == whole
    dice = random.Random(len(data))
    for _ in range(200):
        cuts = sorted(dice.choices(range(len(data) + 1), k=dice.randrange(5)))
        ends = [0, *cuts, len(data)]
        assert outcome([data[a:b] for a, b in pairwise(ends)]) == whole
    for at in range(len(data)):
        assert outcome([data[:at]])[0] is False, "it is over with its last byte, not before"
        if at:
            assert outcome([data[:at]], ends=True) == (BrokenResponse,)
    for more in (b"\n", b"H", data):
        assert outcome([data + more])[3] is False
        assert outcome([data, more])[3] is False


def test_a_body_without_a_length_ends_with_the_connection_which_is_then_of_no_use() -> None:
    data = HEAD + b"\r\nhello"
    assert outcome([data])[0] is False
    done, _, body, reusable = outcome([data], ends=True)
    assert (done, body, reusable) == (True, b"hello", False)


def test_whatever_bytes_come_it_is_an_answer_broken_too_large_or_not_over() -> None:
    dice = random.Random(1)
    for _ in range(3000):
        data = bytearray(dice.choice(list(WHOLE.values())))
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(len(data))
            data[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(3))
        found = outcome([bytes(data)])
        assert found == outcome([bytes(data[:7]), bytes(data[7:])]), data


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"X: " + b"y" * HEAD_MAX,
        HEAD + b"X: y\r\n" * HEADERS_MAX + b"\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1;" + b"x" * 10_000,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 200,
        b"x" * (HEAD_MAX + 1),
    ],
    ids=["long head", "many headers", "long chunk line", "many trailers", "no head"],
)
def test_what_does_not_end_is_given_up(data: bytes) -> None:
    with pytest.raises(BrokenResponse):
        reader().feed(data)


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Content-Length: 101\r\n\r\n",
        HEAD + b"\r\n" + b"x" * 101,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n65\r\n",
        HEAD
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"33\r\n"
        + b"x" * 51
        + b"\r\n33\r\n"
        + b"x" * 51,
    ],
    ids=["announced", "unannounced", "chunk", "chunks"],
)
def test_more_than_is_taken_is_not_read(data: bytes) -> None:
    with pytest.raises(TooLarge):
        reader().feed(data)


def test_a_body_in_countless_chunks_is_too_large() -> None:
    found = reader(10 * CHUNKS_MAX)
    with pytest.raises(TooLarge):
        found.feed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * (CHUNKS_MAX + 1))


def test_the_head_is_judged_before_the_body_is_read() -> None:
    heads: list[Head] = []
    found = ResponseReader(100, heads.append)
    found.feed(HEAD + b"Content-Length: 5\r\n\r\n")
    assert [head.status for head in heads] == [200]
    assert not found.done


def test_a_header_full_of_spaces_is_read_in_one_go() -> None:
    """A pattern that tries every space as the end would take minutes over this."""
    data = HEAD + b"Content-Length: 0\r\nX: y" + b" \t" * (HEAD_MAX // 3) + b"z \r\n\r\n"
    found = reader()
    assert found.feed(data)
    assert found.head is not None
    assert len(found.head.headers["x"]) == 2 * (HEAD_MAX // 3) + 2
