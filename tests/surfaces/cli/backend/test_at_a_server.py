"""Every verb says the same and ends the same, at a store of this machine and at a server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from anabranch.surfaces.http.serve import Server

from ..alike import differences, plain
from ..server_in_thread import served
from ..support import ADMIT, GATE, HEAD, HELLO, Here

BAD = f"""{HEAD}metadata: {{name: bad}}
workflow:
  - step: one
    tool: {{kind: nop}}
    next: {{arcs: [{{step: twoo}}]}}
"""
WARNS = f"""{HEAD}metadata: {{name: warns}}
workflow:
  - {{step: only, tool: {{kind: shell, cmds: 'true'}}}}
"""
FAILS = f"""{HEAD}metadata: {{name: fails}}
workflow:
  - {{step: bad, tool: {{kind: shell, command: exit 3}}}}
"""
LOOP = f"""{HEAD}metadata: {{name: loop}}
workflow:
  - step: each
    loop: {{in: [1, 2, 3], iterator: n}}
    tool: {{kind: python, args: {{n: "{{{{ iter.n }}}}"}}, code: "result = 6 // (n - 2)"}}
    spec: {{policy: {{failure: {{mode: best_effort}}}}}}
"""
SCRIPT = """
check hello.yaml
check bad.yaml
check bad.yaml hello.yaml none.yaml
check bad.yaml --json
run hello.yaml --run-id h1 --input who=ann --label team=a
run hello.yaml --run-id h1
run hello.yaml --run-id h2 --json
run hello.yaml --run-id last
run hello.yaml --start nowhere
run bad.yaml
run bad.yaml --json
run none.yaml
run warns.yaml --run-id w1
run gate.yaml --run-id g1
run gate.yaml --run-id g2
run fails.yaml --run-id f1
run admit.yaml --run-id a1
run loop.yaml --run-id l1
runs
runs --json
runs --status completed --limit 1
runs --label team=a
runs --name nobody
runs --limit 0
show h1
show h1 --json
show f1
show g1
show h
show nobody
show l1 --items each
show l1 --items each --state failed --json
show l1 --items nowhere
show h1 --state failed
events h1
events h1 --json
events h1 --after 4
events f1 --follow
events nobody
events h1 --tasks
events h1 --tasks --json
get anabranch:run:h1/step/greet
get anabranch:run:h1/step/greet --json
get run:h1/step/greet
get anabranch:run:h1/step/nowhere
get anabranch:run:l1/loop/l1
get anabranch:run:l1/loop/l1 --offset 1 --limit 1 --json
get anabranch:run:l1/loop/l9
get anabranch:run:nobody/step/greet
get somewhere
graph h1
graph f1 --format dot
graph hello.yaml
graph nobody
explain h1
redrive f1
redrive f1 --json
redrive nobody
resume h1
session show h1
session alive h1
session receipts nobody
session alive nobody
session executed nobody:1
""".strip().splitlines()

#: These find an engine at work at either place.
BESIDE_AN_ENGINE = """
explain g1
explain g1 --json
decide g1 ask --fulfil --actor eve
decide g1 nowhere --fulfil
decide g1 ask --fulfil --reason seen --actor ann --json
events g1 --follow
show g1
decide g1 ask --fulfil
pause g2 --reason tea
pause g2
cancel g2 --reason enough --json
cancel g2
cancel nobody
patch a1 go=1 --json
events a1 --follow
patch h1 go=1
show a1
loop h1 greet --window 2
loop h1 greet --stop
show a1
""".strip().splitlines()


@pytest.fixture
def target(here: Here) -> Here:
    for name, text in (
        ("hello", HELLO), ("gate", GATE), ("admit", ADMIT), ("bad", BAD), ("warns", WARNS),
        ("fails", FAILS), ("loop", LOOP),
    ):  # fmt: skip
        here.write(f"{name}.yaml", text)
    return here


def test_a_whole_day_at_the_terminal_reads_the_same_at_a_server(
    target: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = [plain(target.run(*line.split())) for line in SCRIPT]
    with served(target.store):
        here += [plain(target.run(*line.split())) for line in BESIDE_AN_ENGINE]
    with served(target.folder / "served.db") as made:
        monkeypatch.setenv("ANABRANCH_SERVER", made.url)
        there = [plain(target.run(*line.split())) for line in SCRIPT + BESIDE_AN_ENGINE]
    differ = differences(SCRIPT + BESIDE_AN_ENGINE, here, there)
    assert not differ, differ


# -- what only a server has ------------------------------------------------------------------


@pytest.fixture
def guarded(target: Here, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that asks for tokens."""
    with served(target.folder / "served.db", require_tokens="yes") as made:
        monkeypatch.setenv("ANABRANCH_SERVER", made.url)
        yield made


def token(server: Server, *scopes: str, name: str = "ann") -> str:
    return server.access.create(name, scopes)[1]


