"""Where the book gives the key of a participant, only answers that it signed are used."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market.identities import Ed25519Signatures, SigningKey
from anabranch.work.participants.book import Book, BookError
from anabranch.work.participants.port import BadReply, ParticipantRequest

from ..support import run
from .loopback_participants import party, says

KEY = SigningKey.from_seed(b"\x07" * 32)
STRANGER = SigningKey.from_seed(b"\x08" * 32)
NAME = KEY.identity("participant")
DISPATCH = "dispatch:1"


def asked(reply: Any, key: Any = NAME, *, by_http: bool = False) -> Any:
    """What comes of a request to somebody who replies so."""

    async def once(place: Any) -> Any:
        entry = {**place, "key": key}
        book = Book({"participants": {"x": entry}}, signatures=Ed25519Signatures())
        participant = book.participant("x")
        assert participant is not None
        request = ParticipantRequest(
            participant="x",
            dispatch_id=DISPATCH,
            run_id="r",
            step_id="s",
            service_type="t",
            input={},
        )
        try:
            return await participant.ask(request)
        finally:
            await book.close()

    if not by_http:
        return run(once({"function": lambda _request: reply}))
    with party(x=says(reply)) as server:
        return run(once({"url": server.url("x")}))


@pytest.mark.parametrize("by_http", [False, True])
def test_a_signed_answer_to_the_dispatch_is_taken(by_http: bool) -> None:
    signed = KEY.sign({"dispatch_id": DISPATCH, "price": 3, "more": {"é": [1, None]}})
    assert asked(signed, by_http=by_http) == signed


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ({"dispatch_id": DISPATCH, "price": 3}, "unsigned_reply"),
        (7, "unsigned_reply"),
        ([KEY.sign({"dispatch_id": DISPATCH})], "unsigned_reply"),
        (KEY.sign({"price": 3}), "unsigned_dispatch"),
        (STRANGER.sign({"dispatch_id": DISPATCH, "price": 3}), "bad_signature"),
        ({**KEY.sign({"dispatch_id": DISPATCH, "price": 3}), "price": 2}, "bad_signature"),
        ({**KEY.sign({"dispatch_id": DISPATCH}), "more": 1}, "bad_signature"),
        ({"dispatch_id": DISPATCH, "signature": "x"}, "bad_signature"),
        ({**KEY.sign({"dispatch_id": DISPATCH}), "price": 1.5}, "bad_signature"),
        (KEY.sign({"dispatch_id": "dispatch:0", "price": 3}), "wrong_dispatch"),
    ],
)
def test_any_other_answer_is_none(reply: Any, code: str) -> None:
    with pytest.raises(BadReply) as caught:
        asked(reply)
    assert caught.value.code == code


def test_a_no_needs_no_signature() -> None:
    no = {"status": "declined"}
    assert asked(no) == no


def test_another_participant_may_sign_with_a_key_of_another_role() -> None:
    signed = KEY.sign({"dispatch_id": DISPATCH, "price": 3})
    assert asked(signed, KEY.identity("node")) == signed


@pytest.mark.parametrize(
    ("key", "says"), [(7, "is text"), ("abc", "is not an identity"), ("", "is not an identity")]
)
def test_a_key_that_is_none_is_a_mistake_in_the_book(key: Any, says: str) -> None:
    with pytest.raises(BookError, match=f"participant 'x': `key`.*{says}"):
        Book(
            {"participants": {"x": {"function": print, "key": key}}},
            signatures=Ed25519Signatures(),
        )
