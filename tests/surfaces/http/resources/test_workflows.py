"""Arca workflows over HTTP: dispatches, snapshots, templates, and runs of templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..support import HELLO, Client, run, serving

PARTIES = """
def cheap(request):
    return {"price": 2, "secret": "of a loser"}

def dear(request):
    return {"price": 5}
"""
ASK = {
    "step_id": "ask",
    "service_type": "text/summarise",
    "target": {"resolve": "static", "participants": ["p1", "p2"]},
    "fan_in": {"policy": "best_of", "score_field": "/price"},
    "timing": {"timeout": "PT10S"},
}
BUY = {"step_id": "buy", "service_type": "text/summarise", "input_from": "ask"}
SOLICIT: dict[str, Any] = {"workflow_id": "solicit", "plan": {"steps": [ASK, BUY]}}
TEMPLATE: dict[str, Any] = {
    "template_id": "ask/around.v1",
    "label": "Ask around",
    "parameters": {"wait": {"type": "string", "default": "PT5S"}, "topic": "string"},
    "plan": {
        "steps": [
            ASK | {"input": {"topic": "{{params.topic}}"}, "timing": {"timeout": "{{params.wait}}"}}
        ]
    },
}
NAMED = "/templates/ask%2Faround.v1"


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings of a server that can ask two participants."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "http_parties.py").write_text(PARTIES)
    entry = {"service_types": ["text/summarise"]}
    people = {
        "p1": {"function": "http_parties:cheap", "price": 2, **entry},
        "p2": {"function": "http_parties:dear", "price": 5, **entry},
    }
    file = tmp_path / "book.json"
    file.write_text(json.dumps({"participants": people}))
    return {"participants": str(file)}


async def solicited(client: Client) -> str:
    started = await client.start(SOLICIT)
    assert await client.ended(started) == "completed"
    return started


# -- dispatches and snapshots ----------------------------------------------------------------------


def test_dispatches_say_who_was_asked_and_what_became_of_it(book: dict[str, Any]) -> None:
    async def go() -> None:
        async with serving(**book) as client:
            started = await solicited(client)
            page = (await client.get(f"/runs/{started}/dispatches")).json
            told = [
                (one["number"], one["record"]["step_id"], one["record"]["target"], one["selected"])
                for one in page["items"]
            ]
            assert told == [(1, "ask", "p1", False), (2, "ask", "p2", True), (3, "buy", "p1", True)]
            assert page["next"] is None
            first = page["items"][0]
            assert first["place"] == "state/workflow-dispatch/" + first["record"]["dispatch_id"]
            assert (first["outcome"], first["score"], first["attempt"]) == ("usable", 2.0, 1)
            assert first["record"]["response"]["secret"] == "of a loser"

    run(go())


def test_dispatches_come_in_pages_and_by_step_and_status(book: dict[str, Any]) -> None:
    async def go() -> None:
        async with serving(**book) as client:
            path = f"/runs/{await solicited(client)}/dispatches"

            async def numbers(query: str) -> tuple[list[int], int | None]:
                page = (await client.get(f"{path}?{query}")).json
                return [one["number"] for one in page["items"]], page["next"]

            assert await numbers("limit=2") == ([1, 2], 2)
            assert await numbers("limit=2&after=2") == ([3], None)
            assert await numbers("step=buy") == ([3], None)
            assert await numbers("step=ask&limit=1") == ([1], 1)
            assert await numbers("step=ask&limit=1&after=1") == ([2], None)
            assert await numbers("status=responded&after=1") == ([2, 3], None)
            assert await numbers("status=timeout") == ([], None)
            assert await numbers("after=99") == ([], None)
            assert (await client.get(f"{path}?status=late")).code == "parameter"
            assert (await client.get(f"{path}?stp=ask")).code == "unknown_parameter"
            assert (await client.get("/runs/nobody/dispatches")).status == 404
            other = await client.start(HELLO)
            assert (await client.get(f"/runs/{other}/dispatches")).json["items"] == []

    run(go())


def test_a_snapshot_has_no_response_of_a_loser(book: dict[str, Any]) -> None:
    async def go() -> None:
        async with serving(**book) as client:
            started = await solicited(client)
            told = await client.get(f"/runs/{started}/snapshot")
            assert told.json["schema"] == "workflow-run-snapshot.v1"
            assert (told.json["run_id"], told.json["workflow_id"]) == (started, "solicit")
            assert [step["status"] for step in told.json["steps"]] == ["completed"] * 2
            assert told.json["steps"][0]["selected_output"] == {"price": 5}
            assert "of a loser" not in json.dumps(told.json["steps"][0])
            assert (await client.get("/runs/nobody/snapshot")).status == 404

    run(go())


# -- templates -------------------------------------------------------------------------------------


def test_a_template_is_kept_in_versions_listed_and_shown() -> None:
    async def go() -> None:
        async with serving() as client:
            assert (await client.get("/templates")).json == {"items": [], "next": None}
            made = await client.post("/templates", {"template": TEMPLATE})
            assert (made.status, made.json["version"]) == (201, 1)
            assert made.headers["Location"] == f"/api/v1{NAMED}"
            again = await client.post("/templates", {"template": TEMPLATE})
            assert again.json == made.json
            text = json.dumps(TEMPLATE | {"label": "Again"})
            assert (await client.post("/templates", {"template": text})).json["version"] == 2
            for name in ("b.v1", "c.v1"):
                await client.post("/templates", {"template": TEMPLATE | {"template_id": name}})
            page = (await client.get("/templates?limit=2")).json
            listed = [(one["template_id"], one["version"], one["label"]) for one in page["items"]]
            assert listed == [("ask/around.v1", 2, "Again"), ("b.v1", 1, "Ask around")]
            rest = (await client.get(f"/templates?limit=2&cursor={page['next']}")).json
            assert [one["template_id"] for one in rest["items"]] == ["c.v1"]
            assert rest["next"] is None
            newest, oldest = [
                (await client.get(f"{NAMED}{more}")).json for more in ("", "?version=1")
            ]
            assert (newest["text"], newest["label"]) == (text, "Again")
            assert (oldest["version"], oldest["label"]) == (1, "Ask around")
            assert oldest["parameters"]["wait"] == {
                "type": "string", "required": False, "default": "PT5S"
            }  # fmt: skip

    run(go())


def test_a_template_is_deleted_and_can_be_put_again() -> None:
    async def go() -> None:
        async with serving() as client:
            await client.post("/templates", {"template": TEMPLATE})
            gone = await client.ask("DELETE", NAMED)
            assert (gone.status, gone.json["version"]) == (200, 2)
            assert (await client.get("/templates")).json["items"] == []
            missing = await client.get(NAMED)
            assert (missing.status, missing.code) == (404, "not_found")
            assert (await client.ask("DELETE", NAMED)).status == 404
            again = await client.post("/templates", {"template": TEMPLATE})
            assert (again.status, again.json["version"]) == (201, 3)

    run(go())


def test_the_versions_of_a_template_come_oldest_first_and_in_pages() -> None:
    async def go() -> None:
        async with serving() as client:
            for label in ("one", "two", "three"):
                await client.post("/templates", {"template": TEMPLATE | {"label": label}})
            page = (await client.get(f"{NAMED}/versions?limit=2")).json
            assert [(one["version"], one["label"]) for one in page["items"]] == [(1, "one"), (2, "two")]  # fmt: skip  # noqa: E501
            rest = (await client.get(f"{NAMED}/versions?cursor={page['next']}")).json
            assert [one["label"] for one in rest["items"]] == ["three"]
            assert rest["next"] is None
            assert (await client.get("/templates/none/versions")).status == 404
            assert (await client.get(f"{NAMED}/versions?cursor=x")).code == "parameter"

    run(go())


def test_a_template_becomes_a_definition_without_a_run() -> None:
    async def go() -> None:
        async with serving() as client:
            await client.post("/templates", {"template": TEMPLATE})
            path = f"{NAMED}/definition"
            made = await client.post(path, {"parameters": {"topic": "rivers"}})
            step = json.loads(made.json["definition"])["plan"]["steps"][0]
            assert (step["input"], step["timing"]) == ({"topic": "rivers"}, {"timeout": "PT5S"})
            for body, status, code in (
                ({}, 422, "missing_parameter"),
                ({"parameters": {"topc": 1}}, 422, "unknown_parameter"),
                ({"parameters": {"topic": 1}}, 422, "parameter_type"),
                ({"parameters": {"topic": "{{run.input}}"}}, 422, "parameter_type"),
                ({"parameters": {"topic": "x"}, "version": 7}, 404, "not_found"),
                ({"extra": 1}, 422, "schema"),
            ):
                reply = await client.post(path, body)
                assert (reply.status, reply.code) == (status, code), reply.text
            assert (await client.get("/runs")).json["items"] == []

    run(go())


def test_a_run_is_begun_from_a_template_with_parameters_once_per_key(
    book: dict[str, Any],
) -> None:
    async def go() -> None:
        async with serving(**book) as client:
            await client.post("/templates", {"template": TEMPLATE})
            later = TEMPLATE | {"parameters": {}, "plan": {"steps": [ASK]}}
            body = {
                "template": TEMPLATE["template_id"],
                "parameters": {"topic": "rivers"},
                "labels": {"tenant": "a"},
                "run": "mine",
            }
            begun = await client.post("/runs", body)
            assert (begun.status, begun.json["run"]) == (201, "mine")
            assert await client.ended("mine") == "completed"
            shown = (await client.get("/runs/mine")).json
            assert (shown["result"], shown["labels"]["tenant"]) == ({"price": 5}, "a")
            assert (await client.post("/templates", {"template": later})).json["version"] == 2
            key = {"Idempotency-Key": "one"}
            again = {**body, "run": None, "version": 1}
            first, second = [await client.post("/runs", again, headers=key) for _ in range(2)]
            assert first.json == second.json
            assert await client.ended(first.json["run"]) == "completed"

    run(go())


def test_what_cannot_be_begun_from_a_template_is_refused_and_begins_nothing() -> None:
    async def go() -> None:
        async with serving() as client:
            await client.post("/templates", {"template": TEMPLATE})
            name, topic = TEMPLATE["template_id"], {"topic": "x"}
            kept = (await client.get("/definitions?dialect=workflow-template")).json["items"]
            for body, status, code in (
                ({"template": "none"}, 404, "not_found"),
                ({"template": name}, 422, "missing_parameter"),
                ({"template": name, "parameters": topic, "definition": HELLO}, 422, "usage"),
                ({"template": name, "parameters": topic, "fingerprint": "x"}, 422, "usage"),
                ({"template": name, "parameters": topic, "rules": {}}, 422, "usage"),
                ({"template": name, "parameters": topic, "version": 0}, 404, "not_found"),
                ({"definition": HELLO, "parameters": topic}, 422, "usage"),
                ({"definition": HELLO, "version": 1}, 422, "usage"),
                ({"fingerprint": kept[0]["fingerprint"]}, 422, "usage"),
                ({}, 422, "usage"),
            ):
                reply = await client.post("/runs", body)
                assert (reply.status, reply.code) == (status, code), (body, reply.text)
            assert (await client.get("/runs")).json["items"] == []

    run(go())


def test_what_is_no_template_is_refused_with_its_lines_and_not_kept() -> None:
    async def go() -> None:
        async with serving() as client:
            reply = await client.post("/templates", {"template": '{\n "template_id": "a b"}'})
            assert (reply.status, reply.code) == (422, "definition")
            found = [(one["code"], one["line"]) for one in reply.json["problems"]]
            assert ("bad-name", 2) in found
            for wrong in ("", "[", {}, {"template_id": 7}):
                assert (await client.post("/templates", {"template": wrong})).code == "definition"
            assert (await client.post("/templates", {"template": 7})).code == "schema"
            assert (await client.get("/templates")).json["items"] == []

    run(go())


def test_templates_are_not_listed_among_the_definitions() -> None:
    async def go() -> None:
        async with serving() as client:
            for n in range(3):
                template = TEMPLATE | {"label": str(n)}
                await client.post("/templates", {"template": template})
                await client.post("/definitions", {"definition": HELLO | {"metadata": {"name": f"h{n}"}}})  # fmt: skip  # noqa: E501
            page = (await client.get("/definitions?limit=2")).json
            rest = (await client.get(f"/definitions?limit=2&cursor={page['next']}")).json
            names = [one["name"] for one in page["items"] + rest["items"]]
            assert sorted(names) == ["h0", "h1", "h2"]
            assert rest["next"] is None
            kept = (await client.get("/definitions?dialect=workflow-template")).json["items"]
            assert len(kept) == 3
            drawn = await client.get(f"/definitions/{kept[0]['fingerprint']}/graph")
            assert (drawn.status, "is the template" in drawn.json["detail"]) == (404, True)

    run(go())


JUDGED: dict[str, Any] = {
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
                        "path": "/price",
                        "fulfilled_values": [2],
                        "not_fulfilled_values": [5],
                    },
                },
            }
        ]
    },
}


def test_over_http_a_source_is_asked_again_or_overridden_by_name(
    book: dict[str, Any], tmp_path: Path
) -> None:
    listed = json.loads((tmp_path / "book.json").read_text())
    listed["capabilities"] = {"verify": {"function": "http_parties:dear"}}
    (tmp_path / "book.json").write_text(json.dumps(listed))

    async def go() -> None:
        async with serving(**book) as client:
            name = await client.start(JUDGED)
            await client.stands(name)
            (asked,) = (await client.get("/approvals")).json["items"]
            assert asked["source"] == "capability verify"
            path = f"/runs/{name}/gates/publish/decide"
            refused = await client.post(path, {"verdict": "fulfil"})
            assert (refused.status, refused.json["code"]) == (409, "decided_by_source")
            assert (await client.post(path, {"verdict": "ask_again"})).status == 200
            await client.stands(name)
            said = await client.post(path, {"verdict": "fulfil", "override": True})
            assert said.status == 200, said.text
            assert await client.ended(name) == "completed"
            events = (await client.get(f"/runs/{name}/events")).json["items"]
            (decided,) = [one["fields"] for one in events if one["kind"] == "gate.decided"]
            assert decided["override"] is True
            assert "gate.asked_again" in [one["kind"] for one in events]

    run(go())
