"""The tab *Logs* in the browser: live, searched, reachable by keyboard, and escaped."""

from __future__ import annotations

from typing import Any

from anabranch.store.work_log_ports import LogFilter

from .plain import PlainPage
from .scenes import drop_connections, shot
from .support import NASTY, TWO_STEPS, Server, becomes, eventually

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: prints}\n"

#: Prints, waits at a door, and prints again.
PRINTS = f"""{HEAD}workload: {{door: d, text: hello}}
workflow:
  - step: first
    tool:
      kind: python
      args: {{text: "{{{{ workload.text }}}}"}}
      code: |
        import logging, sys
        print(text)
        print("to stderr", file=sys.stderr)
        logging.error("went wrong")
    next: {{arcs: [{{step: wait}}]}}
  - step: wait
    tool: {{kind: wait_at, door: "{{{{ workload.door }}}}"}}
    next: {{arcs: [{{step: last}}]}}
  - step: last
    tool: {{kind: shell, command: "echo the end"}}
"""

TEXTS = "[...document.querySelectorAll('#logs .log-text')].map(x => x.textContent)"


def printed(server: Server, run: str, lines: int) -> bool:
    rows = server.parts.store.log_rows(LogFilter(run=run))
    return sum(row.lines for row in rows) >= lines


def started(server: Server, door: str, text: str = "hello") -> str:
    run = server.start(PRINTS, {"door": door, "text": text})
    assert eventually(lambda: printed(server, run, 3))
    return run


def test_lines_appear_as_they_are_printed_without_a_reload(page: Any, server: Server) -> None:
    run = started(server, "logs1")
    page.goto(f"/runs/{run}")
    page.get_by_role("link", name="Logs").click()
    becomes(page, f"{TEXTS}.includes('hello')")
    assert "the end" not in page.locator("#logs").inner_text()
    page.evaluate("window.stayed = document.querySelector('#logs li')")
    shot(page, "logs-1")
    server.steps.open("logs1")
    becomes(page, f"{TEXTS}.includes('the end')")
    assert page.evaluate("stayed.isConnected")
    assert page.evaluate(TEXTS).count("hello") == 1
    shot(page, "logs-2")


def test_a_page_that_lost_its_connection_shows_every_line_once(page: Any, server: Server) -> None:
    steps = [
        f"  - step: wait{n}\n    tool: {{kind: wait_at, door: lost{n}}}\n"
        f"    next: {{arcs: [{{step: print{n}}}]}}\n"
        f"  - step: print{n}\n    tool: {{kind: shell, command: echo line {n}}}\n"
        for n in range(2)
    ]
    text = f"{HEAD}workflow:\n" + "    next: {arcs: [{step: wait1}]}\n".join(steps)
    run = server.start(text)
    page.goto(f"/runs/{run}/logs")
    server.steps.open("lost0")
    becomes(page, f"{TEXTS}.join() === 'line 0'")
    drop_connections(server)
    server.steps.open("lost1")
    becomes(page, f"{TEXTS}.join() === 'line 0,line 1'")


def test_lines_are_searched_and_chosen_by_level_with_the_keyboard(
    page: Any, server: Server
) -> None:
    server.steps.open("logs2")
    run = server.run(PRINTS, {"door": "logs2"})
    assert eventually(lambda: printed(server, run, 4))
    page.goto(f"/runs/{run}/logs")
    page.get_by_label("Lines with").focus()
    page.keyboard.type("STDERR")
    page.keyboard.press("Enter")
    becomes(page, f"{TEXTS}.join() === 'to stderr'")
    assert "search=STDERR" in page.url
    page.get_by_role("link", name="All lines").click()
    becomes(page, f"{TEXTS}.length === 4")
    page.get_by_label("Level").select_option("error")
    page.get_by_role("button", name="Show").press("Enter")
    becomes(page, f"{TEXTS}.join() === 'went wrong'")
    page.goto(f"/runs/{run}/logs?step=last")
    assert page.evaluate(TEXTS) == ["the end"]
    page.locator("#logs").focus()  # so that it can be scrolled
    assert page.evaluate("document.activeElement.id") == "logs"
    page.goto(f"/runs/{run}/logs?search=nowhere")
    assert page.locator("#no-logs").inner_text() == "No line fits."


def test_what_work_prints_is_text_and_nothing_else(page: Any, server: Server) -> None:
    run = started(server, "logs3", NASTY)
    page.goto(f"/runs/{run}/logs")
    assert NASTY in page.evaluate(TEXTS)
    second = server.start(PRINTS, {"door": "logs4", "text": "x"})
    page.goto(f"/runs/{second}/logs")
    server.steps.open("logs4")
    becomes(page, f"{TEXTS}.includes('the end')")
    assert page.evaluate("window.hacked") is None
    server.steps.open("logs3")


def test_lines_of_a_step_that_is_over_may_still_come_while_its_run_goes_on(
    plain: PlainPage, server: Server
) -> None:
    server.steps.open("over")
    run = server.start(TWO_STEPS, {"first": "over", "second": "goes on"})
    plain.goto(f"/runs/{run}/steps/dig")
    plain.locator("main", has_text="It printed nothing.").wait_for()
    assert plain.locator(".log-lines[data-follow]").count() == 1
    server.steps.open("goes on")
    server.wait(run)
    plain.reload()
    assert plain.locator(".log-lines").count() == 1
    assert plain.locator(".log-lines[data-follow]").count() == 0


def test_a_wrong_question_is_a_page_that_says_so(plain: PlainPage, server: Server) -> None:
    run = started(server, "logs5")
    server.steps.open("logs5")
    for query, said in (
        ("level=loud", "is no level"),
        ("attempt=x", "attempt is a number"),
        ("step=nowhere", "has no step"),
        ("before=x", "before is a number"),
    ):
        plain.goto(f"/runs/{run}/logs?{query}")
        assert said in plain.locator("main").inner_text()


def test_a_narrow_page_shows_whole_lines(page: Any, server: Server) -> None:
    run = started(server, "logs6", "a long line " * 30)
    server.steps.open("logs6")
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"/runs/{run}/logs")
    assert page.evaluate("document.documentElement.scrollWidth <= 400")
    shot(page, "logs-narrow")
