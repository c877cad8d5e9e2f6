"""`dispatches`, `snapshot` and `template`: what they print, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ..support import Here

PARTIES = """
def cheap(request):
    return {"price": 2, "secret": "of a loser"}

def dear(request):
    return {"price": 5}
"""
DEFINITION: dict[str, Any] = {
    "workflow_id": "solicit",
    "plan": {
        "steps": [
            {
                "step_id": "ask",
                "service_type": "text/summarise",
                "target": {"resolve": "static", "participants": ["p1", "p2"]},
                "fan_in": {"policy": "best_of", "score_field": "/price"},
                "timing": {"timeout": "PT10S"},
            },
            {"step_id": "buy", "service_type": "text/summarise", "input_from": "ask"},
        ]
    },
}
TEMPLATE: dict[str, Any] = {
    "template_id": "solicit.v1",
    "label": "Ask around",
    "parameters": {"wait": {"type": "string", "default": "PT5S"}, "topic": "string"},
    "plan": {
        "steps": [
            DEFINITION["plan"]["steps"][0]
            | {"input": {"topic": "{{params.topic}}"}, "timing": {"timeout": "{{params.wait}}"}}
        ]
    },
}


@pytest.fixture
def there(here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    """In a folder with a book of two participants."""
    monkeypatch.syspath_prepend(str(here.folder))
    here.write("workflow_parties.py", PARTIES)
    entry = {"service_types": ["text/summarise"]}
    people = {
        "p1": {"function": "workflow_parties:cheap", "price": 2, **entry},
        "p2": {"function": "workflow_parties:dear", "price": 5, **entry},
    }
    here.write("book.json", json.dumps({"participants": people}))
    here.write("solicit.json", json.dumps(DEFINITION))
    here.write("template.json", json.dumps(TEMPLATE))
    return here


def ran(there: Here) -> None:
    done = there.run("run", "solicit.json", "--participants", "book.json", "--run-id", "r1")
    assert done.code == 0, done


# -- dispatches and snapshot ---------------------------------------------------------------------


def test_dispatches_shows_who_was_asked_and_what_became_of_it(there: Here) -> None:
    ran(there)
    done = there.run("dispatches", "last")
    assert done.code == 0
    head, *rows = done.out.splitlines()
    assert head.split()[:5] == ["STEP", "TARGET", "STATUS", "OUTCOME", "SCORE"]
    assert [row.split()[:5] for row in rows] == [
        ["ask", "p1", "responded", "usable", "2"],
        ["ask", "p2", "responded", "usable", "5"],
        ["buy", "p1", "responded", "usable", "-"],
    ]
    assert [row.rstrip().endswith("chosen") for row in rows] == [False, True, True]
    assert "of a loser" not in done.out


def test_dispatches_as_json_are_the_records_with_their_place(there: Here) -> None:
    ran(there)
    done = there.run("dispatches", "r1", "--json", "--step", "ask")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["record"]["target"] for line in lines] == ["p1", "p2"]
    for line in lines:
        assert line["place"] == "state/workflow-dispatch/" + line["record"]["dispatch_id"]
    assert lines[0]["record"]["response"] == {"price": 2, "secret": "of a loser"}


def test_snapshot_is_the_run_without_the_responses_of_the_losers(there: Here) -> None:
    ran(there)
    done = there.run("snapshot", "r1", "--json")
    assert done.json["schema"] == "workflow-run-snapshot.v1"
    assert [step["status"] for step in done.json["steps"]] == ["completed", "completed"]
    assert done.json["steps"][0]["selected_output"] == {"price": 5}
    assert "selected_output" not in done.json["steps"][1]
    raw = json.dumps(done.json["steps"][0])
    assert "of a loser" not in raw
    pretty = there.run("snapshot", "last")
    assert json.loads(pretty.out) == done.json


@pytest.mark.parametrize("verb", ["dispatches", "snapshot"])
def test_an_unknown_run_is_refused(there: Here, verb: str) -> None:
    ran(there)
    done = there.run(verb, "nobody")
    assert (done.code, done.out) == (2, "")
    assert "nobody" in done.err


def test_a_run_of_another_language_has_no_dispatches(there: Here) -> None:
    there.write("noop.yaml", "workflow:\n- step: a\n  tool: {kind: noop}\n")
    assert there.run("run", "noop.yaml").code == 0
    done = there.run("dispatches", "last", "--json")
    assert (done.code, done.out) == (0, "")


# -- template ------------------------------------------------------------------------------------


def test_a_template_is_kept_listed_shown_and_run(there: Here) -> None:
    assert there.run("template", "put", "template.json").out == "solicit.v1 version 1\n"
    assert there.run("template", "put", "template.json").out == "solicit.v1 version 1\n"
    changed = TEMPLATE | {"label": "Ask around again"}
    there.write("template2.json", json.dumps(changed))
    assert there.run("template", "put", "template2.json", "--json").json["version"] == 2
    _head, row = there.run("template", "list").out.splitlines()
    assert row.split()[:2] == ["solicit.v1", "2"]
    assert "wait, topic" in row
    assert json.loads(there.run("template", "show", "solicit.v1").out) == changed
    old = there.run("template", "show", "solicit.v1", "--version", "1", "--json").json
    assert (old["version"], old["label"]) == (1, "Ask around")
    more = ("--participants", "book.json", "--json")
    done = there.run("template", "run", "solicit.v1", "--param", "topic=rivers", *more)
    assert done.code == 0, done
    assert done.json["result"] == {"price": 5}


def test_a_dry_run_prints_the_definition_and_runs_nothing(there: Here) -> None:
    there.run("template", "put", "template.json")
    done = there.run("template", "run", "solicit.v1", "--param", "topic=rivers", "--dry-run")
    made = json.loads(done.out)
    assert made["plan"]["steps"][0]["input"] == {"topic": "rivers"}
    assert made["plan"]["steps"][0]["timing"] == {"timeout": "PT5S"}
    assert there.run("runs", "--json").json == []
    there.write("made.json", done.out)
    assert there.run("check", "made.json").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "solicit.v1"), "needs the parameter 'topic'"),
        (("run", "solicit.v1", "--param", "topc=x"), "did you mean 'topic'?"),
        (("run", "solicit.v1", "--param", "topic=5"), "must be of type string"),
        (("run", "solicit.v2", "--param", "topic=x"), "did you mean 'solicit.v1'?"),
        (("show", "other"), "there is no template 'other'"),
        (("show", "solicit.v1", "--version", "7"), "has the versions 1 to 1"),
        (("put", "none.json"), "none.json cannot be read"),
        (("put", "book.json"), "missing-key"),
    ],
)
def test_what_is_wrong_with_a_template_is_said(there: Here, words: Any, said: str) -> None:
    there.run("template", "put", "template.json")
    done = there.run("template", *words)
    assert done.code == 2
    assert said in done.err
    assert there.run("runs", "--json").json == []


def test_a_template_with_deadline_seconds_is_not_kept(there: Here) -> None:
    there.write("old.json", json.dumps(TEMPLATE | {"deadline_seconds": 60}))
    done = there.run("template", "put", "old.json")
    assert done.code == 2
    assert "removed-key" in done.err
    assert there.run("template", "list", "--json").out == ""


def test_a_deleted_template_is_found_no_more_and_can_be_put_again(there: Here) -> None:
    there.run("template", "put", "template.json")
    done = there.run("template", "delete", "solicit.v1")
    assert (done.code, done.out) == (0, "solicit.v1 is deleted (version 2 records it)\n")
    assert there.run("template", "list", "--json").out == ""
    for words in (("show",), ("versions",), ("run", "--param", "topic=x"), ("delete",)):
        verb, *more = words
        refused = there.run("template", verb, "solicit.v1", *more)
        assert refused.code == 2
        assert "template solicit.v1 is deleted; put it again to use it" in refused.err
    assert there.run("template", "put", "template.json", "--json").json["version"] == 3
    assert there.run("template", "put", "template.json", "--json").json["version"] == 3
    (row,) = there.run("template", "versions", "solicit.v1", "--json").out.splitlines()
    assert json.loads(row)["version"] == 3
    assert there.run("template", "delete", "solicit.v1", "--json").json["version"] == 4
    assert "no template 'other'" in there.run("template", "delete", "other").err


def test_a_template_that_can_become_nothing_is_not_kept(there: Here) -> None:
    broken = TEMPLATE | {"plan": {"steps": [{"step_id": "a", "service_type": "x", "fan_in": {}}]}}
    there.write("broken.json", json.dumps(broken))
    done = there.run("template", "put", "broken.json")
    assert done.code == 2
    assert "missing-key" in done.err
    assert "broken.json:1:" in done.err
    assert there.run("template", "list", "--json").out == ""


def test_a_template_is_checked_by_itself(there: Here) -> None:
    done = there.run("check", "template.json")
    assert (done.code, done.out) == (0, "template.json: no problems\n")
    broken = TEMPLATE | {"plan": {"steps": [{"step_id": "a", "service_type": "x", "fan_in": {}}]}}
    there.write("broken.json", json.dumps(broken))
    done = there.run("check", "broken.json")
    assert (done.code, "missing-key" in done.out) == (2, True)
    done = there.run("run", "template.json")
    assert (done.code, "has no key 'template_id'" in done.err) == (2, True)


def test_a_dry_run_prints_the_normal_form(there: Here) -> None:
    ask = TEMPLATE["plan"]["steps"][0]
    steps = {"ask": ask, "buy": {"service_type": "x/y", "request_input": {}, "input_from": "ask"}}
    there.write("map.json", json.dumps(TEMPLATE | {"plan": {"steps": steps, "deadline": "PT1M"}}))
    there.run("template", "put", "map.json")
    done = there.run("template", "run", "solicit.v1", "--param", "topic=x", "--dry-run")
    made = json.loads(done.out)
    assert made["deadline"] == "PT1M"
    assert [one["step_id"] for one in made["plan"]["steps"]] == ["ask", "buy"]
    assert made["plan"]["steps"][1]["input_from"] == ["ask"]


# -- a decision source decides alone -------------------------------------------------------------

JUDGED = {
    "workflow_id": "judged",
    "plan": {
        "steps": [
            {
                "step_id": "publish",
                "service_type": "text/summarise",
                "fulfillment": {
                    "policy": "external_decision",
                    "decision_source": {"kind": "capability", "capability_id": "verify"},
                    "result_match": {
                        "path": "/ok",
                        "fulfilled_values": [True],
                        "not_fulfilled_values": [False],
                    },
                },
            }
        ]
    },
}


def judged_by(there: Here, says: bool) -> None:
    """A run that stands at the decision of its source, which says this from now on."""
    there.write("verdict.json", json.dumps({"ok": False}))
    there.write(
        "workflow_source.py",
        "import json, pathlib\n"
        "def verify(request):\n"
        "    return json.loads(pathlib.Path('verdict.json').read_text())\n",
    )
    book = json.loads((there.folder / "book.json").read_text())
    book["capabilities"] = {"verify": {"function": "workflow_source:verify"}}
    there.write("judged_book.json", json.dumps(book))
    there.write("judged.json", json.dumps(JUDGED))
    book_option = ("--participants", "judged_book.json")
    done = there.run("run", "judged.json", *book_option, "--run-id", "j1")
    assert done.code != 0, done
    there.write("verdict.json", json.dumps({"ok": says}))


def test_decide_does_not_answer_for_a_source_but_has_it_asked_again(there: Here) -> None:
    judged_by(there, says=True)
    refused = there.run("decide", "j1", "publish", "--fulfil")
    assert refused.code != 0
    assert (
        "alone: have it asked again (`anabranch decide --ask-again`, or `anabranch resume`), "
        "or answer in its place with --override" in refused.err
    )
    explained = there.run("explain", "j1")
    assert "decide j1 gate-1 --ask-again" in explained.out
    assert there.run("decide", "j1", "publish", "--ask-again", "--actor", "ann").code == 0
    done = there.run("resume", "j1", "--participants", "judged_book.json")
    assert done.code == 0, done


def test_resume_asks_a_source_again_that_said_no(there: Here) -> None:
    judged_by(there, says=True)
    done = there.run("resume", "j1", "--participants", "judged_book.json")
    assert done.code == 0, done


def test_an_override_at_the_command_line_is_recorded_as_one(there: Here) -> None:
    judged_by(there, says=False)
    said = there.run("decide", "j1", "publish", "--override", "--fulfil", "--actor", "ann")
    assert said.code == 0, said
    snapshot = json.loads(there.run("snapshot", "j1").out)
    task = snapshot["steps"][0]["task"]
    assert (task["decided_by"], task["override"]) == ("ann", True)
