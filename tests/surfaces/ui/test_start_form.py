"""The form that starts a run: made from the inputs of each language, wrong at the field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .parties import EXAMPLES, Market, market, solicit
from .plain import PlainPage
from .support import OPINIONS, RULES, Server, becomes
from .test_definitions import FORMS, SUMMARY, summary, type_in


@pytest.fixture(scope="module")
def people() -> Iterator[Market]:
    with market() as made:
        made.open("north", "south")
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, people: Market) -> Iterator[Server]:
    with Server(Path(tmp_path_factory.mktemp("starting")), people.book()) as running:
        yield running


def run_of(page: Any) -> str:
    page.wait_for_url("**/runs/*")
    name: str = page.url.split("/runs/")[1].partition("?")[0]
    return name


def press_start(page: Any) -> None:
    page.get_by_role("button", name="Start", exact=True).click()


def begin(page: Any, text: str) -> None:
    page.goto("/definitions")
    type_in(page, text)
    if isinstance(page, PlainPage):
        assert "it can run" in summary(page)
    else:
        becomes(page, f"{SUMMARY}.includes('it can run')")


def field_error(page: Any, name: str) -> str:
    field = page.get_by_label(name, exact=True)
    assert field.get_attribute("aria-invalid") == "true"
    described = field.get_attribute("aria-describedby").split()[0]
    said: str = page.locator(f"#{described}").inner_text()
    return said


def test_a_playbook_has_a_field_of_its_kind_for_each_default(
    plain: PlainPage, server: Server
) -> None:
    begin(plain, FORMS)
    plain.get_by_label("city").fill("Lima")
    plain.get_by_label("many").fill("7")
    plain.get_by_label("loud").uncheck()
    plain.get_by_label("list").fill("[4]")
    plain.get_by_label("Labels").fill("team=blue env=test")
    press_start(plain)
    run = run_of(plain)
    state = server.wait(run)
    assert state.workload == {"city": "Lima", "many": 7, "loud": False, "list": [4]}
    head = server.store.head(run)
    assert head is not None
    assert head.labels == {"team": "blue", "env": "test"}


def test_what_is_wrong_is_said_at_the_field_and_nothing_is_lost(
    plain: PlainPage, server: Server
) -> None:
    before = len(server.parts.verbs.read.runs())
    begin(plain, FORMS)
    plain.get_by_label("city").fill("Lima")
    plain.get_by_label("list").fill('{"no": "list"}')
    press_start(plain)
    assert "this is not a JSON list" in field_error(plain, "list")
    assert plain.get_by_label("city").input_value() == "Lima"
    plain.get_by_label("list").fill("[1,")
    press_start(plain)
    assert "this is not JSON" in field_error(plain, "list")
    assert len(server.parts.verbs.read.runs()) == before
    plain.get_by_label("list").fill("[]")
    press_start(plain)
    assert server.wait(run_of(plain)).workload["list"] == []


def test_what_was_typed_stays_while_the_text_changes_and_the_rest_follows_it(page: Any) -> None:
    begin(page, FORMS)
    page.get_by_label("city").fill("Lima")
    page.get_by_label("loud").uncheck()
    type_in(page, FORMS.replace("Oslo", "Rome").replace("many: 3", "many: 4, more: x"))
    page.get_by_label("more").wait_for()
    assert page.get_by_label("city").input_value() == "Lima"
    assert not page.get_by_label("loud").is_checked()
    assert page.get_by_label("many").input_value() == "4"


def test_the_whole_input_can_be_given_as_json_and_is_kept_when_it_is_wrong(
    plain: PlainPage, server: Server
) -> None:
    begin(plain, FORMS)
    plain.get_by_text("The whole input as JSON instead").click()
    plain.get_by_label("Input as one JSON object").fill("{oops")
    press_start(plain)
    assert "the input is not JSON" in field_error(plain, "Input as one JSON object")
    assert plain.get_by_label("Input as one JSON object").input_value() == "{oops"
    plain.get_by_label("Input as one JSON object").fill('{"city": "Rome", "extra": {"deep": [1]}}')
    press_start(plain)
    plain.get_by_text("has no use for the input 'extra'").first.wait_for()
    plain.get_by_label("Input as one JSON object").fill('{"city": "Rome"}')
    press_start(plain)
    state = server.wait(run_of(plain))
    assert state.workload["city"] == "Rome"


def test_an_orchestration_asks_for_what_its_first_rule_declares(page: Any, server: Server) -> None:
    page.goto("/definitions")
    type_in(page, OPINIONS)
    page.get_by_text("paste it below").first.wait_for()  # the rules are missing
    rules = page.get_by_role("textbox", name="alias → rule")
    rules.fill(json.dumps(RULES))
    amount = page.get_by_label("amount needed")
    amount.wait_for()
    assert (amount.get_attribute("type"), amount.get_attribute("step")) == ("number", "1")
    press_start(page)
    assert page.url.endswith("/definitions")  # the browser itself asks for it
    page.evaluate(
        "document.querySelectorAll('[required]').forEach(one => { one.required = false })"
    )
    press_start(page)
    assert field_error(page, "amount needed") == "this is needed"
    page.get_by_label("amount needed").fill("3")
    page.get_by_label("amount needed").press("Enter")
    run = run_of(page)
    assert server.wait(run).status == "completed"


def test_a_workflow_asks_for_what_its_steps_read(plain: PlainPage, server: Server) -> None:
    text = solicit("north", policy="any_one").replace('"input": {\n  "text": "x"\n },', "")
    begin(plain, text)
    plain.get_by_label("text needed").fill("The river is wide.")
    press_start(plain)
    state = server.wait(run_of(plain))
    assert (state.status, state.workload) == ("completed", {"text": "The river is wide."})


def test_a_template_asks_for_its_parameters_and_starts_what_they_make(
    plain: PlainPage, server: Server
) -> None:
    begin(plain, (EXAMPLES / "arca" / "template.json").read_text())
    plain.get_by_text("The graph is drawn when all parameters are given.").wait_for()
    assert plain.get_by_label("wait").input_value() == "PT5S"
    assert "what to summarise" in plain.locator("#start").inner_text()
    plain.get_by_label("wait").fill("PT600S")
    plain.get_by_label("text needed").fill("{{run.id}}")
    press_start(plain)
    assert "holds a reference" in field_error(plain, "text needed")
    plain.get_by_label("text needed").fill("The river is wide.")
    press_start(plain)
    state = server.wait(run_of(plain))
    assert len(state.results["solicit"]["responses"]) == 2


def test_a_label_without_a_value_is_refused_in_words(plain: PlainPage) -> None:
    begin(plain, FORMS)
    plain.get_by_label("Labels").fill("blue")
    press_start(plain)
    assert "KEY=VALUE" in plain.get_by_role("alert").inner_text()
    assert plain.get_by_label("Labels").input_value() == "blue"
