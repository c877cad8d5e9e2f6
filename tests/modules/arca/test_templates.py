"""Templates in the module store of the host: put, listed, deleted, made into definitions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.dialects.registry import compile_source
from anabranch.market.node.modules.api.template_signing import TEMPLATE_BYTES
from anabranch.modules.arca.template_catalog import records
from anabranch.testing.market import check_laws
from in_loop import in_loop

from .template_module import STEP, Started, asked, template, world


async def store(node: Any, verb: str, **said: Any) -> Any:
    """What the module `arca` asks of the store of its host."""
    body = {"schema_version": "v1", "capability_id": f"module_store_{verb}", **said}
    answer = await node.request("POST", f"/v1/module/store/records/{verb}", body, as_="arca")
    return answer.body


@in_loop
async def test_a_template_is_a_record_of_the_host_under_its_id() -> None:
    async with world("a") as nodes:
        node = nodes["a"]
        put = await asked(node, "POST", "", template())
        assert (put.status, put.body["status"]) == (201, "stored")
        found = await store(node, "get", record_kind="workflow-template", record_id="weekly.v1")
        assert found["record"]["payload"] == template()
        shown = await asked(node, "GET", "/weekly.v1")
        assert shown.body["template"] == template()
        assert (shown.body["public"], shown.body["imported"]) == (False, None)
        assert check_laws(nodes) == []


@in_loop
async def test_versions_are_ids_of_their_own_and_are_listed_by_id() -> None:
    async with world("a") as nodes:
        node = nodes["a"]
        for name in ("weekly.v2", "daily", "weekly.v10", "weekly.v1"):
            await asked(node, "POST", "", template(name))
        items = (await asked(node, "GET")).body["items"]
        assert [(one["template_id"], one["name"], one["version"]) for one in items] == [
            ("daily", "daily", None),
            ("weekly.v1", "weekly", 1),
            ("weekly.v10", "weekly", 10),
            ("weekly.v2", "weekly", 2),
        ]
        assert items[0]["parameters"]["limit"] == {
            "type": "integer",
            "required": False,
            "default": 3,
        }


@in_loop
async def test_the_same_template_again_changes_nothing_and_another_one_replaces_it() -> None:
    async with world("a") as nodes:
        node = nodes["a"]
        await asked(node, "POST", "", template())
        same = await asked(node, "POST", "", template())
        assert (same.status, same.body["status"]) == (200, "unchanged")
        other = await asked(node, "POST", "", template(label="Other"))
        assert (other.status, other.body["status"]) == (200, "replaced")
        assert (await asked(node, "GET", "/weekly.v1")).body["label"] == "Other"


@in_loop
async def test_a_deleted_template_leaves_a_tombstone_and_is_not_found() -> None:
    async with world("a") as nodes:
        node = nodes["a"]
        await asked(node, "POST", "", template())
        await asked(node, "POST", "", template("daily.v1"))
        assert (await asked(node, "DELETE", "/weekly.v1")).body["status"] == "deleted"
        again = await asked(node, "DELETE", "/weekly.v1")
        assert (again.status, again.body["code"]) == (404, "template_not_found")
        marked = await asked(node, "POST", "", template("daily.v1", deleted=True))
        assert marked.body["status"] == "deleted"
        assert (await asked(node, "GET")).body["items"] == []
        given = {"template_id": "weekly.v1", "parameters": {"topic": "x"}}
        assert (await asked(node, "POST", "/materialize", given)).status == 404
        assert (await asked(node, "POST", "", template())).status == 201


@in_loop
async def test_templates_are_there_after_a_crash_of_the_node() -> None:
    async with world("a") as nodes:
        node = nodes["a"]
        await asked(node, "POST", "", template())
        await nodes.crash("a", 5)
        assert (await asked(node, "GET", "/weekly.v1")).body["template"] == template()


# -- what they come to ---------------------------------------------------------------------------


@in_loop
async def test_a_template_becomes_a_definition_in_its_normal_form() -> None:
    async with world("a") as nodes:
        node = nodes["a"]
        await asked(node, "POST", "", template())
        given = {"template_id": "weekly.v1", "parameters": {"topic": "rivers"}}
        answer = await asked(node, "POST", "/materialize", given)
        definition = answer.body["definition"]
        assert definition["workflow_id"] == "weekly.v1"
        first, second = definition["plan"]["steps"]
        assert (first["input"], first["max_amount"]) == ({"of": "rivers"}, 3)
        assert second["input_from"] == ["a"]
        assert compile_source(json.dumps(definition)).net is not None


@in_loop
async def test_a_template_is_started_with_its_parameters_and_an_input() -> None:
    started: Started = []
    async with world("a", started=started) as nodes:
        node = nodes["a"]
        await asked(node, "POST", "", template())
        body = {"parameters": {"topic": "x"}, "input": {"n": 1}}
        answer = await asked(node, "POST", "/weekly.v1/start", body)
        assert (answer.status, answer.body["run_id"]) == (201, "run:1")
        ((definition, given),) = started
        assert (definition["plan"]["steps"][0]["input"], given) == ({"of": "x"}, {"n": 1})
        missing = await asked(node, "POST", "/weekly.v1/start")
        assert (missing.body["code"], len(started)) == ("missing_parameter", 1)


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({}, "missing_parameter"),
        ({"topic": "x", "topik": "y"}, "unknown_parameter"),
        ({"topic": 5}, "parameter_type"),
        ({"topic": "x", "limit": "3"}, "parameter_type"),
        ({"topic": "{{input.secret}}"}, "parameter_type"),
        ({"topic": "x", "limit": -1}, "definition"),
    ],
)
@in_loop
async def test_parameters_that_do_not_fit_are_refused_by_their_class(
    parameters: dict[str, Any], code: str
) -> None:
    async with world("a") as nodes:
        node = nodes["a"]
        await asked(node, "POST", "", template())
        body = {"template_id": "weekly.v1", "parameters": parameters}
        answer = await asked(node, "POST", "/materialize", body)
        assert (answer.status, answer.body["code"]) == (400, code)


# -- what is refused -----------------------------------------------------------------------------


def plan(*steps: Any) -> dict[str, Any]:
    return template(plan={"steps": list(steps)})


REFUSED: dict[str, tuple[Any, str]] = {
    "deadline_seconds": (template(deadline_seconds=60), "removed-key"),
    "deadline_seconds in a step": (plan({**STEP, "deadline_seconds": 5}), "removed-key"),
    "a cycle": (
        plan({**STEP, "depends_on": ["b"]}, {**STEP, "step_id": "b", "depends_on": ["a"]}),
        "dependency-cycle",
    ),
    "a parameter that is not declared": (template(parameters={}), "unknown-reference"),
    "a key nobody knows": (template(publish=True), "unknown-key"),
    "another kind": (template(template_kind="offer"), "bad-choice"),
    "another schema": (template(schema="service-offer.v1"), "bad-choice"),
    "no id": ({**template(), "template_id": None}, "missing-key"),
    "an odd id": (template("../../etc"), "bad-name"),
    "no plan": ({"template_id": "x.v1"}, "missing-key"),
    "an order of many": (
        plan({**STEP, "max_amount": 3, "target": {"resolve": "static", "participants": ["p"]},
              "fan_in": {}}),
        "conflicting-keys",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
@in_loop
async def test_a_template_that_cannot_work_is_refused_with_all_that_is_wrong(what: str) -> None:
    document, code = REFUSED[what]
    async with world("a") as nodes:
        answer = await asked(nodes["a"], "POST", "", document)
        assert (answer.status, answer.body["code"]) == (400, "definition"), answer.body
        assert code in [one["code"] for one in answer.body["problems"]]
        assert (await asked(nodes["a"], "GET")).body["items"] == []


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("document", "status", "code"),
    [
        ([], 400, "schema"),
        ("text", 400, "schema"),
        (None, 400, "schema"),
        (template(description="x" * TEMPLATE_BYTES), 413, "too_large"),
        (template(input={"a": deep(80)}), 400, "schema"),
        (template(input={"a": 2**60}), 400, "schema"),
        (template(signature={"alg": "ed25519", "value": "A" * 86}), 400, "bad_signature"),
        (template(signature="mine"), 400, "bad_signature"),
    ],
)
@in_loop
async def test_hostile_templates_change_nothing(document: Any, status: int, code: str) -> None:
    async with world("a") as nodes:
        answer = await asked(nodes["a"], "POST", "", document)
        assert (answer.status, answer.body["code"]) == (status, code)
        assert (await asked(nodes["a"], "GET")).body["items"] == []


@in_loop
async def test_there_are_only_so_many_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "TEMPLATES_MAX", 2)
    async with world("a") as nodes:
        node = nodes["a"]
        for number in (1, 2):
            assert (await asked(node, "POST", "", template(f"t.v{number}"))).status == 201
        third = await asked(node, "POST", "", template("t.v3"))
        assert (third.status, third.body["code"]) == (409, "too_many_templates")
        changed = await asked(node, "POST", "", template("t.v1", label="Other"))
        assert changed.status == 200


@pytest.mark.parametrize("name", ["nothing", "%2e%2e", "a%20b", "x" * 300, "weekly.v1%2F"])
@in_loop
async def test_a_template_that_is_not_there_is_not_found(name: str) -> None:
    async with world("a") as nodes:
        answer = await asked(nodes["a"], "GET", f"/{name}")
        assert (answer.status, answer.body["code"]) == (404, "template_not_found")


@in_loop
async def test_a_slash_in_an_id_is_written_as_in_every_path() -> None:
    async with world("a") as nodes:
        await asked(nodes["a"], "POST", "", template("team/weekly.v1"))
        shown = await asked(nodes["a"], "GET", "/team%2Fweekly.v1")
        assert shown.body["template_id"] == "team/weekly.v1"


@in_loop
async def test_another_module_may_look_and_use_and_changes_nothing() -> None:
    async with world("a") as nodes:
        node = nodes["a"]
        await asked(node, "POST", "", template())
        assert (await asked(node, "GET", as_="other")).status == 200
        given = {"template_id": "weekly.v1", "parameters": {"topic": "x"}}
        assert (await asked(node, "POST", "/materialize", given, as_="other")).status == 200
        for method, path, body in (
            ("POST", "", template("x.v1")),
            ("DELETE", "/weekly.v1", None),
            ("POST", "/weekly.v1/publish", {"publish": True}),
            ("POST", "/import", {"node_id": "n", "template_id": "t", "digest": "d"}),
        ):
            refused = await asked(node, method, path, body, as_="other")
            assert (refused.status, refused.body["code"]) == (403, "forbidden"), path
        assert [one["template_id"] for one in (await asked(node, "GET")).body["items"]] == [
            "weekly.v1"
        ]
        assert (await asked(node, "GET", as_="open")).status == 401


@in_loop
async def test_a_record_that_is_no_template_is_listed_as_one_that_cannot_be_used() -> None:
    async with world("a") as nodes:
        node = nodes["a"]
        for name, payload in (("odd.v1", {"template_id": "odd.v1"}), ("list.v1", [1])):
            await store(
                node, "put", record_kind="workflow-template", record_id=name, payload=payload
            )
        items = (await asked(node, "GET")).body["items"]
        assert [bool(one["problem"]) for one in items] == [True, True]
        body = {"template_id": "odd.v1", "parameters": {}}
        answer = await asked(node, "POST", "/materialize", body)
        assert (answer.status, answer.body["code"]) == (400, "definition")
