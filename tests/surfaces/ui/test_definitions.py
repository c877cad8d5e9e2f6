"""Definitions in the browser: checked while they are typed, kept in versions, taken from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .plain import PlainPage
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
#: Where the cursor stands in the text.
LINE = """(text => text.value.slice(0, text.selectionStart).split("\\n").length)(
  document.getElementById("text"))"""
SUMMARY = "document.getElementById('found-summary').textContent"


def type_in(page: Any, text: str) -> None:
    """Where there are no scripts, a button checks it."""
    page.get_by_role("textbox", name="Text").fill(text)
    if isinstance(page, PlainPage):
        page.get_by_role("button", name="Check").click()


def summary(plain: PlainPage) -> str:
    return plain.locator("#found-summary").inner_text()


def test_problems_come_while_typing_and_go_when_they_are_mended(page: Any) -> None:
    page.goto("/definitions")
    type_in(page, BROKEN)
    becomes(page, f"{SUMMARY}.includes('it cannot run')")
    assert page.locator("#problems li").count() >= 2
    assert "did you mean 'noop'" in page.locator("#problems").inner_text()
    assert page.locator("#graph").count() == 0
    assert page.get_by_role("button", name="Start", exact=True).count() == 0
    assert page.get_by_role("textbox", name="Text").get_attribute("aria-invalid") == "true"
    becomes(page, "document.getElementById('said').textContent.includes('problem')")  # politely
    type_in(page, FORMS)
    becomes(page, f"{SUMMARY} === 'No problems; it can run'")
    assert page.locator("#marks button").count() == 0
    assert page.locator("#graph g.anb-box[data-step=echo]").count() == 1
    assert page.get_by_role("textbox", name="Text").get_attribute("aria-invalid") == "false"


def test_the_list_and_the_marks_lead_to_the_line(page: Any) -> None:
    page.goto("/definitions")
    type_in(page, BROKEN)
    page.get_by_role("button", name="Go to line 8").first.click()
    becomes(page, f"document.activeElement.id === 'text' && {LINE} === 8")
    mark = page.get_by_role("button", name="Line 8, error: there is no task kind")
    mark.click()
    becomes(page, f"document.activeElement.id === 'text' && {LINE} === 8")
    top = page.locator("#marks button").last.bounding_box()["y"]
    text = page.locator("#text").bounding_box()["y"]
    assert abs(top - text - 8 - 7 * 20) < 2  # beside its line


def test_the_keyboard_goes_from_problem_to_problem(page: Any) -> None:
    page.goto("/definitions")
    type_in(page, BROKEN)
    page.locator("#marks button").first.wait_for()
    lines = [int(one.inner_text()) for one in page.locator("#marks button").all()]
    assert len(lines) >= 2
    page.locator("#text").press("Control+Home")
    for line in (*lines, lines[0]):
        page.keyboard.press("F8")
        assert page.evaluate(LINE) == line
    page.keyboard.press("Shift+F8")
    assert page.evaluate(LINE) == lines[-1]
    page.locator("#text").focus()
    page.keyboard.press("Shift+Tab")  # the marks are one stop, before the text
    assert page.evaluate("document.activeElement.dataset.line") == str(lines[0])
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.line") == str(lines[1])
    page.keyboard.press("Enter")
    assert page.evaluate(LINE) == lines[1]


def test_the_graph_follows_the_text_and_stays_when_nothing_of_it_changed(page: Any) -> None:
    page.goto("/definitions")
    type_in(page, FORMS)
    page.locator("#graph g.anb-box[data-step=echo]").wait_for()
    page.evaluate("document.querySelector('#graph').dataset.same = 'yes'")
    type_in(page, FORMS.replace("Oslo", "Lima"))
    becomes(page, "document.querySelector('[name=\"value:city\"]').value === 'Lima'")
    assert page.evaluate("document.querySelector('#graph').dataset.same") == "yes"
    more = "    next: {arcs: [{step: after}]}\n  - step: after\n    tool: {kind: noop}\n"
    type_in(page, FORMS + more)
    page.locator("#graph g.anb-box[data-step=after]").wait_for()
    view = "document.querySelector('#graph svg').getAttribute('viewBox')"
    for way in ("Zoom in", "Zoom out"):
        before = page.evaluate(view)
        page.get_by_role("button", name=way).click()
        becomes(page, f"{view} !== {json.dumps(before)}")


def test_all_three_languages_are_checked_and_drawn(page: Any) -> None:
    for word, name, step in (
        ("a playbook", "greetings", "greet"),
        ("an orchestration", "second_opinion", "APPROVE"),
        ("a workflow definition", "best_offer", "solicit"),
    ):
        page.goto("/definitions")
        page.get_by_role("button", name=word).click()
        becomes(page, f"{SUMMARY} === 'No problems; it can run'")
        assert name in page.locator("#found .facts").inner_text()
        assert page.locator(f"#graph g.anb-box[data-step={step}]").count() == 1
        assert page.get_by_role("button", name=word).count() == 0  # the offer has gone


def test_a_file_is_chosen_or_dropped_into_the_editor(page: Any, tmp_path: Path) -> None:
    file = tmp_path / "forms.yaml"
    file.write_text(FORMS)
    page.goto("/definitions")
    page.locator("#file").set_input_files(str(file))
    becomes(page, f"{SUMMARY} === 'No problems; it can run'")
    drop(page, BROKEN)
    becomes(page, f"{SUMMARY}.includes('it cannot run')")
    assert page.get_by_role("textbox", name="Text").input_value() == BROKEN
    drop(page, "x" * (2 * 1024 * 1024 + 1))
    page.get_by_text("at most 2,097,152 are taken").wait_for()
    assert page.get_by_role("textbox", name="Text").input_value() == BROKEN


def drop(page: Any, text: str) -> None:
    dropped = page.evaluate_handle(
        """text => { const carried = new DataTransfer();
          carried.items.add(new File([text], 'dropped.yaml')); return carried }""",
        text,
    )
    page.dispatch_event("#editor", "dragover", {"dataTransfer": dropped})
    assert page.locator("#editor.dropping").count() == 1
    page.dispatch_event("#editor", "drop", {"dataTransfer": dropped})


def test_without_scripts_a_button_checks_and_an_upload_is_read(
    browser: Any, server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(BROKEN)
    context = browser.new_context(base_url=server.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/definitions")
    page.locator("#file").set_input_files(str(file))
    page.get_by_role("button", name="Check").click()
    assert page.locator("#problems li").count() >= 2
    assert page.get_by_role("textbox", name="Text").input_value() == BROKEN
    page.get_by_role("textbox", name="Text").fill(FORMS)
    page.get_by_role("button", name="Check").click()
    page.get_by_label("city").fill("Lima")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url("**/runs/*")
    context.close()


def test_what_is_kept_has_versions_that_can_be_opened_again(
    plain: PlainPage, server: Server
) -> None:
    first = FORMS.replace("name: forms", "name: kept_forms")
    plain.goto("/definitions")
    type_in(plain, first)
    plain.get_by_role("button", name="Keep").click()
    plain.get_by_text("Stored. Start runs of it").wait_for()
    type_in(plain, first.replace("Oslo", "Rome"))
    plain.get_by_text("not in the store").wait_for()
    plain.get_by_role("button", name="Keep").click()
    plain.get_by_text("Stored. Start runs of it").wait_for()
    section = plain.locator("section", has=plain.get_by_role("heading", name="Versions of"))
    rows = section.locator("tbody tr")
    assert rows.count() == 2
    assert "in the editor" in rows.first.inner_text()
    rows.last.get_by_role("link").click()
    assert plain.get_by_role("textbox", name="Text").input_value() == first
    assert plain.get_by_role("button", name="Keep").count() == 0  # it is there already
    plain.get_by_role("button", name="Start", exact=True).click()
    plain.wait_for_url("**/runs/*")
    assert len(server.parts.verbs.read.runs()) >= 1


def test_the_store_is_filtered_by_name_and_language_in_the_address(
    plain: PlainPage, server: Server
) -> None:
    server.run(FORMS)
    server.run(OPINIONS, {"amount": 5}, rules=RULES)
    plain.goto("/definitions")
    plain.get_by_label("Dialect").select_option("xrc729")
    plain.get_by_role("button", name="Filter").click()
    assert "dialect=xrc729" in plain.url
    store = plain.locator("section", has=plain.get_by_role("heading", name="In the store"))
    assert {row.inner_text().split()[1] for row in store.locator("tbody tr").all()} == {"xrc729"}
    plain.goto("/definitions?name=nothing_of_the_kind")
    plain.get_by_text("No definition fits.").wait_for()


def test_a_path_is_never_read_as_a_file(plain: PlainPage, tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text(FORMS.replace("forms", "very_secret"))
    plain.goto("/definitions")
    type_in(plain, str(secret))
    assert "it cannot run" in summary(plain)
    assert "very_secret" not in plain.locator("main").inner_text()
    assert plain.locator("#problems li").count() >= 1


def test_a_definition_is_registered_under_a_path_and_found_there_in_its_versions(
    plain: PlainPage,
) -> None:
    first = FORMS.replace("name: forms", "name: by_path, path: etl/forms")
    plain.goto("/definitions")
    type_in(plain, first)
    plain.get_by_role("button", name="Register").click()
    plain.get_by_text("Registered. Children and runs find it").wait_for()
    type_in(plain, first.replace("Oslo", "Rome"))
    assert summary(plain) == "No problems; it can run"
    plain.get_by_role("button", name="Register").click()
    plain.get_by_text("Registered. Children and runs find it").wait_for()
    rows = plain.locator("section[aria-labelledby=path-versions] tbody tr")
    assert [row.split()[0] for row in rows.all_inner_texts()] == ["2", "1"]
    plain.goto("/definitions?prefix=etl/")
    plain.get_by_role("link", name="etl/forms").click()
    assert "Rome" in plain.get_by_role("textbox", name="Text").input_value()
    plain.locator("section[aria-labelledby=path-versions]").get_by_role("link", name="1").click()
    assert plain.get_by_role("textbox", name="Text").input_value() == first
    plain.get_by_label("Path in the catalog").fill("not a path")
    plain.get_by_role("button", name="Register").click()
    plain.get_by_text("cannot be a path of the catalog").wait_for()
