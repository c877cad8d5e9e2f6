"""Frames between the engine and the process that is connected to a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.pools.assignment import SealedBlob
from anabranch.pools.backend import Finished, Lost, Progressed, Started, Unusable
from anabranch.pools.driver.wire import (
    LENGTH_BYTES,
    REASON_MAX,
    ROOM_BYTES,
    Submit,
    Told,
    Withdrawn,
    Word,
    framed,
    reply_of,
    request_of,
    require_length,
    said_of,
    told_of,
    word_of,
)


def test_sealed_bytes_travel_in_frames_as_the_bytes_they_are() -> None:
    given = framed(Submit([("t", SealedBlob(b"job"))]))
    assert request_of(given[LENGTH_BYTES:]) == Submit([("t", b"job")])
    told = framed(Told([("finished", "t", "w", SealedBlob(b"outcome"))]))
    reply = reply_of(told[LENGTH_BYTES:])
    assert isinstance(reply, Told)
    assert [list(one) for one in reply.said] == [["finished", "t", "w", b"outcome"]]


def test_a_frame_refuses_what_is_no_message() -> None:
    with pytest.raises(TypeError, match="cannot hold a object"):
        framed(Told([(object(),)]))


@pytest.mark.parametrize(
    "said",
    [
        ("finished", "t", "w", "a text"),
        ("finished", "t", "w"),
        ("lost", "t", "why", 1),
        ("started", ["t"], "w", "p"),
        ("withdrawn", 1, "t"),
        ("__import__", "os"),
        (["finished"], "t", "w", b""),
        (),
    ],
)
def test_what_a_driver_says_is_checked(said: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of msgspec, too
        word_of(said)


def test_what_is_too_large_for_a_frame_fails_its_attempt_and_no_other() -> None:
    words: list[Word] = [
        Started("a", "w", "p"),
        Progressed("a", b"x" * 11),
        Progressed("b", b"x" * 6),
        Finished("a", "w", b"x" * 11),
        Finished("b", "w", b"x" * 10),
        Lost("c", "x" * 2 * REASON_MAX, False),
    ]
    told = [[word_of(said) for said in one.said] for one in told_of(words, 10)]
    assert told == [
        [
            Started("a", "w", "p"),
            Progressed("b", b"x" * 6),
            Unusable(
                "a",
                "its outcome has 11 bytes, and a pool takes at most 10: keep large values "
                "elsewhere, or do less at once",
            ),
        ],
        [Finished("b", "w", b"x" * 10), Lost("c", "x" * REASON_MAX, False)],
    ]
    with pytest.raises(ValueError, match="longer than any outcome"):
        require_length(10 + ROOM_BYTES + 1, 10)


def test_words_are_the_same_on_the_other_side() -> None:
    for word in (Finished("t", "w", b"outcome"), Lost("t", "why", True), Withdrawn(3, ["t"])):
        assert word_of(said_of(word)) == word
