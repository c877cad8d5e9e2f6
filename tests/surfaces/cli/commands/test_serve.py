"""`serve` and `dev` as real processes: they say where they are, stop in order, refuse clearly."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hangs import HANG_SECONDS

from ..support import GATE, HELLO, Here, Process, Terminal, beginning, sleeper, until

TLS = Path(__file__).parent / "tls"


class Serving:
    def __init__(self, process: Process, url: str) -> None:
        self.process = process
        self.url = url

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1{path}", timeout=HANG_SECONDS) as answer:
            return json.load(answer)


@contextmanager
def serving(
    terminal: Terminal, *words: object, verb: str = "serve", **more: Any
) -> Iterator[Serving]:
    """A server on a free port; the block gets it when it listens."""
    flags = ("--port", 0, "--json", "--store", terminal.store)
    with beginning(terminal, verb, *flags, *words, **more) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.end()
        yield Serving(process, json.loads(line)["url"])


def test_serve_says_where_it_is_and_how_to_stop_it(terminal: Terminal) -> None:
    with beginning(terminal, "serve", "--port", 0) as process:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert first.startswith("anabranch serves anabranch.db at http://127.0.0.1:")
        assert second == f"to stop it: Ctrl-C, or kill {process.pid}\n"
        process.interrupt()
        done = process.end()
    assert done.code == 0
    assert "stopping" in done.err


def test_a_server_that_asks_for_tokens_says_how_the_first_one_is_made(
    terminal: Terminal, here: Here
) -> None:
    with beginning(terminal, "serve", "--port", 0, "--tokens-required") as process:
        assert process.stdout is not None
        process.stdout.readline()
        told = process.stdout.readline().split("`")[1]
        assert told == "anabranch token create --scope admin --name YOU --store anabranch.db"
        assert here.ok(*told.split()[1:]).out.startswith("anb_")
        process.interrupt()
        assert process.end().code == 0


def test_who_watches_a_run_whose_server_is_killed_is_told_that_it_goes_on(
    terminal: Terminal, here: Here
) -> None:
    terminal.write("sleeper.yaml", sleeper(1))
    with serving(terminal) as server:
        words = ("run", "sleeper.yaml", "--run-id", "s1", "--watch", "--server", server.url)
        with beginning(terminal, *words) as watching:
            assert watching.stderr is not None
            seen = ""
            while "(s1)" not in seen:  # on the screen, so it was told that the run has begun
                seen += watching.stderr.readline()
            server.process.kill()
            done = watching.end()
    assert done.code == 1
    assert "run s1 goes on when the server is back: anabranch events s1 --follow" in done.err
    assert "cannot be reached" in done.err
    assert here.ok("resume", "--store", terminal.store).out
    assert "completed" in here.ok("show", "s1", "--store", terminal.store).out


def test_a_stop_finishes_what_runs_and_ends_those_who_follow(terminal: Terminal) -> None:
    terminal.write("sleeper.yaml", sleeper(1))
    with serving(terminal) as server:
        at = ("--server", server.url)
        with beginning(terminal, "run", "sleeper.yaml", "--run-id", "s1", *at) as watching:
            until(lambda: (terminal.folder / "pids").exists())
            with beginning(terminal, "events", "s1", "--follow", *at) as following:
                assert following.stdout is not None
                following.stdout.readline()
                server.process.interrupt(signal.SIGTERM)
                assert server.process.end().code == 0
                assert following.end().code in (0, 1)
            assert watching.end().code in (0, 1)
    done = terminal.ok("resume", "s1") if terminal.show("s1")["status"] != "completed" else None
    assert done is None or "completed" in done.out
    assert (terminal.folder / "pids").read_text().count("\n") == 1, (
        "the job was finished, not redone"
    )


def test_a_server_asks_the_participants_that_it_is_started_with(
    terminal: Terminal, here: Here
) -> None:
    terminal.write("served_parties.py", "def answers(request):\n    return {'price': 2}\n")
    entry = {"function": "served_parties:answers", "service_types": ["a/b"]}
    terminal.write("book.json", json.dumps({"participants": {"p1": entry}}))
    plan = {"steps": [{"step_id": "ask", "service_type": "a/b"}]}
    terminal.write("ask.json", json.dumps({"workflow_id": "ask", "plan": plan}))
    with serving(terminal, "--participants", "book.json") as server:
        done = here.ok("run", "ask.json", "--server", server.url, "--json")
        assert done.json["result"] == {"price": 2}
        server.process.interrupt()
        assert server.process.end().code == 0


@pytest.mark.slow
def test_a_hangup_reads_the_book_of_participants_anew(terminal: Terminal) -> None:
    terminal.write("book.json", '{"participants": {"one": {"function": "json:dumps"}}}')
    with serving(terminal, "--participants", "book.json") as server:

        def names() -> list[str]:
            return [one["participant"] for one in server.get("/participants")["items"]]

        assert names() == ["one"]
        terminal.write("book.json", '{"participants": {"two": {"function": "json:dumps"}}}')
        server.process.send_signal(signal.SIGHUP)
        until(lambda: names() == ["two"])
        terminal.write("book.json", "{")
        server.process.send_signal(signal.SIGHUP)
        server.process.interrupt(signal.SIGTERM)
        done = server.process.end()
    assert done.code == 0
    assert "1 participants, read again" in done.err


def test_a_second_signal_stops_it_at_once_and_nothing_is_lost(terminal: Terminal) -> None:
    terminal.write("sleeper.yaml", sleeper(30))
    with serving(terminal) as server:
        at = ("--server", server.url)
        with beginning(terminal, "run", "sleeper.yaml", "--run-id", "s1", *at):
            until(lambda: (terminal.folder / "pids").exists())
            server.process.interrupt()
            assert server.process.stderr is not None
            assert "stopping" in server.process.stderr.readline()
            server.process.interrupt()
            assert server.process.end().code == 130
    assert terminal.show("s1")["status"] == "running"


def test_whoever_stops_watching_does_not_stop_the_run(terminal: Terminal, here: Here) -> None:
    terminal.write("gate.yaml", sleeper(1.5))
    with serving(terminal) as server:
        at = ("--server", server.url)
        with beginning(terminal, "run", "gate.yaml", "--run-id", "s1", *at) as watching:
            until(lambda: (terminal.folder / "pids").exists())
            watching.interrupt()
            done = watching.end()
            assert done.code == 130
            assert "the server goes on with it" in done.err
        assert "run.finished" in here.ok("events", "s1", "--follow", *at).out
        assert terminal.show("s1")["status"] == "completed"


def test_a_port_that_is_taken_is_named_before_the_store_is_touched(here: Here) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = here.run("serve", "--port", port)
    assert done.code == 2
    assert f"port {port} of 127.0.0.1 is in use" in done.err
    assert "--port" in done.err
    assert not here.store.exists()


def test_a_store_that_is_taken_is_named_with_its_owner(terminal: Terminal, here: Here) -> None:
    with serving(terminal) as server:
        done = here.run("serve", "--port", 0, "--store", terminal.store)
        assert done.code == 2
        assert f"in use by anabranch (pid {server.process.pid}" in done.err
        assert server.get("/runs")["items"] == []


def test_addresses_that_cannot_be_served_are_refused_with_what_to_change(
    here: Here,
) -> None:
    for host, said in (
        ("0.0.0.0", "anabranch token create --scope admin"),
        ("203.0.113.7", "choose another --host"),
        ("no-such-host.invalid", "there is no address"),
    ):
        done = here.run("serve", "--port", 0, "--host", host)
        assert (done.code, said in done.err) == (2, True), done
    assert here.run("serve", "--port", 70_000).code == 2
    assert "both" in here.run("serve", "--tls-cert", "a.pem").err
    assert "cannot be used" in here.run("serve", "--tls-cert", "a", "--tls-key", "b").err


def test_runs_left_unfinished_go_on_when_a_server_opens_their_store(
    terminal: Terminal, here: Here
) -> None:
    terminal.write("gate.yaml", GATE)
    assert here.run("run", "gate.yaml", "--run-id", "g1").code == 4
    with serving(terminal) as server:
        here.ok("decide", "g1", "ask", "--fulfil", "--store", terminal.store)
        here.ok("events", "g1", "--follow", "--server", server.url)
        assert server.get("/runs/g1")["result"] == "shipped"


def test_a_server_with_a_certificate_is_asked_over_https(terminal: Terminal) -> None:
    terminal.write("hello.yaml", HELLO)
    cert, key = TLS / "localhost.pem", TLS / "localhost.key"
    with serving(terminal, "--tls-cert", cert, "--tls-key", key) as server:
        assert server.url.startswith("https://127.0.0.1:")
        trusting = {"SSL_CERT_FILE": str(cert)}
        assert terminal.ok("run", "hello.yaml", "--server", server.url, env=trusting)
        done = terminal.run("runs", "--server", server.url)
        assert (done.code, "certificate" in done.err) == (1, True), done


def test_dev_leaves_the_usual_store_alone(terminal: Terminal) -> None:
    with beginning(terminal, "dev", "--port", 0, "--no-browser", "--grace", 0) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(3)]
        assert said[0].startswith("anabranch serves anabranch-dev.db at http://127.0.0.1:")
        assert "`--store PATH` names yours" in said[2]
        process.interrupt()
        process.end()
    assert (terminal.folder / "anabranch-dev.db").exists()
    assert not (terminal.folder / "anabranch.db").exists()


def test_dev_loads_an_example_once_and_opens_no_browser_when_told_so(terminal: Terminal) -> None:
    for _ in range(2):
        with serving(terminal, "--no-browser", "--grace", 0, verb="dev") as server:
            (run,) = server.get("/runs")["items"]
            assert run["name"] == "harbour"
            server.process.interrupt()
            server.process.end()
