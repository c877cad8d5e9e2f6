"""Definitions in the browser: problems lead to their lines, and a form starts a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .support import OPINIONS, RULES, Server, becomes

FORMS = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: forms}
workload: {city: Oslo, many: 3, loud: true, list: [1, 2]}
workflow:
  - step: echo
    tool: {kind: noop, result: {city: "{{ workload.city }}", many: "{{ workload.many }}"}}
"""
BROKEN = FORMS.replace("kind: noop", "kind: nope").replace("step: echo", "step: echo\n    nxt: x")


def run_of(page: Any) -> str:
    page.wait_for_url("**/runs/*")
    name: str = page.url.split("/runs/")[1].partition("?")[0]
    return name


def test_problems_are_listed_and_lead_to_their_lines(page: Any) -> None:
    page.goto("/definitions")
    page.get_by_role("textbox", name="Text").fill(BROKEN)
    page.get_by_role("button", name="Check").click()
    problems = page.locator("#problems li")
    assert problems.count() >= 2
    assert "did you mean 'noop'" in page.locator("#problems").inner_text()
    page.get_by_role("button", name="Go to line 7").first.click()
    start = page.evaluate("document.getElementById('text').selectionStart")
    assert page.evaluate("document.activeElement.id") == "text"
    assert BROKEN[:start].count("\n") + 1 == 7
    assert page.locator("#gutter .at-error").count() >= 1
    assert page.get_by_role("button", name="Start", exact=True).count() == 0


def test_the_form_comes_from_the_inputs_and_starts_the_run(page: Any, server: Server) -> None:
    page.goto("/definitions")
    page.get_by_role("textbox", name="Text").fill(FORMS)
    page.get_by_role("button", name="Check").click()
    assert page.locator("#graph g.anb-box[data-step=echo]").count() == 1
    page.get_by_label("city").fill("Lima")
    page.get_by_label("many").fill("7")
    page.get_by_label("loud").uncheck()
    page.get_by_label("list").fill("[4]")
    page.get_by_label("Labels").fill("team=blue env=test")
    page.get_by_role("button", name="Start", exact=True).click()
    run = run_of(page)
    state = server.wait(run)
    assert state.workload == {"city": "Lima", "many": 7, "loud": False, "list": [4]}
    head = server.store.head(run)
    assert head is not None
    assert head.labels == {"team": "blue", "env": "test"}


def test_the_whole_input_can_be_given_as_json_and_is_kept_when_it_is_wrong(
    page: Any, server: Server
) -> None:
    page.goto("/definitions")
    page.get_by_role("textbox", name="Text").fill(FORMS)
    page.get_by_role("button", name="Check").click()
    page.get_by_text("The whole input as JSON instead").click()
    page.get_by_label("Input as one JSON object").fill("{oops")
    page.get_by_role("button", name="Start", exact=True).click()
    assert "the input is not JSON" in page.locator("[role=alert]").inner_text()
    assert page.get_by_label("Input as one JSON object").input_value() == "{oops"
    page.get_by_label("Input as one JSON object").fill('{"city": "Rome", "extra": {"deep": [1]}}')
    page.get_by_role("button", name="Start", exact=True).click()
    state = server.wait(run_of(page))
    assert state.workload["extra"] == {"deep": [1]}


def test_a_file_is_taken_into_the_editor(page: Any, tmp_path: Path) -> None:
    file = tmp_path / "forms.yaml"
    file.write_text(FORMS)
    page.goto("/definitions")
    page.locator("#file").set_input_files(str(file))
    becomes(page, "document.getElementById('text').value.includes('name: forms')")
    page.get_by_role("button", name="Check").click()
    assert "it can run" in page.locator("#found-title").inner_text()


def test_an_orchestration_starts_with_its_rules(page: Any, server: Server) -> None:
    page.goto("/definitions")
    page.get_by_role("textbox", name="Text").fill(OPINIONS)
    page.get_by_text("Rules of an orchestration").click()
    page.get_by_role("textbox", name="alias → rule").fill(json.dumps(RULES))
    page.get_by_role("button", name="Check").click()
    page.get_by_label("Input as one JSON object").fill('{"amount": 3}')
    page.get_by_role("button", name="Start", exact=True).click()
    run = run_of(page)
    assert server.wait(run).status == "completed"
    page.goto("/sessions")
    assert run in page.locator("main").inner_text()


def test_a_definition_of_the_store_is_opened_again(page: Any, server: Server) -> None:
    server.run(FORMS)
    page.goto("/definitions")
    page.get_by_role("link", name="forms").first.click()
    assert page.get_by_role("textbox", name="Text").input_value() == FORMS


def test_a_path_is_never_read_as_a_file(page: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text(FORMS.replace("forms", "very_secret"))
    page.goto("/definitions")
    page.get_by_role("textbox", name="Text").fill(str(secret))
    page.get_by_role("button", name="Check").click()
    assert "very_secret" not in page.locator("main").inner_text()
    assert page.locator("#problems li").count() >= 1
