"""May: templates of workflows, kept by the host, made into runs, shared between nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.testing.market import NodeSpec, World, arca

TEMPLATES = "/v1/enact/arca/templates"
TEMPLATE: dict[str, Any] = {
    "template_id": "summary.v1",
    "parameters": {"wait": {"type": "string", "default": "PT30S"}, "service": {"type": "string"}},
    "plan": {
        "steps": {
            "offers": {
                "service_type": "{{params.service}}",
                "request_input": {"text": "{{input.text}}"},
                "target": {"resolve": "capability", "capability_id": "offer-catalog"},
                "fan_in": {"policy": "any_one"},
                "timing": {"timeout": "{{params.wait}}"},
            }
        }
    },
}
GIVEN = {"template_id": "summary.v1", "parameters": {"service": "text/summarise"}}


@pytest.fixture
def world() -> Iterator[World]:
    """Two nodes with Arca."""
    made = World([NodeSpec(name=name, modules={"arca": arca()}) for name in ("here", "there")])
    made.advance(130)  # they know of each other
    yield made
    asyncio.run(made.close())


def ask(world: World, node: str, method: str, path: str, body: Any = None, **more: Any) -> Any:
    """The status and the body of the answer."""
    answer = world[node].request(method, path, body, **more).result
    return answer.status, answer.body


def test_an_id_and_parameters_become_a_definition_and_a_run(world: World) -> None:
    assert ask(world, "here", "POST", TEMPLATES, TEMPLATE)[0] == 201
    status, found = ask(world, "here", "POST", f"{TEMPLATES}/materialize", GIVEN)
    assert status == 200
    (step,) = found["definition"]["plan"]["steps"]
    assert (step["step_id"], step["service_type"]) == ("offers", "text/summarise")
    assert step["timing"] == {"timeout": "PT30S"}
    assert step["input"] == {"text": "{{input.text}}"}, "what is for the run stays for the run"
    body = {**GIVEN, "input": {"text": "x"}, "run_id": "run:one"}
    status, run = ask(world, "here", "POST", "/v1/enact/arca/runs", body)
    assert (status, run["run_id"], run["workflow_id"]) == (201, "run:one", "summary.v1")
    for wrong, code in (
        ({"service": "x", "other": 1}, "unknown_parameter"), ({}, "missing_parameter"),
        ({"service": 1}, "parameter_type"),
    ):  # fmt: skip
        given = {"template_id": "summary.v1", "parameters": wrong}
        status, said = ask(world, "here", "POST", f"{TEMPLATES}/materialize", given)
        assert (status, said["code"]) == (400, code)
    plans: list[dict[str, Any]] = [{**TEMPLATE["plan"], "deadline_seconds": 5}, {"steps": {}}]
    for plan in plans:
        status, said = ask(world, "here", "POST", TEMPLATES, {**TEMPLATE, "plan": plan})
        assert (status, said["code"]) == (400, "definition")


def test_templates_are_records_of_the_host(world: World) -> None:
    ask(world, "here", "POST", TEMPLATES, TEMPLATE)
    body = {
        "schema_version": "v1", "capability_id": "module_store_get",
        "record_kind": "workflow-template", "record_id": "summary.v1",
    }  # fmt: skip
    path = "/v1/module/store/records/get"
    status, found = ask(world, "here", "POST", path, body, as_="arca")
    assert (status, found["record"]["payload"]["plan"]) == (200, TEMPLATE["plan"])
    world.crash_module("here", "arca")
    world.crash("here")
    world.advance(5)
    status, found = ask(world, "here", "GET", f"{TEMPLATES}/summary.v1")
    assert (status, found["template"]["plan"]) == (200, TEMPLATE["plan"])


def test_templates_of_another_node_are_browsed_and_imported(world: World) -> None:
    ask(world, "there", "POST", TEMPLATES, TEMPLATE)
    there = {"node_id": world["there"].node_id}
    one = {**there, "template_id": "summary.v1"}
    browse, preview = f"{TEMPLATES}/browse", f"{TEMPLATES}/import/preview"
    assert ask(world, "here", "POST", browse, there)[1]["templates"] == [], "it is private"
    ask(world, "there", "POST", f"{TEMPLATES}/summary.v1/publish", {"publish": True})
    (row,) = ask(world, "here", "POST", browse, there)[1]["templates"]
    assert row["template_id"] == "summary.v1"
    _, seen = ask(world, "here", "POST", preview, one)
    assert (seen["signature"], seen["importable"]) == ("valid", True)
    assert seen["publisher"] == world["there"].participant_id
    assert ask(world, "here", "GET", f"{TEMPLATES}/summary.v1")[0] == 404, "nothing is kept by it"
    wrong = {**one, "digest": "sha256:other"}
    assert ask(world, "here", "POST", f"{TEMPLATES}/import", wrong)[1]["code"] == "template_changed"
    status, kept = ask(world, "here", "POST", f"{TEMPLATES}/import",
                       {**one, "digest": seen["digest"]})  # fmt: skip
    assert (status, kept["status"], kept["publisher"]) == (201, "imported", seen["publisher"])
    assert ask(world, "here", "POST", f"{TEMPLATES}/materialize", GIVEN)[0] == 200
