"""A store on PostgreSQL at the command line: what is wrong with it is bad usage, named with its
setting, as text and as JSON, and no output tells the password."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.clock import SystemClock
from postgres_server import PostgresServer, running_postgres

from .support import HEAD, Done, Here

PASSWORD = "xyzzy-43"
BAD_USAGE = 2
HOUR_MS = 3_600_000
HELLO = f"{HEAD}metadata: {{name: hello}}\nworkflow:\n  - {{step: a, tool: {{kind: noop}}}}\n"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as made:
        made.sql(f"CREATE ROLE shop LOGIN PASSWORD '{PASSWORD}'", "CREATE DATABASE shop OWNER shop")
        yield made


@pytest.fixture
def here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Here:
    made = Here(tmp_path, capsys, monkeypatch)
    made.write("hello.yaml", HELLO)
    return made


def problem(done: Done, code: str) -> str:
    """The message, which stands in the JSON and in the text alike."""
    assert done.code == BAD_USAGE, done.err
    assert PASSWORD not in done.out + done.err
    told = json.loads(done.out.splitlines()[-1])["problem"]
    assert told["code"] == code
    assert told["message"] in done.err
    return str(told["message"])


def test_every_kind_of_bad_address_is_bad_usage(
    here: Here, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {
        server.tcp_uri("shop", f"{PASSWORD}x", "shop"): "store_password",
        server.tcp_uri("shop", PASSWORD, "missing"): "store_no_database",
        f"postgresql://shop:{PASSWORD}@127.0.0.1:1/shop": "store_away",
        f"postgresql://shop:{PASSWORD}@no-such-host.invalid/shop": "store_away",
        f"postgresql://shop:{PASSWORD}@h/shop?colour=red": "store_address",
        f"postgresql://shop:{PASSWORD}@h/shop?schema=My-Runs": "store_address",
        f"mysql://shop:{PASSWORD}@h/shop": "store_address",
    }
    for address, code in wrong.items():
        monkeypatch.setenv("ANABRANCH_STORE", address)
        for words in (("runs", "--json"), ("run", "hello.yaml", "--json")):
            message = problem(here.run(*words), code)
            assert "ANABRANCH_STORE" in message
            assert "--store" in message


def test_a_password_on_the_command_line_is_warned_of(here: Here, server: PostgresServer) -> None:
    address = server.tcp_uri("shop", PASSWORD, "shop")
    done = here.run("run", "hello.yaml", "--store", address)
    assert done.code == 0, done.err
    assert "every user of this machine can read the password" in done.err
    assert PASSWORD not in done.out + done.err
    plain = here.run("runs", "--store", server.uri(user="shop", database="shop"))
    assert plain.code == 0
    assert "password" not in plain.err


def test_partitions_that_another_cluster_chose_are_bad_usage(
    here: Here, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_STORE", server.tcp_uri("shop", PASSWORD, "shop", "?schema=two"))
    monkeypatch.setenv("ANABRANCH_STORE_PARTITIONS", "4")
    assert here.run("run", "hello.yaml").code == 0
    monkeypatch.setenv("ANABRANCH_STORE_PARTITIONS", "8")
    message = problem(here.run("run", "hello.yaml", "--json"), "store_partitions")
    assert "ANABRANCH_STORE_PARTITIONS" in message


def test_a_clock_that_is_an_hour_off_keeps_a_server_from_joining_with_both_times_named(
    here: Here, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_STORE", server.tcp_uri("shop", PASSWORD, "shop", "?schema=late"))
    right = SystemClock.now
    for off in (HOUR_MS, -HOUR_MS):
        monkeypatch.setattr(SystemClock, "now", lambda self, off=off: right(self) + off)
        message = problem(here.run("serve", "--port", "0", "--json"), "clock_off")
        assert len(re.findall(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", message)) == 2
        assert "3,6" in message or "3,5" in message
    assert server.sql("SELECT count(*) FROM late.servers", database="shop") == [(0,)]


def test_a_clock_that_is_seconds_off_is_warned_of(
    here: Here,
    server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("ANABRANCH_STORE", server.tcp_uri("shop", PASSWORD, "shop", "?schema=soon"))
    right = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda self: right(self) + 10_000)
    assert here.run("run", "hello.yaml").code == 0
    assert "the clock of this server says" in caplog.text
