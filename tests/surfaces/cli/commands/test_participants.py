"""Participants at the command line: the book, its secrets, its functions, and who is still out."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from work.participants.loopback_participants import (
    Party,
    Visit,
    closed_port,
    never,
    reply,
    says,
    solicit,
)

from ..server_in_thread import served
from ..support import Here, Terminal, beginning

CANARY = "canary-7c1f/+9 é?&x"
HERE = {"PYTHONSAFEPATH": "1", "PYTHONPATH": ""}


async def echo(writer: Any, visit: Visit) -> None:
    """Says back whatever it was told."""
    said = {"price": 1, "headers": dict(visit.headers), "url": CANARY}
    writer.write(reply(json.dumps(said)))


async def echo_in_an_error(writer: Any, visit: Visit) -> None:
    writer.write(reply(json.dumps(dict(visit.headers)), status=f"500 {CANARY[:14]}"))


async def echo_garbage(writer: Any, visit: Visit) -> None:
    writer.write(f"HTTP/1.1 {visit.headers['authorization']}\r\n\r\n".encode("latin-1"))


@pytest.fixture
def server() -> Iterator[Party]:
    behaviours = {
        "echo": echo, "error": echo_in_an_error, "garbage": echo_garbage, "mute": never,
        "good": says({"price": 2}),
    }  # fmt: skip
    with Party(behaviours) as running:
        yield running


def secretive(server: Party, *names: str) -> str:
    """A book in which everybody is told the secret, in a header and in the URL."""
    people = {
        name: {
            "url": server.url(name) + "?key=${TOKEN_QUERY}",
            "headers": {"Authorization": "Bearer ${TOKEN}", "X-Plain": "plain"},
        }
        for name in names
    }
    people["away"] = {"url": f"http://u:${{TOKEN_QUERY}}@127.0.0.1:{closed_port()}/"}
    return json.dumps({"participants": people})


def test_a_secret_of_the_book_reaches_the_participant_and_nothing_that_is_kept_or_shown(
    terminal: Terminal, here: Here, server: Party
) -> None:
    names = ("echo", "error", "garbage", "good")
    terminal.write("book.json", secretive(server, *names))
    terminal.write("ask.json", solicit([*names, "away"], "best_of", "PT10S"))
    secret = base64.urlsafe_b64encode(CANARY.encode()).decode()
    env = {"TOKEN": secret, "TOKEN_QUERY": "query-" + secret}
    shown = []
    for words in (
        ("run", "ask.json", "--participants", "book.json", "--json"),
        ("show", "last"),
        ("show", "last", "--json"),
        ("events", "last", "--json"),
        ("dispatches", "last"),
        ("dispatches", "last", "--json"),
        ("snapshot", "last"),
        ("explain", "last"),
    ):
        person = terminal if words[0] == "run" else here
        done = person.run(*words, env=env)
        assert done.code == 0, (words, done)
        shown.append(done.out + done.err)
    assert server.seen("echo")[0].headers["authorization"] == f"Bearer {secret}"
    kept = b"".join(file.read_bytes() for file in terminal.folder.glob("anabranch.db*"))
    for form in (secret, base64.b64encode(secret.encode()).decode()[4:-4]):
        assert form.encode() not in kept
        assert all(form not in text for text in shown)
    assert b"***" in kept, "it was echoed, and starred out"
    assert '"x-plain": "plain"' in shown[5] or '"x-plain":"plain"' in shown[5]


def test_a_secret_that_is_not_set_is_named_before_anything_happens(
    here: Here, server: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("book.json", secretive(server, "good"))
    here.write("ask.json", solicit(["good"]))
    monkeypatch.setenv("TOKEN", "abcdef")
    done = here.run("run", "ask.json", "--participants", "book.json")
    assert done.code == 2
    assert "book.json:1:" in done.err
    assert "TOKEN_QUERY, which is not set" in done.err
    assert "abcdef" not in done.err
    assert server.visits == []


def test_functions_are_found_beside_the_definition(terminal: Terminal) -> None:
    terminal.write("helpers.py", "def answer(request):\n    return {'price': 4}\n")
    terminal.write("book.yaml", "participants: {one: {function: 'helpers:answer'}}")
    terminal.write("ask.json", solicit(["one"]))
    done = terminal.run(
        "run", "ask.json", "--json", env={**HERE, "ANABRANCH_PARTICIPANTS": "book.yaml"}
    )
    assert done.code == 0, done
    assert done.json["result"] == {"price": 4}


def test_explain_says_in_another_terminal_who_is_still_out(
    terminal: Terminal, here: Here, server: Party
) -> None:
    people = {name: {"url": server.url(name)} for name in ("mute", "good", "error")}
    terminal.write("book.json", json.dumps({"participants": people}))
    terminal.write("ask.json", solicit([*people], "best_of", "PT60S"))
    with beginning(terminal, "run", "ask.json", "--participants", "book.json") as process:
        told = ""
        while "1 of 3 in" not in told or "1 lost" not in told:
            assert process.poll() is None, process.end()
            told = here.run("explain", "last").out
        assert "(good)" in told
        assert "(error: negative: http_500)" in told
        assert "1 open (mute)" in told
        assert "waits for the answer of mute (attempt 1), for " in told
        process.kill()
        process.wait()
        assert server.wait(server.all_closed), "no connection outlives the engine"
    with beginning(terminal, "resume", "last", "--participants", "book.json") as process:
        assert server.wait(lambda: len(server.seen("mute")) == 2, 30), process.poll()
        process.kill()
        process.wait()
    first, again = (visit.headers["idempotency-key"] for visit in server.seen("mute"))
    assert first == again, "lost with the engine, and sent again as the same request"
    assert len(server.seen("good")) == 1, "who has answered is not asked again"


def test_functions_are_found_beside_the_book_from_anywhere(terminal: Terminal) -> None:
    (terminal.folder / "apart").mkdir()
    terminal.write("apart/apart_helpers.py", "def answer(request):\n    return {'price': 5}\n")
    terminal.write("apart/book.yaml", "participants: {one: {function: 'apart_helpers:answer'}}")
    terminal.write("ask.json", solicit(["one"]))
    done = terminal.run("run", "ask.json", "--participants", "apart/book.yaml", "--json", env=HERE)
    assert (done.code, done.json["result"]) == (0, {"price": 5}), done


def test_a_server_knows_who_holds_a_passport_for_it(here: Here, server: Party) -> None:
    made = here.run("passport", "new", "issuer.key", "--json").json
    issued = here.run("passport", "issue", "issuer.key", made["node"], "offer-catalog")
    here.write("passports.json", json.dumps({"passports": [json.loads(issued.out)]}))
    directory = {"passports": "passports.json", "issuers": [made["participant"]]}
    people = {made["participant"]: {"url": server.url("good")}}
    book = here.write("book.json", json.dumps({"participants": people, "directory": directory}))
    target = {"resolve": "capability", "capability_id": "offer-catalog"}
    here.write("ask.json", solicit([], "best_of", target=target))
    with served(here.folder / "served.db", participants=str(book)) as serving:
        done = here.run("run", "ask.json", "--server", serving.url, "--json")
    assert (done.code, done.json["result"]) == (0, {"price": 2}), done
