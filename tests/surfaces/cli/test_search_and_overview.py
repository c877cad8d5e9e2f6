"""`runs --search`, `bulk --search` and `overview`: at a store and at a server alike."""

from __future__ import annotations

import pytest

from .server_in_thread import served
from .support import Here, Terminal

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\n"
BANK = (
    HEAD
    + """metadata: {name: bank}
workflow:
  - step: pay
    tool: {kind: python, code: "raise ValueError('the bank is closed')"}
"""
)
ASKS = (
    HEAD
    + """metadata: {name: asks}
workflow:
  - step: ask
    tool: {kind: decision, ask: Go on?}
"""
)


def filled(here: Here | Terminal) -> None:
    here.write("bank.yaml", BANK)
    here.write("asks.yaml", ASKS)
    here.run("run", "bank.yaml", "--run-id", "b1", "--label", "order=4711")
    here.run("run", "asks.yaml", "--run-id", "a1", "--label", "order=4712")


def test_runs_are_searched_by_error_label_id_and_name(here: Here) -> None:
    filled(here)
    for text, expected in (
        ("BANK closed", ["b1"]),
        ("order=47", ["a1", "b1"]),
        ("asks", ["a1"]),
        ("decision", ["a1"]),
        ("100%", []),
    ):
        found = here.ok("runs", "--search", text, "--json").json
        assert [row["run"] for row in found] == expected, text
    listed = here.ok("runs").out
    assert "pay: ValueError: the bank is closed" in listed
    assert "ask waits for a decision: Go on?" in listed


def test_a_bulk_verb_takes_a_search_and_leaves_the_others_alone(here: Here) -> None:
    filled(here)
    told = here.ok("bulk", "cancel", "--search", "go on?", "--json").json
    assert (told["found"], told["done"]) == (1, 1)
    assert here.ok("runs", "--search", "order=4712", "--json").json[0]["status"] == "cancelled"
    assert here.ok("purge", "--older-than", "0s", "--search", "nothing", "--json").json["runs"] == 0


@pytest.mark.parametrize("text", ["x" * 10_000, "a " * 9, "a\x1b[31m"])
def test_a_search_that_cannot_be_is_refused(here: Here, text: str) -> None:
    refused = here.run("runs", "--search", text)
    assert refused.code == 2
    assert "a search" in refused.err


def test_the_overview_of_a_store_counts_without_a_server(here: Here) -> None:
    filled(here)
    found = here.ok("overview", "--window", "1h", "--json").json
    assert (found["runs"]["runs"], found["runs"]["failed"]) == (2, 1)
    assert [one["name"] for one in found["definitions"]] == ["asks", "bank"]
    assert (found["unfinished"], found["health"]) == ({"waiting": 1}, None)
    text = here.ok("overview").out
    assert "last 24h: 2 runs, 1 ended, 1 failed (100.0%)" in text
    assert "ask waits for a decision: Go on?" in text
    assert here.ok("overview", "--store", ":memory:").out.startswith("last 24h: 0 runs")


@pytest.mark.slow
def test_a_server_says_the_same_as_a_store(terminal: Terminal) -> None:
    filled(terminal)
    with served(terminal.store) as server:
        at = ("--server", server.url)
        rows = [
            [(row["run"], row["reason"]) for row in terminal.ok("runs", "--json", *where).json]
            for where in ((), at)
        ]
        assert rows[0] == rows[1]
        found = terminal.ok("runs", "--search", "bank closed", "--json", *at).json
        assert [row["run"] for row in found] == ["b1"]
        seen = terminal.ok("overview", "--window", "1h", "--json", *at).json
        assert (seen["runs"]["runs"], seen["health"]["live"]) == (2, True)
        assert "engine: " in terminal.ok("overview", *at).out
