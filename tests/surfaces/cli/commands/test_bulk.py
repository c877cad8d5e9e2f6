"""`bulk` says the same at a store nobody works on, beside an engine, and at a server."""

from __future__ import annotations

import pytest

from ..server_in_thread import served
from ..support import ADMIT, HELLO, Here


@pytest.fixture(autouse=True)
def runs(here: Here) -> None:
    here.write("admit.yaml", ADMIT)
    here.write("hello.yaml", HELLO)
    for number in (1, 2):
        here.run("run", "admit.yaml", "--run-id", f"a{number}", "--label", f"n={number}")
    here.run("run", "hello.yaml", "--run-id", "h1")


def statuses(here: Here) -> dict[str, str]:
    return {run["run"]: run["status"] for run in here.ok("runs", "--json").json}


def test_a_dry_run_lists_and_changes_nothing(here: Here) -> None:
    before = statuses(here)
    told = here.ok("bulk", "cancel", "--status", "waiting", "--dry-run", "--json").json
    assert {item["run"]: item["outcome"] for item in told["items"]} == {
        "a1": "would",
        "a2": "would",
    }
    text = here.ok("bulk", "cancel", "--status", "waiting", "--dry-run").out
    assert "a1  admit  waiting  would cancel\nwould cancel 2 of 2 runs\n" in text
    assert statuses(here) == before


def test_without_an_engine_it_is_recorded(here: Here) -> None:
    told = here.ok("bulk", "cancel", "--label", "n=2", "--reason", "tidy", "--json").json
    assert (told["found"], told["done"], told["refused"]) == (1, 1, 0)
    assert statuses(here) == {"a1": "waiting", "a2": "cancelled", "h1": "completed"}
    some = here.run("bulk", "pause", "--all")
    assert some.code == 3
    assert "h1  hello  completed  left alone: the run has ended: completed" in some.out
    assert "pause: 1 of 3 runs, 2 left alone" in some.out


def test_beside_an_engine_it_goes_through_the_mailbox_and_to_a_server_over_http(here: Here) -> None:
    here.run("run", "admit.yaml", "--run-id", "a3")
    here.ok("cancel", "a3")
    with served(here.store) as server:
        done = here.ok("bulk", "patch", "--label", "n=1", "--set", "go=true", "--json").json
        assert done["done"] == 1
        refused = here.run("bulk", "redrive", "--status", "completed")
        assert refused.code == 3
        assert "--server URL" in refused.out
        done = here.ok(
            "bulk", "patch", "--label", "n=2", "--set", "go=true", "--server", server.url
        )
        assert "a2  admit  waiting  patch\npatch: 1 of 1 runs, 0 left alone\n" in done.out
        at_server = ("bulk", "redrive", "--all", "--server", server.url, "--json")
        items = {item["run"]: item for item in here.run(*at_server).json["items"]}
        assert items["a3"]["new"] in statuses(here)
        assert items["h1"]["code"] == "nothing_failed"


def test_more_runs_than_fit_on_a_page_are_all_done(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.surfaces.cli.commands.bulk.bulk.PAGE", 1)
    told = here.run("bulk", "purge", "--all", "--json").json
    assert (told["found"], told["done"], told["refused"]) == (3, 1, 2)
    assert set(statuses(here)) == {"a1", "a2"}
    limited = here.ok("bulk", "pause", "--status", "waiting", "--limit", 1, "--json").json
    assert limited["found"] == 1
    with served(here.store) as server:
        told = here.ok("bulk", "cancel", "--name", "admit", "--server", server.url, "--json").json
    assert (told["found"], told["done"]) == (2, 2)


def test_a_filter_that_leaves_nothing_out_must_be_meant(here: Here) -> None:
    done = here.run("bulk", "cancel")
    assert done.code == 2
    assert "--all" in done.err
    assert here.run("bulk", "explode", "--all").code == 2
    assert here.run("bulk", "patch", "--all").code == 2
    assert "waiting" in statuses(here).values()
