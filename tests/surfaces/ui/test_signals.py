"""Signals on the pages of a run: what it waits for, a form to send one, and what became of them."""

from __future__ import annotations

from .plain import PlainPage
from .support import Server, eventually

WAITING = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: payment}
workload: {order: 7}
workflow:
  - step: payment
    tool:
      kind: wait
      event: paid
      filter: "{{ signal.payload.order == workload.order }}"
      timeout: 2d
    next: {arcs: [{step: ship}]}
  - {step: ship, tool: {kind: noop, result: "{{ payment.payload.note }}"}}
"""
NOTE = "<b>bold</b> & 'quoted'"


def waits(server: Server) -> str:
    run = server.start(WAITING, {})
    assert eventually(lambda: server.parts.engine.state(run).waits)
    return run


def test_the_page_says_what_the_run_waits_for_and_leads_to_the_form(
    plain: PlainPage, server: Server
) -> None:
    run = waits(server)
    plain.goto(f"/runs/{run}")
    said = plain.locator("ul.waits").inner_text()
    assert "a signal paid that fits {{ signal.payload.order == workload.order }}" in said
    plain.get_by_role("link", name="Send the signal").click()
    assert plain.url.endswith(f"/runs/{run}/data#signal")
    assert plain.locator("#signal-name option").all_inner_texts() == ["paid"]


def test_a_signal_is_sent_kept_shown_and_taken(plain: PlainPage, server: Server) -> None:
    run = waits(server)
    plain.goto(f"/runs/{run}/data")
    plain.locator("#payload").fill('{"order": 8, "note": "' + NOTE.replace('"', "'") + '"}')
    plain.locator("#signal input[name=ttl]").fill("1h")
    plain.locator("#signal button").click()
    plain.get_by_text("Sent. A wait took the signal, or the run keeps it for one.").wait_for()
    plain.goto(f"/runs/{run}/data")
    row = plain.locator("#signal-table tbody tr")
    assert row.count() == 1
    assert "kept" in row.inner_text()
    assert NOTE in row.inner_text(), "data is text, not markup"
    plain.locator("#payload").fill('{"order": 7, "note": "thanks"}')
    plain.locator("#signal button").click()
    assert server.wait(run).status == "completed"
    plain.goto(f"/runs/{run}/data")
    texts = plain.locator("#signal-table tbody tr").all_inner_texts()
    assert [("taken by payment" in text, "dropped" in text) for text in texts] in (
        [(True, False), (False, True)],
        [(False, True), (True, False)],
    )
    assert plain.locator("#signal").count() == 0, "a run that has ended takes no signals"


def test_a_payload_that_is_no_json_is_refused_and_nothing_is_sent(
    plain: PlainPage, server: Server
) -> None:
    run = waits(server)
    plain.goto(f"/runs/{run}/data")
    plain.locator("#payload").fill("{order: 7}")
    plain.locator("#signal button").click()
    plain.get_by_text("the payload is not JSON").first.wait_for()
    assert server.parts.engine.state(run).signals == {}


def test_a_run_that_waits_for_no_signal_shows_none(plain: PlainPage, server: Server) -> None:
    text = WAITING.replace("event: paid", "for: 1h").replace("timeout: 2d", "")
    text = text.replace('filter: "{{ signal.payload.order == workload.order }}"', "")
    run = server.start(text.replace("{{ payment.payload.note }}", "x"), {})
    plain.goto(f"/runs/{run}/data")
    assert plain.locator("#signals").count() == 0
