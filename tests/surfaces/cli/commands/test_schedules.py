"""`anabranch schedule` does what it says, and bad input changes nothing."""

from __future__ import annotations

import pytest

from ..server_in_thread import served
from ..support import HEAD, Here

NIGHTLY = f"""{HEAD}metadata: {{name: nightly, path: reports/nightly}}
schedule:
  cron: "0 3 * * *"
  timezone: Europe/Berlin
workload: {{day: ""}}
workflow:
  - step: report
    tool: {{kind: noop, result: "{{{{ workload.day }}}}"}}
"""
PLAIN = NIGHTLY.replace(NIGHTLY[NIGHTLY.index("schedule:") : NIGHTLY.index("workload:")], "")
HOURLY = NIGHTLY.replace('"0 3 * * *"', '"0 * * * *"')


def registered(here: Here, text: str = PLAIN) -> None:
    here.write("nightly.yaml", text)
    here.ok("register", "nightly.yaml")


def names(here: Here) -> list[str]:
    return [one["name"] for one in here.ok("schedule", "list", "--json").json]


def test_every_verb_does_what_it_says_at_a_store(here: Here) -> None:
    registered(here)
    added = here.ok("schedule", "add", "h", "reports/nightly", "--every", "1h").out
    assert added.startswith("schedule h: every 1h, runs reports/nightly, next ")
    assert names(here) == ["h"]
    here.ok("schedule", "pause", "h")
    assert here.ok("schedule", "show", "h", "--json").json["state"] == "paused"
    assert here.ok("schedule", "show", "h").out.startswith("schedule h (paused)")
    assert here.ok("schedule", "resume", "h").out.startswith("goes on: h, next ")
    asked = here.ok("schedule", "run-now", "h", "--json").json
    assert (asked["how"], asked["run"].startswith("h-now-")) == ("recorded", True)
    planned = here.ok(
        "schedule", "backfill", "h", "--from", "2026-01-01", "--to", "2026-01-02", "--dry-run",
        "--json",
    ).json  # fmt: skip
    assert (planned["total"], planned["existing"], planned["dry_run"]) == (24, 0, True)
    assert here.ok("schedule", "remove", "h").out == "removed: h\n"
    assert names(here) == []


def test_who_adds_a_schedule_is_told_that_no_engine_is_there_to_begin_its_runs(here: Here) -> None:
    registered(here)
    words = ("schedule", "add", "h", "reports/nightly", "--every", "1h")
    told = here.ok(*words).err
    assert "no engine is running: its runs begin when one does (`anabranch serve`" in told
    assert here.ok(*words, "--replace", "--json").err == ""
    assert here.ok(*words, "--replace", "--paused").err == ""
    with served(here.store) as server:
        assert here.ok(*words, "--replace", "--server", server.url).err == ""
        assert here.ok(*words, "--replace").err == ""


def test_next_times_are_shown_in_the_zone_of_the_schedule(here: Here) -> None:
    registered(here)
    here.ok(
        "schedule", "add", "k", "reports/nightly", "--cron", "0 3 * * *",
        "--timezone", "Asia/Kolkata",
    )  # fmt: skip
    shown = here.ok("schedule", "next", "k", "--count", "3").out.split()
    assert [one.partition("T")[2] for one in shown] == ["03:00:00+05:30"] * 3
    assert "T03:00:00+05:30" in here.ok("schedule", "list").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cron", "0 3 31 2 *"), "never comes"),
        (("--cron", "0 3 * * *", "--timezone", "Europe/Berlim"), "Europe/Berlin"),
        (("--every", "0s"), "every"),
        (("--at", "2001-01-01"), "over"),
        ((), "cron"),
        (("--every", "1h", "--input", "unknown=1"), "unknown"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_added(
    here: Here, words: tuple[str, ...], said: str
) -> None:
    registered(here)
    done = here.run("schedule", "add", "bad", "reports/nightly", *words)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert names(here) == []


def test_the_newest_version_of_a_definition_says_what_its_schedule_is(here: Here) -> None:
    registered(here, NIGHTLY)
    first = here.ok("schedule", "show", "reports.nightly", "--json").json
    assert (first["from_definition"], first["schedule"]["cron"]) == (True, "0 3 * * *")
    here.ok("schedule", "pause", "reports.nightly")
    registered(here, HOURLY)
    second = here.ok("schedule", "show", "reports.nightly", "--json").json
    assert second["schedule"]["cron"] == "0 * * * *"
    assert (second["state"], second["created_at"]) == ("paused", first["created_at"])
    registered(here, PLAIN)
    assert names(here) == []


def test_a_schedule_that_somebody_added_is_not_touched_by_a_definition(here: Here) -> None:
    registered(here)
    here.ok("schedule", "add", "reports.nightly", "reports/nightly", "--every", "1h")
    registered(here, NIGHTLY)
    kept = here.ok("schedule", "show", "reports.nightly", "--json").json
    assert (kept["from_definition"], kept["schedule"]["every"]) == (False, "1h")
    registered(here, PLAIN)
    assert names(here) == ["reports.nightly"]


def test_explain_says_which_schedule_began_a_run_and_why(here: Here) -> None:
    registered(here, NIGHTLY)
    with served(here.store) as server:
        at = ("--server", server.url)
        days = ("--from", "2026-01-01", "--to", "2026-01-02", "--wait")
        here.ok("schedule", "backfill", "reports.nightly", *days, *at)
        run = "reports.nightly-20260101T020000Z"
        words = "begun by schedule reports.nightly for 2026-01-01T02:00:00Z, by a backfill"
        assert words in here.ok("explain", run, *at).out
    told = here.ok("explain", run, "--json").json["schedule"]
    assert told == {"name": "reports.nightly", "time": "2026-01-01T02:00:00Z", "kind": "backfill"}
