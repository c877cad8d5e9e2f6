"""`check --participants` and `participants`: a book by itself, with definitions, and at work."""

from __future__ import annotations

import json
from typing import Any

import pytest

from work.participants.loopback_participants import closed_port, party, says

from ..server_in_thread import served
from ..support import Here

STEP = {"step_id": "ask", "service_type": "text/summarise"}


def workflow(**fields: Any) -> str:
    return json.dumps({"workflow_id": "w", "plan": {"steps": [{**STEP, **fields}]}})


def static(*names: str) -> dict[str, Any]:
    return {"target": {"resolve": "static", "participants": [*names]}, "fan_in": {}}


BOOK = """participants:
  one: {url: "http://127.0.0.1:9/", service_types: [text/summarise], price: 3}
  two: {function: "json:dumps"}
capabilities:
  verify: {url: "http://127.0.0.1:9/verify"}
"""


def found(here: Here, *words: object) -> list[tuple[str, str, str]]:
    done = here.run("check", *words, "--json")
    problems = done.json["problems"]
    assert done.code == (2 if any(one["severity"] == "error" for one in problems) else 0)
    return [(one["code"], one["severity"], one["message"]) for one in problems]


def test_a_sound_book_has_no_problems(here: Here) -> None:
    here.write("book.yaml", BOOK)
    done = here.run("check", "--participants", "book.yaml")
    assert (done.code, done.out) == (0, "book.yaml: no problems\n")


def test_every_mistake_of_a_book_is_told_at_its_line(here: Here) -> None:
    wrong = BOOK.replace("json:dumps", "json:no_such").replace("price: 3", "price: cheap")
    here.write("book.yaml", wrong + "directory: {issuers: x, addresses: 1.2.3.4.5}\n")
    done = here.run("check", "--participants", "book.yaml")
    assert done.code == 2
    assert "book.yaml:2:70: bad-book: participant 'one': `price` is a number" in done.out
    assert "book.yaml:3:9: bad-book: participant 'two'" in done.out
    assert "`directory.addresses` must be any, or a list of public" in done.out
    assert "`directory` of the book needs `passports`" in done.out


@pytest.mark.parametrize(
    ("text", "code"), [("participants: [", "syntax"), ("[1]", "bad-book"), ("", "empty")]
)
def test_what_is_no_book_is_said(here: Here, text: str, code: str) -> None:
    here.write("book.yaml", text)
    assert [one[0] for one in found(here, "--participants", "book.yaml")] == [code]
    assert found(here, "--participants", "none.yaml")[0][0] == "no-file"


def test_a_variable_that_is_not_set_here_is_worth_a_warning(here: Here) -> None:
    here.write("book.yaml", 'participants: {one: {url: "http://x.example/${NOT_SET_HERE}"}}\n')
    ((code, severity, message),) = found(here, "--participants", "book.yaml")
    assert (code, severity) == ("missing-variable", "warning")
    assert "NOT_SET_HERE is not set here" in message


@pytest.mark.parametrize(
    ("step", "code", "severity", "says"),
    [
        (static("one", "two"), "", "", ""),
        (static("one", "tow"), "unknown-participant", "warning", "asks 'tow', who is not"),
        (static("tow"), "unknown-participant", "error", "asks 'tow'"),
        (static("one", "{{input.who}}"), "", "", ""),
        ({}, "", "", ""),
        (
            {"service_type": "text/sumarise"},
            "nobody-to-ask",
            "error",
            "no participant in the book offers",
        ),
        (
            {"target": {"resolve": "capability", "capability_id": "c"}, "fan_in": {}},
            "nobody-to-ask",
            "error",
            "the book has no directory of passports",
        ),
        (
            {
                "fulfillment": {
                    "policy": "external_decision",
                    "decision_source": {"kind": "capability", "capability_id": "verfy"},
                }
            },
            "unknown-capability",
            "error",
            "did you mean 'verify'?",
        ),
    ],
)
def test_a_definition_is_held_against_the_book(
    here: Here, step: dict[str, Any], code: str, severity: str, says: str
) -> None:
    here.write("book.yaml", BOOK)
    here.write("w.json", workflow(**step))
    problems = found(here, "--participants", "book.yaml", "w.json")
    problems = [one for one in problems if one[0] != "unknown-input"]
    assert [one[:2] for one in problems] == ([(code, severity)] if code else [])
    assert not code or says in problems[0][2]


def test_a_capability_is_looked_up_in_the_passports_of_the_book(here: Here) -> None:
    made = here.run("passport", "new", "k", "--json").json
    issued = here.run("passport", "issue", "k", made["node"], "offer-catalog").json
    here.write("all.json", json.dumps({"passports": [issued, {"schema": "x"}]}))
    book = {
        "participants": {made["participant"]: {"function": "json:dumps"}},
        "directory": {"passports": "all.json", "issuers": [made["participant"]]},
    }
    here.write("book.json", json.dumps(book))
    target = {"resolve": "capability", "capability_id": "offer-catalog"}
    here.write("w.json", workflow(target=target, fan_in={}))
    problems = found(here, "--participants", "book.json", "w.json")
    assert [one[:2] for one in problems] == [("bad-passport", "warning")]
    here.write("w.json", workflow(target={**target, "capability_id": "other"}, fan_in={}))
    problems = found(here, "--participants", "book.json", "w.json")
    assert problems[1][:2] == ("nobody-to-ask", "warning")
    assert "no passport for 'other' was found" in problems[1][2]


