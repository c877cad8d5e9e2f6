"""Orchestrations at the command line: check, run, graph, simulate, and the verb `session`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

import anabranch

from ..server_in_thread import served
from ..support import Here

CANARY = "canary-1234-sings"
FORK = {
    "id": "fork",
    "structure": {
        "A1": {
            "rule": "cm:xrc137:A",
            "onValid": {
                "spawns": ["G1", "H1"],
                "join": {
                    "joinid": "J1",
                    "mode": "all",
                    "waitonjoin": "kill",
                    "from": [{"node": "G1", "when": "valid"}, {"node": "H1", "when": "any"}],
                },
            },
        },
        "G1": {"rule": "cm:xrc137:G"},
        "H1": {"rule": "cm:xrc137:H"},
        "J1": {"rule": "cm:xrc137:J"},
    },
}
RULES: dict[str, Any] = {
    "A": {"payload": {"n": {"type": "int64"}}, "rules": ["[n] > 0"]},
    "G": {"payload": {"n": {"type": "int64"}}, "onValid": {"payload": {"twice": "[n] * 2"}}},
    "H": {"payload": {"n": {"type": "int64"}}, "rules": ["[n] > 100"]},
    "J": {
        "payload": {"twice": {"type": "int64"}},
        "onValid": {"payload": {"total": "[twice] + 1"}},
    },
}
SLEEPER = {
    "id": "sleeper",
    "structure": {
        "A1": {"rule": "cm:xrc137:A", "onValid": {"spawns": ["W1"]}},
        "W1": {"rule": "cm:xrc137:W"},
    },
}
OWNER, FRIEND = "0x" + "a" * 40, "0x" + "b" * 40


@pytest.fixture
def fork(here: Here) -> Here:
    rules(here, RULES)
    here.write("fork.json", json.dumps(FORK, indent=1))
    return here


def rules(here: Here, documents: dict[str, Any]) -> None:
    (here.folder / "rules").mkdir()
    for name, document in documents.items():
        here.write(f"rules/{name}.json", json.dumps(document))


def test_check_takes_the_rules(fork: Here) -> None:
    done = fork.ok("check", "fork.json", "--rules", "rules")
    assert done.out == "fork.json: no problems\n"
    fork.write("rules/G.json", '{"payload": {}, "rulez": 1}')
    done = fork.run("check", "fork.json", "--rules", "rules")
    assert done.code == 2
    assert "rules/G.json:1:17: unknown-key" in done.out
    assert fork.run("check", "fork.json", "--rules", "nowhere").code == 2


def test_check_without_rules_tells_what_is_missing_and_run_refuses(fork: Here) -> None:
    done = fork.ok("check", "fork.json")
    assert done.out.count("unresolved-rule") == 4
    done = fork.run("run", "fork.json", "--input", "n=7")
    assert done.code == 2
    assert done.err.count("no-rule") == 4
    assert "--rules" in done.err


def test_run_shows_the_session(fork: Here) -> None:
    done = fork.ok("run", "fork.json", "--rules", "rules", "--input", "n=7")
    assert "join at J1: closed, took G1, H1" in done.out
    assert "session: done (4 done)" in done.out
    shown = fork.ok("show", "last", "--json").json
    assert shown["session"]["processes"]["done"] == 4
    assert shown["steps"]["J1"]["result"] == {"total": 15}


def test_run_starts_where_it_is_told(fork: Here) -> None:
    words = ("run", "fork.json", "--rules", "rules", "--start", "H1", "--input", "n=7", "--json")
    assert list(fork.ok(*words).json["steps"]) == ["H1"]
    done = fork.run(*[word.replace("H1", "X1") for word in words])
    assert done.code == 2
    assert "X1" in done.err


def test_owner_and_gas_belong_to_the_session(fork: Here) -> None:
    words = ("run", "fork.json", "--rules", "rules", "--input", "n=7")
    assert fork.run(*words, "--owner", OWNER, "--max-gas", "12000").code == 3
    rows = fork.ok("session", "list", "--owner", OWNER, "--json").json
    assert {row["owner"] for row in rows} == {OWNER}
    (first, *_) = fork.ok("session", "receipts", "last", "--json").json
    assert first["extras"]["from"] == OWNER
    aborted = [row["step"] for row in rows if row["status"] == "aborted"]
    assert aborted, "twelve thousand are not enough for four steps"
    assert fork.run(*words, "--owner", "me").code == 2


def test_sessions_of_several_owners_are_listed_with_their_owners(fork: Here) -> None:
    words = ("run", "fork.json", "--rules", "rules", "--input", "n=7", "--owner")
    other = "0x" + "b" * 40
    fork.ok(*words, OWNER)
    assert "OWNER" not in fork.ok("session", "list").out
    fork.ok(*words, other)
    head, *rows = fork.ok("session", "list").out.splitlines()
    assert head.split()[:2] == ["OWNER", "PID"]
    assert {tuple(row.split()[:2]) for row in rows} >= {(OWNER, "1:1"), (other, "1:1")}


def test_graph_and_simulate_take_the_rules(fork: Here) -> None:
    drawn = fork.ok("graph", "fork.json", "--rules", "rules").out
    assert all(step in drawn for step in ("A1", "G1", "H1", "J1"))
    done = fork.ok("simulate", "fork.json", "--rules", "rules", "--seeds", "5", "--input", "n=7")
    assert "5 seeds" in done.out


def test_a_bundle_file_is_enough(fork: Here) -> None:
    fork.write("bundle.json", json.dumps({"orchestration": FORK, "rules": RULES}))
    assert fork.ok("run", "bundle.json", "--input", "n=7", "--json").json["status"] == "completed"
    fork.ok("run", "fork.json", "--rules", "bundle.json", "--input", "n=7")


def test_a_secret_is_never_printed(fork: Here) -> None:
    told = fork.ok(
        "run", "fork.json", "--rules", "rules", "--input", "n=7", "--input", f"__secret={CANARY}"
    )
    said = told.out + told.err
    for verb in ("show", "events", "explain"):
        said += fork.ok(verb, "last").out + fork.ok(verb, "last", "--json").out
    for action in ("show", "receipts"):
        said += fork.ok("session", action, "last", "--json").out
    assert CANARY not in said
    assert CANARY.encode() not in fork.store.read_bytes()


def test_a_secret_of_digits_is_a_text(fork: Here) -> None:
    fork.ok("run", "fork.json", "--rules", "rules", "--input", "n=7", "--input", "__secret=123456")


# -- session ---------------------------------------------------------------------------------


@pytest.fixture(params=["store", "server"])
def asleep(
    here: Here, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Here, str]]:
    """A session whose second process waits an hour, left by an interrupted engine.

    The tests with it are run twice: on the store, and at a server that has taken it over.
    """
    waits = {"payload": {}, "onValid": {"waitSec": 3600}}
    rules(here, {"A": waits, "W": {"payload": {}, "onValid": {"payload": {"x": 1}}}})
    here.write("sleeper.json", json.dumps(SLEEPER))

    async def begin() -> str:
        async with anabranch.Engine(here.store) as engine:
            given = {"__wakeUp": {"default": {"rpc": [FRIEND]}}}
            labels = {"owner": OWNER}
            run = await engine.start("sleeper.json", given, rules="rules", labels=labels)
            while engine.sessions.step_executed(run, 1) is not True:
                await asyncio.sleep(0.005)
            return run

    session = asyncio.run(begin())
    if request.param == "store":
        yield here, session
        return
    with served(here.store) as server:
        monkeypatch.setenv("ANABRANCH_SERVER", server.url)
        yield here, session


def test_session_show_has_a_row_for_every_process(asleep: tuple[Here, str]) -> None:
    here, session = asleep
    lines = here.ok("session", "show", session).out.splitlines()
    assert lines[0].split()[:4] == ["PID", "PARENT", "STEP", "STATUS"]
    assert lines[1].split()[:4] == ["1:1", "1", "A1", "done"]
    assert lines[2].split()[:4] == ["1:2", "1:1", "W1", "waiting"]
    assert here.ok("session", "show", "1", "--owner", OWNER).out.splitlines() == lines
    assert here.run("session", "show", "1", "--owner", FRIEND).code == 2
    assert here.ok("session", "next", OWNER).out == "2\n"
    assert here.ok("session", "alive", "1", "--owner", OWNER).out == "alive\n"
    assert here.ok("session", "alive", "1", "--owner", FRIEND).out == "not alive\n"


def test_session_wakeable_lists_what_somebody_may_wake(asleep: tuple[Here, str]) -> None:
    here, session = asleep
    for who, found in ((OWNER, [session]), (FRIEND, [session]), ("0x" + "c" * 40, [])):
        rows = here.ok("session", "wakeable", "--as", who, "--json").json
        assert [row["run"] for row in rows] == found
    assert f"1:2  W1    {session}" in here.ok("session", "wakeable", "--as", FRIEND).out
    nothing = here.ok("session", "wakeable", "--as", FRIEND, "--step", "A1")
    assert nothing.out == "nothing that you may wake waits\n"
    assert here.run("session", "wakeable", "--as", "me").code == 2
    by_process = here.run("session", "wake", f"{session}:2", "--as", FRIEND)
    assert by_process.code == 2
    assert "only the owner wakes a single process" in by_process.err


def test_session_alive_and_executed(asleep: tuple[Here, str]) -> None:
    here, session = asleep
    assert here.ok("session", "alive", session).out == "alive\n"
    assert here.ok("session", "executed", f"{session}:1").out == "executed\n"
    assert here.ok("session", "executed", f"{session}:2", "--json").json == {"executed": False}
    assert here.ok("session", "executed", f"{session}:9").out == "no such process\n"
    assert here.run("session", "executed", session + ":x").code == 2


def test_session_wake_lets_it_go_on(asleep: tuple[Here, str]) -> None:
    here, session = asleep
    assert here.run("session", "wake", f"{session}:2", "--as", OWNER.replace("a", "c")).code == 2
    told = here.ok("session", "wake", session, "--step", "W1", "--as", FRIEND, "--json").json
    assert (told["mode"], told["woken"]) == ("step", 1)
    assert here.ok("session", "wake", f"{session}:2").out == "woken: 0\n"
    here.run("resume", session)  # a server goes on by itself, and may have done so by now
    here.ok("events", session, "--follow")
    assert here.show(session)["steps"]["W1"]["result"] == {"x": 1}


def test_session_kill_ends_it(asleep: tuple[Here, str]) -> None:
    here, session = asleep
    refused = here.run("session", "kill", session, "--as", FRIEND)
    assert refused.code == 2
    assert f"{FRIEND} may not end this session" in refused.err
    done = here.ok("session", "kill", "1", "--owner", OWNER, "--reason", "enough")
    assert done.out == "killed: 1 processes; session 1 is cancelled\n"
    assert here.show(session)["session"]["result"] == "killed"
    assert here.ok("session", "alive", session).out == "not alive\n"


def test_explain_says_which_slots_are_open_and_who_can_fill_them(here: Here) -> None:
    document = json.loads(json.dumps(FORK))
    document["structure"]["G1"]["onValid"] = {}
    rules(here, {**RULES, "A": {"payload": {}, "onValid": {"waitSec": 3600}}})
    here.write("fork.json", json.dumps(document))

    async def begin() -> str:
        async with anabranch.Engine(here.store) as engine:
            run = await engine.start("fork.json", {"n": 7}, rules="rules")
            while engine.sessions.step_executed(run, 1) is not True:
                await asyncio.sleep(0.005)
            await engine.sessions.wake_up_process(f"{run}:3")
            while engine.sessions.step_executed(run, 3) is not True:
                await asyncio.sleep(0.005)
            return run

    session = asyncio.run(begin())
    told = here.ok("explain", session).out
    assert "a join: 1 of 2 delivered (G1); open: H1 (any)" in told
    assert "G1 (valid): filled by 3 at G1" in told
    assert "H1 (any): can come from 4 at H1" in told


def test_session_gas_of_a_rule(here: Here) -> None:
    here.write("rule.json", json.dumps(RULES["G"]))
    told = here.ok("session", "gas", "rule.json", "--json").json
    assert told["totalWorstCase"] == max(told["totalValid"], told["totalInvalid"])
    assert here.run("session", "gas", "nowhere.json").code == 2
    assert here.run("session", "gas").code == 2


def test_session_list_of_an_empty_store_and_of_none(here: Here) -> None:
    assert here.run("session", "list").code == 2
    here.write("p.yaml", "workflow:\n- step: a\n  tool: {kind: noop}\n")
    here.ok("run", "p.yaml")
    assert here.ok("session", "list").out == "no sessions\n"
    assert here.run("session", "show", "last").code == 2


# -- usage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "name a definition"),
        (["run", "--ostc", "x"], "name a definition"),
        (["run", "f.json", "--pin-rules"], "--pin-rules"),
        (["run", "f.json", "--hash", "0x1"], "--hash"),
        (["run", "f.json", "--registry", OWNER, "--ostc", "x"], "not both"),
        (["run", "--registry", OWNER], "--ostc"),
        (["run", "--registry", OWNER, "--ostc", "x"], "--rpc"),
        (["run", "--registry", "0x1", "--ostc", "x", "--rpc", "http://localhost:1"], "40 hex"),
        (
            [
                "run",
                "--registry",
                OWNER,
                "--ostc",
                "x",
                "--rpc",
                "http://localhost:1",
                "--hash",
                "1",
            ],
            "64 hex",
        ),
    ],
)
def test_flags_that_do_not_fit_together(here: Here, words: list[str], said: str) -> None:
    done = here.run(*words)
    assert done.code == 2
    assert said in done.err
    assert not here.store.exists()


@pytest.fixture(params=["store", "server"])
def place(
    here: Here, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Here]:
    if request.param == "store":
        yield here
        return
    with served(here.store) as server:
        monkeypatch.setenv("ANABRANCH_SERVER", server.url)
        yield here


def test_one_of_several_orchestrations_is_run_and_drawn_by_name(place: Here) -> None:
    def bundle(name: str, word: str) -> dict[str, Any]:
        rule = {"payload": {}, "onValid": {"payload": {"said": word}}}
        graph = {"id": name, "structure": {"SAY": {"rule": "cm:xrc137:Say"}}}
        meta = {"type": "XRC-137", "alias": "Say"}
        return {"bundleId": f"b-{name}", "items": [graph, {"meta": meta, **rule}]}

    whole = {"format": "xgr-multi-bundle@1", "bundles": [bundle("one", "1"), bundle("two", "2")]}
    place.write("both.json", json.dumps(whole))
    assert "several-orchestrations" in place.ok("check", "both.json").out
    refused = place.run("run", "both.json")
    assert refused.code == 2
    assert "--ostc" in refused.err
    undrawn = place.run("graph", "both.json")
    assert (undrawn.code, "2 orchestrations: 'one', 'two'" in undrawn.err) == (2, True)
    told = place.ok("run", "both.json", "--ostc", "two", "--json").json
    assert told["steps"]["SAY"]["result"] == {"said": 2}
    assert "SAY" in place.ok("graph", "both.json", "--ostc", "b-one").out
    assert place.run("run", "both.json", "--ostc", "three").code == 2


def test_a_session_is_started_only_as_the_number_that_is_asked_for(place: Here) -> None:
    place.write("rule.json", json.dumps({"payload": {}, "rules": ["true"]}))
    words = ["run", "rule.json", "--owner", OWNER, "--session"]
    refused = place.run(*words, "2")
    assert refused.code == 2
    assert "is number 1, not 2" in refused.err
    place.ok(*words, "1")
    assert place.ok("session", "next", OWNER).out == "2\n"
    assert place.run("run", "rule.json", "--session", "1").code == 2
