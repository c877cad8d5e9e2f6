"""What every page has: times of the browser, buttons that copy, shortcuts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .scenes import FAILING
from .support import ASKED, TWO_STEPS, Server, becomes, eventually


@pytest.fixture
def berlin(browser: Any, server: Server) -> Iterator[Any]:
    """A page of a person in Berlin, who lets it copy."""
    context = browser.new_context(base_url=server.url, timezone_id="Europe/Berlin")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context.new_page()
    context.close()


def test_times_are_those_of_the_browser_and_say_utc_on_hover(berlin: Any, server: Server) -> None:
    run = server.run(FAILING)
    berlin.goto(f"/runs/{run}/events")
    berlin.locator("#zone", has_text="Europe/Berlin").wait_for()
    for place in ("#run > .head time[data-form]", "#events time"):
        found = berlin.locator(place).first
        instant = found.get_attribute("datetime")
        local = found.evaluate(
            "one => new Date(one.dateTime).toLocaleString('sv-SE', {timeZone: 'Europe/Berlin'})"
        )
        assert found.inner_text().startswith(local)
        assert instant.replace("T", " ").replace("Z", " UTC") in found.get_attribute("title")


def test_the_head_of_a_run_says_how_long_ago_it_started(page: Any, server: Server) -> None:
    run = server.run(FAILING)
    page.goto(f"/runs/{run}")
    ago = page.locator("#run > .head time[data-ago]")
    becomes(page, "/ ago$/.test(document.querySelector('#run > .head time[data-ago]').textContent)")
    assert "UTC" in ago.get_attribute("title")
    page.evaluate("Date.now = (now => () => now() + 7_200_000)(Date.now)")
    becomes(page, "/^2 h/.test(document.querySelector('#run > .head time[data-ago]').textContent)")


def test_without_scripts_times_are_utc_and_nothing_pretends_to_copy(
    browser: Any, server: Server
) -> None:
    run = server.run(FAILING)
    context = browser.new_context(
        base_url=server.url, java_script_enabled=False, timezone_id="Europe/Berlin"
    )
    page = context.new_page()
    page.goto(f"/runs/{run}")
    assert page.locator("#zone").inner_text() == "Times are UTC."
    assert not page.locator("button.copy").first.is_visible()
    assert not page.locator("#show-keys").is_visible()
    context.close()


def test_ids_commands_and_json_are_copied_by_a_button(berlin: Any, server: Server) -> None:
    run = server.run(ASKED, {"amount": 31})
    berlin.goto(f"/runs/{run}")

    def copied(button: Any) -> str:
        """Not by the mark on the button: that goes away by itself."""
        berlin.evaluate("navigator.clipboard.writeText('')")
        button.click()
        return str(eventually(lambda: berlin.evaluate("navigator.clipboard.readText()")))

    assert copied(berlin.get_by_role("button", name="Copy the id of the run")) == run
    command = berlin.locator(".waits .command button").first
    assert copied(command) == f"anabranch decide {run} gate-2 --fulfil"
    berlin.goto(f"/runs/{run}/data")
    assert '"amount": 31' in copied(berlin.locator(".copied button").first)
    becomes(berlin, "document.getElementById('said').textContent === 'Copied.'")


def test_a_slash_searches_and_a_question_mark_explains_the_keys(page: Any, server: Server) -> None:
    server.run(FAILING)
    page.goto("/runs")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.closest('form[role=search]') !== null")
    page.keyboard.type("?/g")  # a person types: no shortcut
    assert page.evaluate("document.activeElement.value").endswith("?/g")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    becomes(page, "document.getElementById('keys').open")
    assert "approvals" in page.locator("#keys").inner_text()
    page.keyboard.press("Escape")
    becomes(page, "!document.getElementById('keys').open")
    page.goto("/workers")
    page.keyboard.press("/")  # nothing to search here: the runs are
    page.wait_for_url("**/runs#search")
    becomes(page, "document.activeElement.closest('form[role=search]') !== null")


def test_letters_lead_to_pages_rows_and_tabs(page: Any, server: Server) -> None:
    run = server.run(FAILING)
    page.goto(f"/runs/{run}")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == "fetch"
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.textContent") == "fetch"
    page.keyboard.press("]")
    page.wait_for_url(f"**/runs/{run}/timeline")
    page.keyboard.press("[")
    page.wait_for_url(f"**/runs/{run}")
    page.evaluate("performance.now = () => 0")  # however long it takes to press two keys
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_url("**/workers")


def test_a_step_shows_what_it_printed_and_follows(page: Any, server: Server) -> None:
    text = TWO_STEPS.replace(
        '    tool: {kind: wait_at, args: {door: "{{ workload.first }}"}}\n',
        '    tool:\n      - wait: {kind: wait_at, args: {door: "{{ workload.first }}"}}\n'
        "      - say: {kind: python, code: \"print('one of two'); print('two of two')\"}\n",
    )
    run = server.start(text, {"first": "prints", "second": "printed"})
    page.goto(f"/runs/{run}")
    page.locator("#steps tr[data-step=dig] a").click()
    page.locator("#drawer [data-key=logs] .empty", has_text="Nothing was printed yet").wait_for()
    all_lines = page.locator("#drawer [data-key=logs] a")
    assert not all_lines.is_visible()
    server.steps.open("prints")
    lines = "[...document.querySelectorAll('#drawer .log-lines .log-text')]"
    becomes(page, f"{lines}.map(one => one.textContent).join() === 'one of two,two of two'")
    assert all_lines.is_visible()
    assert all_lines.get_attribute("href").startswith(f"/runs/{run}/logs?step=dig")
    page.keyboard.press("Escape")
    page.locator("#steps tr[data-step=fill] a").click()
    page.locator("#drawer [data-key=logs] .empty", has_text="Nothing was printed yet").wait_for()
    server.steps.open("printed")
    server.wait(run)
    page.locator("#drawer [data-key=logs] .empty", has_text="Nothing was printed.").wait_for()
