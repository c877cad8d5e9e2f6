"""`market check` and `market kinds`: documents in files, checked alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.market.documents import KINDS

from ..support import Here

EXAMPLES = Path(__file__).parents[4] / "examples" / "market"
OFFER = (EXAMPLES / "offer.json").read_text("utf-8")
GOOD, CHANGED = json.loads((EXAMPLES / "orders.json").read_text("utf-8"))


def test_a_good_document_has_no_problems(here: Here) -> None:
    here.write("offer.json", OFFER)
    done = here.run("market", "check", "offer.json")
    assert (done.code, done.out) == (0, "1 document: no problems\n")


def test_an_instant_is_asked_for_with_at(here: Here) -> None:
    here.write("offer.json", OFFER)
    assert here.run("market", "check", "offer.json", "--at", "2026-06-10T08:00:00Z").code == 0
    for words, code in (("2027-06-10T08:00:00Z", "expired"), ("2020-01-01T00:00:00Z", "not-yet")):
        done = here.run("market", "check", "offer.json", "--at", words)
        assert done.code == 2
        assert f": {code}" in done.out
    assert here.run("market", "check", "offer.json", "--at", "now").code in (0, 2)


def test_lists_and_several_files_are_checked_one_by_one(here: Here) -> None:
    here.write("orders.json", json.dumps([GOOD, CHANGED]))
    here.write(
        "offer.yaml", "\n".join(f"{k!r}: {json.dumps(v)}" for k, v in json.loads(OFFER).items())
    )
    done = here.run("market", "check", "orders.json", "offer.yaml", "missing.json", "--json")
    assert done.code == 2
    assert done.json["ok"] is False
    assert [
        (one["file"], one["path"], one["kind"], one["ok"]) for one in done.json["documents"]
    ] == [
        ("orders.json", "/0", "service-order.v1", True),
        ("orders.json", "/1", "service-order.v1", False),
        ("offer.yaml", "", "service-offer.v1", True),
        ("missing.json", "", "", False),
    ]
    assert [(one["file"], one["path"], one["code"]) for one in done.json["problems"]] == [
        ("orders.json", "/1/signature", "wrong-signature"),
        ("missing.json", "", "no-file"),
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"),
        ("[]", "empty"),
        ("{", "syntax"),
        ('{"a": 1, "a": 2}', "duplicate-key"),
        ('{"a": NaN}', "syntax"),
        ("[" * 10_000, "too-deep"),
        ("[1]", "not-an-object"),
        ('{"schema": "service-order.reslt.v1"}', "unknown-kind"),
    ],
)
def test_a_file_with_no_document_is_a_problem(here: Here, text: str, code: str) -> None:
    here.write("file.json", text)
    done = here.run("market", "check", "file.json", "--json")
    assert done.code == 2
    assert [one["code"] for one in done.json["problems"]] == [code]


def test_a_kind_can_be_named_and_a_draft_is_not_signed(here: Here) -> None:
    draft = {name: value for name, value in GOOD.items() if name != "signature"}
    here.write("draft.json", json.dumps(draft))
    assert here.run("market", "check", "draft.json").code == 2
    assert here.run("market", "check", "draft.json", "--draft").code == 0
    words = ("market", "check", "draft.json", "--draft", "--kind", "service-offer.v1")
    assert "missing-field" in here.run(*words).out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--kind", "service-ofer.v1"), "did you mean 'service-offer.v1'"),
        (("--at", "soon"), "--at 'soon' is no time"),
        (("--server", "http://127.0.0.1:1"), "leave --server out"),
    ],
)
def test_bad_usage_is_named(here: Here, words: tuple[str, ...], says: str) -> None:
    here.write("offer.json", OFFER)
    done = here.run("market", "check", "offer.json", *words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_kinds_are_listed_and_shown_with_their_fields(here: Here) -> None:
    assert here.run("market", "kinds").out.split() == sorted(KINDS)
    for kind in ("service-offer.v1", "artifact-delivery-envelope.v1"):
        shape = KINDS[kind]
        shown = here.run("market", "kinds", kind, "--json").json
        assert shown["closed"] is shape.closed
        assert [one["field"] for one in shown["fields"]] == [*shape.required, *shape.optional]
        assert all(one["takes"] for one in shown["fields"])
    assert "did you mean" in here.run("market", "kinds", "service-ofer.v1").err


def test_control_characters_of_a_document_do_not_reach_the_terminal(here: Here) -> None:
    here.write("odd.json", json.dumps({"schema": "\x1b[31mred", "\x1b[31m": 1}))
    assert "\x1b" not in here.run("market", "check", "odd.json").out


def test_what_this_engine_says_of_a_run_is_a_document_of_the_market(
    here: Here,
) -> None:
    arca = EXAMPLES.parent / "arca"
    book = ("--participants", str(arca / "book.yaml"))
    assert here.run("run", str(arca / "quorum.json"), *book).code == 0
    here.write("snapshot.json", here.run("snapshot", "last", "--json").out)
    lines = here.run("dispatches", "last", "--json").out.splitlines()
    records = [json.loads(line)["record"] for line in lines]
    assert len(records) > 1
    here.write("dispatches.json", json.dumps(records))
    done = here.run("market", "check", "snapshot.json", "dispatches.json", "--json")
    assert done.json["problems"] == []
    assert {one["kind"] for one in done.json["documents"]} == {
        "workflow-run-snapshot.v1",
        "workflow-dispatch.v1",
    }
