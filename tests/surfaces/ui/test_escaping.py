"""Whatever stands in names, labels, values and errors comes out as text, everywhere."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from anabranch.kernel import stimuli as s

from .plain import PlainPage, read
from .scenes import FAILING, confirm
from .support import ASKED, LOOP, NASTY, OPINIONS, RULES, Server, chosen, eventually

SCARY = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: {json.dumps(NASTY)}, description: {json.dumps(NASTY)}}}
workload: {{x: {json.dumps(NASTY.replace("{{", "(("))}}}
workflow:
  - step: ask_{{0}}
    desc: {json.dumps(NASTY)}
    tool: {{kind: decision, ask: {json.dumps(NASTY.replace("{{", "(("))}}}
""".replace("ask_{0}", "ask")
TEXT = NASTY.replace("{{", "((")


@pytest.fixture(scope="module")
def runs(server: Server) -> dict[str, str]:
    labels = {"label": NASTY, NASTY: "key"}
    asked = server.run(ASKED.replace("120", "null"), {"amount": TEXT, "more": {TEXT: [TEXT]}})
    server.call(server.parts.verbs.send(asked, s.Pause(NASTY, NASTY)))
    scary = server.run(SCARY, labels=labels)
    return {
        "scary": scary,
        "loop": server.run(LOOP, {"count": 60, "error": TEXT}, labels=labels),
        "asked": asked,
        "joined": server.run(OPINIONS, {"amount": 5, "note": NASTY}, rules=RULES, labels=labels),
        "failing": server.run(FAILING, {"error": TEXT}),
        "kept": server.parts.verbs.read.find(scary).definition,
    }


NAMES = ("scary", "loop", "asked", "joined", "failing")
WAYS = ("", "/timeline", "/timeline/table", "/events", "/joins", "/data", "/definition")
SHOWN = (
    "/runs",
    *(f"/runs/{{{name}}}{way}" for name in NAMES for way in WAYS),
    f"/runs/{{failing}}?step={quote(NASTY)}",
    *(f"/runs/{{loop}}/loops/each?state={state}" for state in ("failed", "", "succeeded")),
    "/approvals",
    "/sessions",
    "/definitions?fingerprint={kept}",
    f"/runs?name={quote(NASTY)}&label={quote('a=' + NASTY)}",
    f"/runs/{quote(NASTY, safe='')}",
    f"/{quote(NASTY, safe='')}",
    f"/definitions?fingerprint={quote(NASTY)}",
    f"/login?next={quote(NASTY)}",
    f"/runs/{{loop}}/loops/{quote(NASTY, safe='')}",
    f"/runs/{{loop}}/loops/each?error={quote(NASTY)}",
    f"/sessions?owner={quote(NASTY)}",
)
#: Of pages with scripts that draw or change something, one of each kind; the others are visited
#: with the same words by `test_content_security.py`.
SEEN_THERE = {
    *("runs", "run", "run that joins", "timeline of a loop", "data", "definition", "approvals"),
    *("sessions", "entrance"),
}
DRAWN = {
    "runs": "/runs",
    "run": "/runs/{scary}",
    "run of a loop": "/runs/{loop}",
    "run that joins": "/runs/{joined}",
    "timeline": "/runs/{failing}/timeline",
    "timeline of a loop": "/runs/{loop}/timeline",
    "events": "/runs/{failing}/events",
    "joins": "/runs/{joined}/joins",
    "data": "/runs/{asked}/data",
    "definition": "/runs/{scary}/definition",
    "step": f"/runs/{{failing}}?step={quote(NASTY)}",
    "loop": "/runs/{loop}/loops/each?state=failed",
    "approvals": "/approvals",
    "sessions": "/sessions",
    "editor": "/definitions?fingerprint={kept}",
    "entrance": f"/login?next={quote(NASTY)}",
}
FOREIGN = "main img, main script:not([type='application/json']), main [onerror]"


def says_it(plain: PlainPage) -> int:
    """As words, and in fields."""
    fields = plain.locator("input, textarea").all()
    texts = (read(plain.root), ",".join(one.input_value() for one in fields))
    return sum("<img src=x onerror" in text for text in texts)


def test_nothing_that_is_shown_becomes_markup(plain: PlainPage, runs: dict[str, str]) -> None:
    shown, wrong = 0, []
    for address in SHOWN:
        plain.goto(address.format(**runs))
        shown += says_it(plain)
        parts = FOREIGN if plain.locator("main").count() else FOREIGN.replace("main ", "")
        if plain.locator(parts).count():
            wrong.append(address)
    assert wrong == []
    assert shown >= 20  # it is there to be read


@pytest.mark.parametrize("name", chosen(DRAWN, SEEN_THERE))
def test_nothing_that_a_script_draws_becomes_markup(
    page: Any, runs: dict[str, str], name: str
) -> None:
    page.goto(DRAWN[name].format(**runs))
    page.evaluate("() => new Promise(go => requestAnimationFrame(() => setTimeout(go, 0)))")
    assert page.evaluate("window.hacked") is None
    assert page.locator(FOREIGN).count() == 0


def test_what_a_live_page_is_sent_is_text_too(page: Any, server: Server) -> None:
    run = server.run(ASKED)
    page.goto(f"/runs/{run}")
    server.call(server.parts.verbs.send(run, s.Pause(NASTY, NASTY)))
    page.locator("[data-part=waits]").get_by_text("<img src=x").wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0
    server.call(server.parts.verbs.send(run, s.Resume(NASTY)))


def test_what_is_typed_into_questions_and_answers_is_text_too(page: Any, server: Server) -> None:
    run = server.run(ASKED)
    page.goto(f"/runs/{run}")
    page.get_by_role("button", name="Pause", exact=True).click()
    confirm(page, reason=NASTY)
    page.locator("[data-part=waits]").get_by_text("<img src=x").wait_for()
    server.call(server.parts.verbs.send(run, s.Resume("kim")))
    page.goto("/approvals")
    card = page.locator(f'article[data-gate="{run}"]')
    card.get_by_label("Reason").fill(NASTY)
    way = card.locator("form").get_attribute("action")
    server.call(server.parts.verbs.send(run, s.Decide("approve", "fulfil", NASTY, NASTY)))
    reject = page.locator(f'form[action="{way}"]').get_by_role("button", name="Reject")
    assert eventually(reject.is_disabled)  # the page has heard of it
    page.evaluate("document.querySelectorAll('button').forEach(one => one.disabled = false)")
    reject.click()
    assert page.locator("[role=alert]").inner_text().count("<img src=x onerror") == 2
    assert page.locator("main img").count() == 0
    assert page.evaluate("window.hacked") is None


def test_what_is_typed_into_the_editor_comes_back_as_it_was(page: Any) -> None:
    page.goto("/definitions")
    page.get_by_role("textbox", name="Text").fill(f"{NASTY}\n</textarea><b>bold</b>")
    page.get_by_role("button", name="Check").click()
    page.locator("#problems, #found .trouble").first.wait_for()
    assert NASTY in page.get_by_role("textbox", name="Text").input_value()
    assert page.locator("main b").count() == 0
    assert page.evaluate("window.hacked") is None
