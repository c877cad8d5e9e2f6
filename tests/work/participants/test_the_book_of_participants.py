"""The book: every mistake at its line, secrets from the environment, functions as participants."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.work.participants.book import Book, BookError, read_book
from anabranch.work.participants.functions import THREADS_EACH
from anabranch.work.participants.limits import HttpLimits
from anabranch.work.participants.port import BadReply, ParticipantRequest, Unreachable
from hangs import HANG_SECONDS

from ..support import run

WRONG = """participants:
  one: {url: "ftp://one.example/"}
  two: {}
  three: {url: "http://three.example/", function: "a:b"}
  four: {ulr: "http://four.example/"}
  five:
    url: "http://five.example/"
    headers:
      Authorization: "Bearer ${NO_SUCH_TOKEN}"
      Content-Type: text/plain
      "bad name": x
    price: cheap
    service_types: text/summarise
  six: {function: "no_such_module_here:f"}
  seven: {function: "json:nothing_of_the_kind"}
  eight: {function: json}
  nine: http://nine.example/
  ten: {url: "http://[/"}
  eleven: {url: "http://"}
  twelve: {url: "http://u:p@twelve.example/", headers: {authorization: x}}
capabilities:
  check: {url: "http://check.example/${}"}
directory: {issuer: [], sync_seconds: 0}
particpants: {}
"""


def request(**more: Any) -> ParticipantRequest:
    return ParticipantRequest(
        participant="x", dispatch_id="dispatch:1", run_id="r", step_id="s", service_type="t",
        input={"n": 1}, **more,
    )  # fmt: skip


async def ask(entry: Any, limits: HttpLimits | None = None) -> Any:
    book = Book({"participants": {"x": entry}}, limits=limits)
    participant = book.participant("x")
    assert participant is not None
    try:
        return await participant.ask(request())
    finally:
        await book.close()


def test_every_mistake_in_a_file_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "book.yaml"
    file.write_text(WRONG)
    with pytest.raises(BookError) as caught:
        read_book(file, environment={})
    lines = caught.value.message.splitlines()
    told = {
        (int(place.split(":")[1]), what)
        for place, _, what in (line.removeprefix(str(file)).partition(": ") for line in lines)
    }
    for line, words in (
        (2, "must start with http:// or https://"),
        (3, "needs either a `url` or a `function`"),
        (4, "needs either a `url` or a `function`"),
        (5, "no key 'ulr'; did you mean 'url'?"),
        (9, "needs the environment variable NO_SUCH_TOKEN, which is not set"),
        (10, "Content-Type is set by the engine"),
        (11, "'bad name' is not the name of a header"),
        (12, "`price` is a number"),
        (13, "`service_types` is a list of names"),
        (14, "No module named"),
        (15, "has no attribute"),
        (16, "write `function` as module:function"),
        (17, "must be a mapping, not str"),
        (18, "is not a valid address"),
        (19, "names no host"),
        (20, "keep one of them"),
        (22, "write a variable of the environment as ${NAME}"),
        (23, "did you mean 'issuers'?"),
        (23, "above 0"),
        (23, "needs `passports`"),
        (24, "did you mean 'participants'?"),
    ):
        assert any(at == line and words in what for at, what in told), (line, words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("participants: [", "1:"),
        ("a: 1\na: 2", "2:1"),
        ("- x", "a book of participants is a mapping"),
        ("", "empty"),
        ("\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "book.yaml"),
    ],
)
def test_a_file_that_is_no_book_says_so(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "book.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_book(file)
    assert words in caught.value.message


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_book(tmp_path / "no.yaml")
    assert caught.value.code == "no_file"


def test_paths_are_relative_to_the_file_and_urls_are_not(tmp_path: Path) -> None:
    file = tmp_path / "book.yaml"
    file.write_text("directory: {passports: p.json, revocations: 'https://x.example/r'}")
    directory = read_book(file).directory
    assert directory["passports"] == str(tmp_path / "p.json")
    assert directory["revocations"] == "https://x.example/r"


# -- functions -------------------------------------------------------------------------------


class Object:
    async def __call__(self, request: Any) -> Any:
        return request["input"]


def raises(error: BaseException) -> Any:
    def answer(_request: Any) -> Any:
        raise error

    return answer


async def cancels_itself(_request: Any) -> Any:
    raise asyncio.CancelledError


def test_a_function_an_async_function_and_an_object_can_answer() -> None:
    async def later(request: Any) -> Any:
        return request["input"]

    for entry in (lambda r: r["input"], later, Object(), {"function": later}):
        assert run(ask(entry)) == {"n": 1}


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (raises(ValueError("no")), "raised"),
        (raises(SystemExit(3)), "raised"),
        (raises(StopIteration()), "raised"),
        (cancels_itself, "raised"),
        (lambda: 1, "raised"),
        (lambda _r: {1, 2}, "not_json"),
        (lambda _r: float("nan"), "not_json"),
        (lambda _r: "x" * 2000, "reply_too_large"),
        (lambda _r: {"dispatch_id": "dispatch:2"}, "wrong_dispatch"),
    ],
)  # fmt: skip
def test_whatever_a_function_does_wrong_is_an_answer_that_cannot_be_used(
    entry: Any, code: str
) -> None:
    with pytest.raises(BadReply) as caught:
        run(ask(entry, HttpLimits(reply_bytes=1000)))
    assert caught.value.code == code


def test_a_function_that_raises_a_connection_error_is_not_there() -> None:
    with pytest.raises(Unreachable):
        run(ask(raises(ConnectionRefusedError("nobody"))))


def test_a_function_that_never_returns_holds_up_only_itself() -> None:
    stop, begun = threading.Event(), []

    def stuck(_request: Any) -> Any:
        begun.append(time.monotonic())
        stop.wait(HANG_SECONDS)
        return "free"

    async def all_of_it() -> Any:
        book = Book({"participants": {"stuck": stuck, "well": lambda _r: "well"}})
        first, second = book.participant("stuck"), book.participant("well")
        assert first is not None
        assert second is not None
        asking = [asyncio.create_task(first.ask(request())) for _ in range(20)]
        while len(begun) < THREADS_EACH:
            await asyncio.sleep(0.01)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        answers = [await second.ask(request()) for _ in range(10)]
        waiting = asyncio.create_task(first.ask(request()))
        await asyncio.sleep(0.05)
        held = not waiting.done()
        stop.set()
        freed = await waiting
        await book.close()
        return answers, held, freed

    answers, held, freed = run(all_of_it())
    assert answers == ["well"] * 10
    assert held, "all its threads were still stuck"
    assert freed == "free"
    assert len(begun) == THREADS_EACH + 1, "what was cancelled before it began never began"


def test_a_book_can_serve_one_engine_after_another() -> None:
    book = Book({"participants": {"x": lambda _r: 1}})
    participant = book.participant("x")
    assert participant is not None
    for _ in range(2):

        async def once() -> Any:
            try:
                return await participant.ask(request())
            finally:
                await book.close()

        assert run(once()) == 1


def test_the_client_is_loaded_with_the_first_url_and_not_before() -> None:
    """It takes a fifth of a second, which every command would pay."""
    code = (
        "import sys, anabranch.surfaces.cli.main;"
        "from anabranch.work.participants.book import Book;"
        "Book({'participants': {'x': len}}); assert 'aiohttp' not in sys.modules;"
        "Book({'participants': {'x': {'url': 'http://x.example'}}});"
        "assert 'aiohttp' in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert done.returncode == 0, done.stderr


def test_a_book_that_becomes_another_lets_those_who_are_asked_answer() -> None:
    async def go() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def slow(_request: Any) -> int:
            asked.set()
            await go_on.wait()
            return 1

        book = Book({"participants": {"x": slow, "gone": slow}})
        before = book.participant("x")
        assert before is not None
        waiting = asyncio.ensure_future(before.ask(request()))
        await asked.wait()
        book.become(Book({"participants": {"x": lambda _request: 2}}, sharing=book))
        assert (book.names, book.participant("gone")) == (["x"], None)
        after = book.participant("x")
        assert after is not None
        assert await after.ask(request()) == 2
        go_on.set()
        assert await waiting == 1
        await book.close()

    run(go())
