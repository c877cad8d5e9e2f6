"""Whatever a participant does: it is bounded, it is recorded, and the others are not held up."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import socket
import threading
from typing import Any

import pytest

from anabranch.work.participants.book import Book
from anabranch.work.participants.limits import HttpLimits
from anabranch.work.participants.port import BadReply, CannotAsk, ParticipantRequest, Unreachable
from hangs import HANG_SECONDS

from ..support import run
from .loopback_participants import (
    Behaviour,
    asked,
    closed_port,
    never,
    party,
    reply,
    says,
    sends,
    solicit,
)

DEEP = b"[" * 5000 + b"]" * 5000
BOMB = gzip.compress(b'{"price": 1, "pad": "' + b" " * 50_000_000 + b'"}')
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
MEGABYTE = b"x" * 2**20

#: What comes back, and the code under which it is recorded.
NO_ANSWERS: dict[str, tuple[Behaviour, str]] = {
    "garbage": (sends(b"\x00\xffthis is not HTTP\r\n\r\n"), "broken_reply"),
    "html": (sends(reply("<html>", kind="text/html")), "wrong_content_type"),
    "no_type": (sends(reply('{"price": 1}', kind="")), "wrong_content_type"),
    "not_json": (sends(reply("price: 1")), "not_json"),
    "nothing_in_it": (sends(reply("")), "not_json"),
    "no_content": (sends(b"HTTP/1.1 204 No Content\r\n\r\n"), "empty_reply"),
    "not_utf8": (sends(reply(b'{"price": "\xff\xfe"}')), "not_json"),
    "not_a_number": (sends(reply('{"price": NaN}')), "not_json"),
    "infinite": (sends(reply('{"price": 1e999}')), "not_json"),
    "deep": (sends(reply(DEEP)), "not_json"),
    "rather_deep": (sends(reply(b"[" * 300 + b"]" * 300)), "too_deep"),
    "large": (sends(reply(b'"' + MEGABYTE * 10 + b'"')), "reply_too_large"),
    "large_unannounced": (
        sends(HEAD + b'\r\n"', *[MEGABYTE] * 10, b'"'),
        "reply_too_large",
    ),
    "large_in_chunks": (
        sends(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[b"100000\r\n" + MEGABYTE + b"\r\n"] * 10
        ),
        "reply_too_large",
    ),
    "bomb": (sends(reply(BOMB, Content_Encoding="gzip")), "encoded_reply"),
    "redirect": (
        sends(reply("{}", status="302 Found", Location="http://127.0.0.1:1/")),
        "redirect",
    ),
    "cut_short": (sends(HEAD + b'Content-Length: 100\r\n\r\n{"price"'), "broken_reply"),
    "cut_in_a_chunk": (
        sends(HEAD + b"Transfer-Encoding: chunked\r\n\r\n64\r\n{"),
        "broken_reply",
    ),
    "silent_end": (sends(b""), "disconnected"),
    "endless_header": (sends(b"HTTP/1.1 200 OK\r\nX: " + MEGABYTE), "broken_reply"),
    "http_500": (sends(reply('{"why": "tired"}', status="500 Oops")), "http_500"),
    "http_404": (sends(reply("gone", status="404 Not Found", kind="text/plain")), "http_404"),
    "http_429": (sends(reply('{"later": 3}', status="429 Slow Down")), "http_429"),
    "deep_500": (sends(reply(b"[" * 300 + b"]" * 300, status="500 Deep")), "http_500"),
    "other_dispatch": (says({"dispatch_id": "dispatch:other", "price": 1}), "wrong_dispatch"),
    "says_no": (says({"status": "no_offer_available"}), ""),
    "null": (says(None), ""),
}


def request(name: str = "x", **more: Any) -> ParticipantRequest:
    return ParticipantRequest(
        participant=name,
        dispatch_id="dispatch:1",
        run_id="run-1",
        step_id="ask",
        service_type="text/summarise",
        input={},
        **more,
    )


async def ask(entry: Any, limits: HttpLimits | None = None, **more: Any) -> Any:
    book = Book({"participants": {"x": entry}}, limits=limits)
    participant = book.participant("x")
    assert participant is not None
    try:
        return await participant.ask(request(**more))
    finally:
        await book.close()


def test_every_kind_of_no_answer_is_recorded_with_its_code_and_does_not_hold_up_the_good_one() -> (
    None
):
    behaviours = {name: behaviour for name, (behaviour, _) in NO_ANSWERS.items()}
    with party(good=says({"price": 7}), **behaviours) as server:
        names = [*NO_ANSWERS, "good"]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result, dispatches = run(asked(server.book(), solicit(names, "best_of", "PT10M")))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.status == "completed"
    assert result.result == {"price": 7}
    for name, (_, code) in NO_ANSWERS.items():
        record = dispatches[name].record
        assert (record.status, dispatches[name].outcome) == ("responded", "negative"), name
        if code:
            assert record.response["error"]["code"] == code, (name, record.response)
    assert dispatches["good"].selected
    assert dispatches["http_500"].record.response["reply"] == {"why": "tired"}
    assert "reply" not in dispatches["deep_500"].record.response
    assert grown < 150 * 1024, "KiB: a large reply is not read to its end"


def test_one_who_cannot_be_reached_leaves_the_count_and_is_recorded_as_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    with party(one=says({"price": 1}), two=says({"price": 2})) as server:
        book = server.book() | {
            "refused": {"url": f"http://127.0.0.1:{closed_port()}/"},
            "nowhere": {"url": "http://nobody.invalid/"},
            "odd_name": {"url": f"http://{'x' * 70}.invalid/"},
            "tls_to_plain": {"url": server.url("one").replace("http:", "https:")},
        }
        names = [*book, "stranger"]
        result, dispatches = run(asked(book, solicit(names, "all", "PT10S")))
    assert result.status == "completed"
    assert result.result == {"responses": [{"price": 1}, {"price": 2}]}
    for name in names[2:]:
        found = dispatches[name]
        assert (found.record.status, found.outcome) == ("cancelled", "unreachable"), name


@pytest.mark.parametrize(
    "behaviour",
    [
        never,
        sends(HEAD + b"Content-Length: 10\r\n\r\n", end=False),
        sends(HEAD + b"Content-Length: 100\r\n\r\n", *[b" "] * 100, pause=1.0),
        sends(b"HTTP/1.1 100 Continue\r\n\r\n", end=False),
        sends(b"HTT", end=False),
    ],
    ids=["never", "hangs after the headers", "drips", "says to go on", "begins a word"],
)
def test_the_timeout_ends_whoever_does_not_come_to_an_end(behaviour: Behaviour) -> None:
    with party(slow=behaviour, good=says({"price": 3})) as server:
        definition = solicit(["slow", "good"], "best_of", "PT2S")
        result, dispatches = run(asked(server.book(), definition))
        assert server.wait(server.all_closed)
    assert result.result == {"price": 3}
    assert dispatches["slow"].record.status == "timeout"
    assert dispatches["slow"].record.responded_at is None


def test_without_a_timeout_of_the_step_the_setting_bounds_the_exchange() -> None:
    with party(slow=never) as server:
        limits = HttpLimits(total_seconds=0.2)
        with pytest.raises(BadReply) as caught:
            run(ask({"url": server.url("slow")}, limits))
    assert caught.value.code == "no_answer_in_time"


def test_a_step_may_wait_longer_than_the_setting() -> None:
    with party(slow=sends(b"", b"", reply('{"price": 1}'), pause=0.2)) as server:
        limits = HttpLimits(total_seconds=0.1)
        place = {"url": server.url("slow")}
        assert run(ask(place, limits, timeout_seconds=HANG_SECONDS)) == {"price": 1}


def test_a_second_answer_is_nobodys_answer() -> None:
    """Neither to the request it follows nor to the next one of the same place."""
    first, second = reply('{"price": 1}'), reply('{"price": 0}')
    with party(
        at_once=sends(first + second, end=False), later=sends(first, second, pause=0.05, end=False)
    ) as server:

        async def all_of_them() -> list[Any]:
            book = Book({"participants": server.book()})
            try:
                found = []
                for name in ("at_once", "later", "later", "at_once"):
                    participant = book.participant(name)
                    assert participant is not None
                    found.append(await participant.ask(request()))
                    await asyncio.to_thread(server.wait, server.all_closed)
                return found
            finally:
                await book.close()

        assert run(all_of_them()) == [{"price": 1}] * 4


def test_cookies_and_credentials_of_one_are_not_shown_to_another() -> None:
    with party(one=sends(reply("1", Set_Cookie="sid=abc; Path=/")), two=says(2)) as server:
        book = server.book()
        book["one"]["headers"] = {"Authorization": "Bearer for-one-only"}
        run(asked(book, solicit(["one", "two"], "all")))
        run(asked(book, solicit(["one", "two"], "all")))
        assert all("cookie" not in visit.headers for visit in server.visits)
        assert all("authorization" not in visit.headers for visit in server.seen("two"))
        assert server.seen("one")[0].headers["authorization"] == "Bearer for-one-only"


def test_a_want_of_our_own_is_not_held_against_the_participant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(*_: Any, **__: Any) -> socket.socket:
        raise OSError(24, "Too many open files")

    with party(there=says(1)) as server:
        monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", none_left)
        with pytest.raises(CannotAsk) as caught:
            run(ask({"url": server.url("there")}))
        result, dispatches = run(asked(server.book(), solicit(["there"], "all")))
    assert "Too many open files" in caught.value.message
    assert dispatches["there"].outcome != "unreachable"
    assert result.status == "failed"


def test_a_name_that_takes_for_ever_to_find_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    released, found = threading.Event(), threading.Event()

    def search(*_: Any, **__: Any) -> None:
        released.wait(HANG_SECONDS)
        found.set()

    monkeypatch.setattr(socket, "getaddrinfo", search)
    try:
        with pytest.raises(Unreachable):
            run(ask({"url": "http://slow.invalid/"}, HttpLimits(connect_seconds=0.1)))
        assert not found.is_set(), "nobody waited for it"
    finally:
        released.set()


def test_an_answer_of_large_whole_numbers_is_recorded_as_it_is() -> None:
    with party(rich=says({"price": 10**30})) as server:
        result, _ = run(asked(server.book(), solicit(["rich"], "best_of")))
    assert json.loads(json.dumps(result.result)) == {"price": 10**30}
