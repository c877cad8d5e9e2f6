"""`webhook`: made, looked at, changed and sent again, at a store and at a server alike."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from anabranch.store.access_ports import AuditFilter
from anabranch.store.sqlite.store import SqliteStore

from ..alike import differences, plain
from ..server_in_thread import served
from ..support import HELLO, Here, until

KINDS = ("--kind", "run.finished", "--kind", "gate.*")


class Inbox:
    """A receiver that answers as it is told."""

    def __init__(self) -> None:
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                inbox.came.append(self.headers["Anabranch-Delivery"])
                self.send_response(inbox.status)
                self.end_headers()

            def log_message(self, *_words: object) -> None:
                pass

        self.came: list[str] = []
        self.status = 200
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/in"


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


@pytest.fixture
def target(here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    here.write("hello.yaml", HELLO)
    monkeypatch.setenv("ANABRANCH_WEBHOOK_ADDRESSES", "any")
    return here


def audit(target: Here, store: str = "anabranch.db") -> list[tuple[str, str, str]]:
    kept = SqliteStore(target.folder / store, read_only=True)
    try:
        lines = kept.audit(AuditFilter(limit=100))
    finally:
        kept.close()
    told = [(line.actor, line.action, line.outcome) for line in reversed(lines)]
    return [line for line in told if line[1].startswith("webhooks.")]


def whole_life(target: Here, inbox: Inbox, *at: str) -> tuple[list[str], list[Any]]:
    """Everything the verb can do, as somebody would do it; with what was printed."""
    lines, told = [], []

    def say(*words: str) -> Any:
        done = target.run("webhook", *words)
        lines.append(" ".join(words))
        told.append(plain(done))
        return done

    say("list")
    made = say("create", inbox.url, *KINDS, "--label", "tenant=a", "--actor", "eve", "--json")
    hook = made.json["id"]
    assert made.json["secret"]
    say("create", "https://example.org/in", "--kind", "*", "--name", "x", "--dialect", "noetl")
    paused = say("create", inbox.url, "--kind", "run.started", "--paused", "--from-beginning")
    other = paused.out.split()[1]
    say("create", inbox.url, "--kind", "run.finnished")
    say("create", "nowhere", *KINDS)
    say("create", inbox.url, *KINDS, "--secret-env", "NO_SUCH_VARIABLE", "--json")
    say("show", hook)
    say("show", hook, "--json")
    say("show", "nobody")
    say("change", hook, "--label", "", "--name", "hello", "--actor", "eve")
    say("change", hook, "--name", "", "--dialect", "noetl", "--url", inbox.url, "--json")
    say("change", hook)
    say("change", "nobody", "--name", "x")
    say("pause", hook)
    say("resume", hook, "--json")
    say("rotate", hook)
    say("deliveries", hook)
    say("deliveries", hook, "--json", "--state", "dead", "--run", "r", "--limit", "0")
    say("deliveries", "nobody")
    say("delivery", hook, f"{hook}:r1:1")
    say("redeliver", hook)
    say("redeliver", hook, "--json")
    say("redeliver", hook, f"{hook}:r1:1")
    say("delete", other)
    say("delete", other)
    say("delete", hook, "--json")
    return lines, told


def test_every_action_reads_the_same_at_a_store_and_at_a_server_and_is_written_down(
    target: Here, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.ok("run", "hello.yaml")
    lines, here = whole_life(target, inbox)
    with served(target.folder / "served.db", webhook_addresses="any") as made:
        monkeypatch.setenv("ANABRANCH_SERVER", made.url)
        target.ok("run", "hello.yaml")
        _, there = whole_life(target, inbox)
    differ = differences(["…"] * len(lines), here, there)
    assert not differ, differ
    written = audit(target)
    assert written == audit(target, "served.db")  # refusals, too
    assert written[:5] == [
        ("eve", "webhooks.create", "done"),
        ("ann", "webhooks.create", "done"),
        ("ann", "webhooks.create", "done"),
        ("ann", "webhooks.create", "refused: webhook_kinds"),
        ("ann", "webhooks.create", "refused: webhook_url"),
    ]
    assert ("eve", "webhooks.change", "done") in written
    assert {action for _, action, _ in written} == {
        *("webhooks.create", "webhooks.change", "webhooks.rotate", "webhooks.delete"),
        *("webhooks.redeliver", "webhooks.deliveries.redeliver"),
    }


def test_the_secret_is_shown_this_once(target: Here, inbox: Inbox) -> None:
    made = target.ok("webhook", "create", inbox.url, *KINDS)
    first, second = made.out.splitlines()
    hook, secret = first.split()[1], second.split()[1]
    assert (first.split()[0], second.split()[0]) == ("webhook", "secret")
    for words in (("list",), ("list", "--json"), ("show", hook), ("show", hook, "--json")):
        assert secret not in target.ok("webhook", *words).out
    rotated = target.ok("webhook", "rotate", hook, "--json").json["secret"]
    assert rotated.startswith("whs_")
    assert rotated != secret


@pytest.mark.parametrize("remote", [False, True], ids=["store", "server"])
def test_what_was_given_up_is_listed_and_sent_again_beside_a_server(
    target: Here, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    inbox.status = 500
    with served(target.store, webhook_addresses="any", webhook_age_hours=0.0) as made:
        if remote:
            monkeypatch.setenv("ANABRANCH_SERVER", made.url)
        hook = target.ok("webhook", "create", inbox.url, *KINDS, "--json").json["id"]
        target.ok("run", "hello.yaml", "--server", made.url, "--run-id", "h1")
        listed = ("webhook", "deliveries", hook)
        until(lambda: target.ok(*listed, "--state", "dead", "--json").json)
        (dead,) = target.ok(*listed, "--json").json
        row = target.ok(*listed, "--run", "h1").out.splitlines()[1]
        assert row.split()[:4] == [dead["id"], "run.finished", "dead", "1"]
        assert row.endswith("answered 500")
        shown = target.ok("webhook", "delivery", hook, dead["id"])
        assert '"run": "h1"' in shown.out
        assert (
            target.ok("webhook", "delivery", hook, dead["id"], "--json").json["body"]["run"] == "h1"
        )
        inbox.status = 200
        again = target.ok("webhook", "redeliver", hook)
        assert again.out == "go out again: 1\n"
        until(lambda: target.ok(*listed, "--state", "done", "--json").json)
        one = target.ok("webhook", "redeliver", hook, dead["id"])
        assert one.out == f"goes out again: {dead['id']}\n"
        until(lambda: len(inbox.came) == 3)
        assert set(inbox.came) == {dead["id"]}


def test_looking_makes_no_store_and_making_one_does(target: Here, inbox: Inbox) -> None:
    for words in (("list",), ("show", "x"), ("pause", "x"), ("delete", "x"), ("deliveries", "x")):
        done = target.run("webhook", *words)
        assert (done.code, "there is no store" in done.err) == (2, True)
    assert not target.store.exists()
    target.ok("webhook", "create", inbox.url, *KINDS)
    assert target.store.exists()
