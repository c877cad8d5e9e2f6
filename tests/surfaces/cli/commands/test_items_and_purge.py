"""`show --items` lists the items of a loop, `purge` deletes what ended long ago."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.store.sqlite.store import SqliteStore

from ..support import GATE, HEAD, HELLO, Here, Terminal, beginning, until

LOOP = f"""{HEAD}metadata: {{name: loop}}
workflow:
  - step: each
    spec: {{loop_mode: fanout, fanout: {{shard_size: 4, allow_partial: true}}}}
    loop: {{in: {{range: [0, 30]}}, iterator: n}}
    tool: {{kind: noop, result: "{{{{ 12 // (iter.n - 9) if iter.n in (8, 9) else iter.n }}}}"}}
"""


@pytest.fixture(autouse=True)
def loop(here: Here) -> None:
    here.write("loop.yaml", LOOP)


def test_items_are_shown_page_by_page(here: Here) -> None:
    here.run("run", "loop.yaml", "--run-id", "r")
    page = here.ok("show", "last", "--items", "each", "--limit", 5, "--json").json
    assert [item["index"] for item in page["items"]] == [0, 1, 2, 3, 4]
    ids = {"iter_index": 4, "iter_key": "4", "loop_id": "r/l1", "shard_id": "r/l1/4+4"}
    assert page["items"][4] == {"index": 4, "state": "succeeded", "attempts": 1, "result": 4, **ids}
    assert (page["total"], page["succeeded"], page["failed"]) == (30, 29, 1)
    assert page["more_after"] == 4
    text = here.ok("show", "last", "--items", "each", "--limit", 5, "--after", 24).out
    assert "partial, 29 of 30 succeeded, 1 failed" in text
    assert "\n25 " in text
    assert "more:" not in text


def test_failed_items_are_shown_with_their_errors_and_counted(here: Here) -> None:
    here.run("run", "loop.yaml")
    text = here.ok("show", "last", "--items", "each", "--state", "failed").out
    assert "1 × transform" in text
    assert "division by zero" in text
    page = here.ok("show", "last", "--items", "each", "--error", "timeout", "--json").json
    assert (page["items"], page["failures"]) == ([], {"transform": 1})


def test_bad_questions_about_items_are_refused(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    here.ok("run", "hello.yaml")
    assert "--items STEP" in here.run("show", "last", "--state", "failed").err
    done = here.run("show", "last", "--items", "each")
    assert (done.code, done.err.strip().endswith("it has no loop yet")) == (2, True)


def test_a_purge_counts_first_and_then_deletes_finished_runs_only(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    here.write("gate.yaml", GATE)
    here.ok("run", "hello.yaml")
    here.run("run", "gate.yaml")
    assert here.ok("purge", "--json").json["runs"] == 0
    would = here.ok("purge", "--older-than", "0s", "--dry-run", "--json").json
    assert (would["runs"], would["dry_run"]) == (1, True)
    assert len(here.ok("runs", "--json").json) == 2
    assert "deleted 1 run and 0 payloads" in here.ok("purge", "--older-than", "0s").out
    assert [run["name"] for run in here.ok("runs", "--json").json] == ["gate"]


def test_a_purge_without_a_store_makes_none(here: Here) -> None:
    done = here.run("purge")
    assert done.code == 2
    assert "there is no store" in done.err
    assert not here.store.exists()
    assert here.run("purge", "--older-than", "30").code == 2


def test_a_purge_works_beside_an_engine(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    here.ok("run", "hello.yaml")
    engine = SqliteStore(here.store)
    engine.acquire("somebody")
    try:
        assert here.ok("purge", "--older-than", "0s", "--json").json["runs"] == 1
    finally:
        engine.close()


SLOW = f"""{HEAD}metadata: {{name: slow}}
workflow:
  - step: each
    spec: {{loop_mode: fanout, fanout: {{shard_size: 1, max_concurrent: 1, allow_partial: true}}}}
    loop: {{in: {{range: [0, 10000]}}, iterator: n}}
    tool: {{kind: shell, command: "sleep 0.05"}}
"""


def test_a_loop_in_another_process_is_widened_and_stopped(terminal: Terminal, here: Here) -> None:
    terminal.write("slow.yaml", SLOW)

    def loops() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = terminal.show("last")["loops"]
        return found

    with beginning(terminal, "run", "slow.yaml", "--no-watch", "--json") as process:
        until(lambda: terminal.store.exists() and here.run("show", "last").code == 0)
        until(lambda: loops() and loops()[0]["succeeded"])
        here.ok("loop", "last", "each", "--window", 3)
        until(lambda: loops()[0]["shards_in_flight"] == 3)
        assert here.ok("loop", "last", "each", "--stop", "--json").json["taken"] == "engine"
        done = process.end()
    assert done.code == 0, done
    record = loops()[0]
    assert record["status"] == "partial"
    assert record["succeeded"] < 10_000
    refused = here.run("loop", "last", "each", "--stop")
    assert (refused.code, "has ended" in refused.err) == (2, True)