def test_the_token_comes_from_the_environment_or_from_a_file(
    target: Here, guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = target.run("runs")
    assert (done.code, done.out) == (2, "")
    assert "requires a token: set ANABRANCH_TOKEN or --token-file; the first token" in done.err
    assert "`anabranch token create --scope admin --name YOU --store FILE`" in done.err
    monkeypatch.setenv("ANABRANCH_TOKEN", "anb_wrong")
    assert target.run("runs", "--json").json["problem"]["code"] == "token_wrong"
    target.write("secret", token(guarded, "read") + "\n")
    assert target.ok("runs", "--token-file", "secret").out == "no runs\n"
    assert target.run("runs", "--token-file", "nowhere").code == 2
    monkeypatch.setenv("ANABRANCH_TOKEN", token(guarded, "operate"))
    assert target.ok("run", "hello.yaml").code == 0


def test_a_token_speaks_for_its_own_name_only(
    target: Here, guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_TOKEN", token(guarded, "operate", "decide", name="bob"))
    assert target.run("run", "gate.yaml", "--run-id", "g1").code == 4
    done = target.run("decide", "g1", "ask", "--fulfil", "--actor", "ann")
    assert done.code == 2
    assert "speaks for 'bob', not for 'ann'" in done.err
    monkeypatch.setenv("ANABRANCH_TOKEN", token(guarded, "decide", name="eve"))
    done = target.run("decide", "g1", "ask", "--fulfil")
    assert "not by eve; a token of one of these names can" in done.err
    assert "--actor" not in done.err
    monkeypatch.setenv("ANABRANCH_TOKEN", token(guarded, "operate", "decide", name="bob"))
    assert target.ok("decide", "g1", "ask", "--fulfil").code == 0
    target.ok("events", "g1", "--follow")
    records = [json.loads(line) for line in target.ok("events", "g1", "--json").out.splitlines()]
    (decided,) = [one["fields"] for one in records if one["kind"] == "gate.decided"]
    assert decided["actor"] == "bob"


def test_tokens_are_made_listed_and_revoked_at_a_store_and_at_a_server(
    target: Here, guarded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ("--store", target.folder / "served.db")
    made = target.ok("token", "create", "--scope", "admin", "--name", "root", *own)
    monkeypatch.setenv("ANABRANCH_TOKEN", made.out.strip())
    assert "root (admin)" in made.err
    second = target.ok("token", "create", "--scope", "read", "--days", 1, "--json").json
    assert (second["name"], second["scopes"]) == ("ann", ["read"])
    assert target.ok("token", "list").out == target.ok("token", "list", *own).out
    assert second["token"] not in target.ok("token", "list", "--json").out
    assert target.ok("token", "revoke", second["id"]).out == f"revoked: {second['id']} of ann\n"
    assert target.run("token", "revoke", "nobody").code == 2
    states = [one["state"] for one in target.ok("token", "list", "--json", *own).json]
    assert states == ["active", "revoked"]


def test_a_server_that_is_not_there_is_named_and_nothing_is_done(
    target: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_SERVER", "http://127.0.0.1:9")
    done = target.run("run", "hello.yaml")
    assert (done.code, done.out) == (1, "")
    assert "http://127.0.0.1:9 cannot be reached" in done.err
    assert "start it with `anabranch serve`, or unset ANABRANCH_SERVER" in done.err
    assert not target.store.exists()


def test_an_address_that_is_nearly_right_is_taken_or_told(target: Here) -> None:
    with served(target.folder / "served.db") as server:
        assert target.ok("runs", "--server", f"{server.url}/api/v1/").out == "no runs\n"
        done = target.run("runs", "--server", server.url.replace("http:", "https:"))
    assert done.code == 1
    assert "it does not speak https" in done.err
    assert "Operation not permitted" not in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "--server", "ftp://a"),
        ("runs", "--server", "http://"),
        ("runs", "--server", "http://a:b"),
        ("runs", "--server", "http://me:secret@a"),
        ("runs", "--server", "127.0.0.1:1", "--store", "a.db"),
    ],
)
def test_what_makes_no_sense_with_a_server_is_bad_usage(
    target: Here, words: tuple[str, ...]
) -> None:
    done = target.run(*words)
    assert (done.code, done.out) == (2, "")
    assert "secret" not in done.err


def test_a_store_that_is_named_goes_before_the_server_of_the_environment(
    target: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.ok("run", "hello.yaml")
    monkeypatch.setenv("ANABRANCH_SERVER", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9 cannot be reached" in target.run("purge").err
    assert "0 runs" in target.ok("purge", "--store", target.store).out
    assert "hello" in target.ok("runs", "--store", target.store).out
    refused = target.run("serve")
    assert refused.code == 2
    assert "--store" in refused.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("simulate", "hello.yaml"), "in virtual time"),
        (("demo",), "brings everything"),
        (("passport", "new", "key"), "a secret key stays there"),
        (("serve",), "a server of its own"),
        (("dev",), "a server of its own"),
        (("resume", "r1", "--rpc", "http://127.0.0.1:1"), "its own node"),
        (("run", "hello.yaml", "--participants", "book.json"), "start that with --participants"),
        (("check", "hello.yaml", "--tools", "mine"), "leave --tools to the server"),
    ],
)
def test_what_stays_on_this_machine_says_why_and_what_to_do(
    target: Here, words: tuple[str, ...], why: str
) -> None:
    done = target.run(*words, "--server", "http://127.0.0.1:9")
    assert (done.code, done.out) == (2, "")
    assert why in done.err
    assert sorted(path.suffix for path in target.folder.iterdir()) == [".yaml"] * 7


def test_whatever_else_answers_there_is_no_server_of_ours(target: Here) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello")

        def log_message(self, *_words: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            done = target.run("runs", "--server", f"127.0.0.1:{other.server_port}")
        finally:
            other.shutdown()
            thread.join()
    assert done.code == 1
    assert "not as an Anabranch server does" in done.err


def test_verbs_at_a_store_load_nothing_of_the_web() -> None:
    """A person waits for every module that is imported."""
    code = "import sys, anabranch.surfaces.cli.main; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