def test_check_needs_something_to_check(here: Here) -> None:
    done = here.run("check")
    assert done.code == 2
    assert "name a definition, or a book with --participants" in done.err


# -- at work --------------------------------------------------------------------------------------


def test_a_server_knows_how_its_participants_have_answered_and_reads_its_book_anew(
    here: Here,
) -> None:
    away = f"http://127.0.0.1:{closed_port()}/"
    with party(good=says({"price": 2}), no=says({"status": "declined"})) as at:
        people = {
            "good": {"url": at.url("good")}, "no": {"url": at.url("no")}, "away": {"url": away},
        }  # fmt: skip
        book = here.write("book.json", json.dumps({"participants": people}))
        here.write("ask.json", workflow(**static("good", "no", "away")))
        with served(here.folder / "served.db", participants=str(book)) as server:
            asking = ("--server", server.url, "--json")
            assert states(here, asking) == {"good": "unknown", "no": "unknown", "away": "unknown"}
            all_of = json.loads((here.folder / "ask.json").read_text())
            all_of["plan"]["steps"][0]["fan_in"] = {"policy": "all"}
            here.write("ask.json", json.dumps(all_of))
            assert here.run("run", "ask.json", *asking).code == 0
            assert states(here, asking) == {"good": "up", "no": "up", "away": "down"}
            here.write("book.json", '{"participants": {"bad": {}}}')
            refused = here.run("participants", "reload", *asking)
            assert refused.code == 2
            assert "needs either a `url` or a `function`" in refused.err
            assert set(states(here, asking)) == {"good", "no", "away"}
            here.write("book.json", json.dumps({"participants": {"good": people["good"]}}))
            told = here.run("participants", "reload", *asking).json
            assert told == {"participants": 1, "capabilities": 0}
            listed = states(here, asking)
            assert listed["good"] == "up", "how they have answered stays known"
            here.write("ask.json", workflow(**static("good", "no")))
            done = here.run("run", "ask.json", *asking).json
            assert done["result"] == {"price": 2}
            assert len(at.seen("no")) == 1, "who is no longer in the book is not asked"


def states(here: Here, asking: tuple[str, ...]) -> dict[str, str]:
    lines = here.run("participants", "list", *asking).out.splitlines()
    return {row["participant"]: row["state"] for row in map(json.loads, lines)}


def test_a_probe_says_who_is_there_without_asking_anybody(here: Here) -> None:
    with party(good=says({}), ill=says({}, status="503 Busy")) as at:
        people = {
            "good": {"url": at.url("good"), "health": at.url("good")},
            "open": {"url": at.url("good")},
            "ill": {"url": at.url("good"), "health": at.url("ill")},
            "away": {"url": f"http://127.0.0.1:{closed_port()}/"},
            "here": {"function": "json:dumps"},
        }
        here.write("book.json", json.dumps({"participants": people}))
        done = here.run("participants", "probe", "--participants", "book.json", "--json")
        assert done.code == 1
        rows = {row["participant"]: row for row in map(json.loads, done.out.splitlines())}
        assert {name: row["state"] for name, row in rows.items()} == {
            "good": "up", "open": "up", "ill": "odd", "away": "down", "here": "up",
        }  # fmt: skip
        assert rows["ill"]["problem"] == "its health answers with HTTP 503"
        assert not [visit for visit in at.visits if visit.body is not None]
    table = here.run("participants", "list", "--participants", "book.json").out
    assert table.splitlines()[0].split()[:2] == ["PARTICIPANT", "STATE"]
    assert "name a book" in here.run("participants", "list").err
    assert "name one with --server" in here.run("participants", "reload").err


def test_a_server_holds_definitions_against_its_own_book_as_it_was_last_read(here: Here) -> None:
    book = here.write("book.yaml", BOOK)
    here.write("good.json", workflow(**static("one", "two")))
    here.write("bad.json", workflow(**static("tow")))
    with served(here.store, participants=str(here.folder / book)) as server:
        at = ("--server", server.url)
        assert found(here, "good.json", *at) == []
        ((code, severity, message),) = found(here, "bad.json", *at)
        assert (code, severity) == ("unknown-participant", "error")
        assert "asks 'tow', who is not in the book" in message
        refused = here.run("check", "bad.json", "--participants", "book.yaml", *at)
        assert (refused.code, "asked by the server" in refused.err) == (2, True)
        here.write("book.yaml", BOOK.replace("  one:", "  tow:"))
        assert here.run("participants", "reload", *at).code == 0
        assert found(here, "bad.json", *at) == []
        assert [one[:2] for one in found(here, "good.json", *at)] == [
            ("unknown-participant", "warning")
        ]
    with served(here.store) as server:  # without a book nobody can say
        assert found(here, "bad.json", "--server", server.url) == []
