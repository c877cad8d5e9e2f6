"""Sessions in the browser: a process that sleeps is woken, a session is ended, and both move."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

from .parties import EXAMPLES
from .plain import PlainPage
from .support import OPINIONS, RULES, Server, becomes, eventually

POLLING = (EXAMPLES / "orchestration" / "polling.json").read_text()
#: It looks again in ten minutes, until `paid` is there.
SLEEPY = {
    "POLL": {
        "payload": {"paid": {"type": "bool", "default": False}},
        "rules": ["[paid]"],
        "onInvalid": {"waitSec": 600},
    },
    "REPORT": {"payload": {}},
}


def start(server: Server, **labels: str) -> str:
    run = server.start(POLLING, rules=SLEEPY, labels=labels)
    assert eventually(lambda: server.parts.engine.state(run).phases.get("sleeping"))
    return run


def card(page: Any, run: str) -> Any:
    return page.locator(f'article[data-key="{run}"]')


def test_a_process_that_sleeps_says_so_and_is_woken_with_a_payload(
    page: Any, server: Server
) -> None:
    run = start(server)
    page.goto("/sessions")
    mine = card(page, run)
    assert re.search(r"waits for its wake time, due in (9|10) min", mine.inner_text())
    mine.get_by_label("Payload for process 2").fill('{"paid": true}')
    mine.get_by_role("button", name="Wake up process 2").click()
    page.get_by_text("Woken: it continues now.").wait_for()
    assert server.wait(run).status == "completed"
    becomes(
        page, f"document.querySelector('[data-key=\"{run}\"] h2 .badge').textContent == 'completed'"
    )
    assert mine.get_by_role("button").count() == 0


def test_a_payload_that_is_no_object_wakes_nobody(plain: PlainPage, server: Server) -> None:
    run = start(server)
    plain.goto("/sessions")
    mine = card(plain, run)
    mine.get_by_label("Payload for process 2").fill("[1]")
    mine.get_by_role("button", name="Wake up process 2").click()
    assert "one JSON object" in plain.locator("[role=alert]").inner_text()
    assert server.parts.engine.state(run).phases.get("sleeping")


def test_a_session_is_ended_with_a_reason_and_after_a_question(page: Any, server: Server) -> None:
    run = start(server, owner="0xEnd")
    page.goto("/sessions?owner=0xEnd")
    mine = card(page, run)
    mine.get_by_label("Reason").fill("the customer left")
    mine.get_by_role("button", name="End").click()
    page.locator("#confirm").get_by_role("button", name="No").click()
    assert server.status(run) != "cancelled"
    mine.get_by_role("button", name="End").click()
    page.locator("#confirm").get_by_role("button", name="Yes").click()
    page.get_by_text("Ended.").wait_for()
    assert "owner=0xEnd" in page.url  # the filter is kept
    assert card(page, run).locator("h2 .badge").inner_text() == "cancelled"
    events = server.parts.verbs.read.events(run)
    (ending,) = [one for one in events if one.kind == "run.ending"]
    assert ending.fields["reason"] == "the customer left"


def test_the_filter_by_owner_is_in_the_address(plain: PlainPage, server: Server) -> None:
    ours = start(server, owner="0xAda & co")
    others = start(server, owner="0xBob")
    plain.goto("/sessions")
    assert card(plain, others).count() == 1
    card(plain, ours).get_by_role("link", name="0xAda & co").click()
    assert unquote(plain.url).endswith("?owner=0xAda & co")
    assert card(plain, others).count() == 0
    plain.get_by_label("Owner").fill("nobody")
    plain.get_by_role("button", name="Filter").click()
    plain.get_by_text("No session belongs to this owner.").wait_for()
    plain.get_by_role("link", name="all").click()
    assert card(plain, others).count() == 1


def test_the_page_moves_and_leaves_alone_what_somebody_types(page: Any, server: Server) -> None:
    run = start(server, owner="0xLive")
    page.goto("/sessions?owner=0xLive")
    reason = card(page, run).get_by_label("Reason")
    reason.fill("half a rea")
    other = start(server, owner="0xLive")
    card(page, other).wait_for()  # it came by itself
    assert reason.input_value() == "half a rea"
    reason.fill("")
    page.locator("h1").click()
    server.call(server.parts.sessions.wake_up_process(f"{other}:2", payload={"paid": True}))
    badge = card(page, other).locator("h2 .badge")
    assert eventually(lambda: badge.inner_text() == "completed")


def test_a_process_that_joins_cannot_be_woken_and_says_what_it_waits_for(
    plain: PlainPage, server: Server
) -> None:
    rules = {**RULES, "C": {**RULES["C"], "onValid": {"waitSec": 600}}, "D": RULES["A"]}
    chained = OPINIONS.replace(
        '"C": {"rule": "cm:xrc137:C"}',
        '"C": {"rule": "cm:xrc137:C", "onValid": {"spawns": ["D"]}}, "D": {"rule": "cm:xrc137:D"}',
    ).replace('{"node": "C"', '{"node": "D"')
    run = server.start(chained, {"amount": 5}, rules=rules)
    assert eventually(lambda: server.parts.engine.state(run).phases.get("sleeping"))
    plain.goto("/sessions")
    joining = card(plain, run).locator("tr", has_text="joins g2")
    assert "a join: 1 of 2 delivered" in joining.inner_text()
    assert joining.get_by_role("button").count() == 0
    assert json.loads(plain.request.get(f"/api/v1/runs/{run}/processes").text())["items"]


def test_what_an_address_may_wake_is_shown_and_woken_in_its_name(
    plain: PlainPage, server: Server
) -> None:
    owner, friend = "0x" + "a1" * 20, "0x" + "b2" * 20
    allowed = {"__wakeUp": {"default": {"rpc": [friend]}}}
    run = server.start(POLLING, allowed, rules=SLEEPY, labels={"owner": owner})
    assert eventually(lambda: server.parts.engine.state(run).phases.get("sleeping"))
    plain.goto(f"/sessions?waker=0x{'c3' * 20}")
    plain.get_by_text("Nothing waits that this address may wake.").wait_for()
    plain.goto(f"/sessions?waker={friend}")
    mine = card(plain, run)
    assert "session 1 ·" in mine.inner_text()
    mine.get_by_label("Payload for process 2").fill('{"paid": true}')
    mine.get_by_role("button", name="Wake up process 2").click()
    plain.get_by_text("Woken: it continues now.").wait_for()
    assert server.wait(run).status == "completed"
