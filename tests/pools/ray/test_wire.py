"""Frames between the engine and the process that is connected to Ray."""

from __future__ import annotations

import pytest

from anabranch.pools.assignment import SealedBlob
from anabranch.pools.ray.wire import LENGTH_BYTES, Submit, Told, framed, reply_of, request_of


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
