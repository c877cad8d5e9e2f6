"""HTML and script in whatever participants, rules, owners and forms say stay text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from .plain import PlainPage
from .support import NASTY, OPINIONS, RULES, Server, becomes, eventually
from .test_definitions import SUMMARY
from .test_escaping import FOREIGN, says_it
from .test_sessions import POLLING, SLEEPY

TEXT = NASTY.replace("{{", "((")


def offers(_request: Any) -> Any:
    return {"price": 3, "said": TEXT}


def refuses(_request: Any) -> Any:
    return {"status": "rejected", "error": {"code": TEXT, "message": TEXT}}


def away(_request: Any) -> Any:
    raise ConnectionError(TEXT)


BOOK = {
    "participants": {TEXT: offers, "refuses": refuses, "away": away},
    "capabilities": {TEXT: lambda _request: {"verdict": TEXT}},
}
WORKFLOW = json.dumps(
    {
        "workflow_id": "nasty",
        "label": TEXT,
        "description": TEXT,
        "input": {"text": TEXT, "deep": {TEXT: [TEXT]}},
        "plan": {
            "steps": [
                {
                    "step_id": "ask",
                    "service_type": TEXT,
                    "input": {"text": "{{input.text}}"},
                    "target": {
                        "resolve": "static",
                        "participants": [TEXT, "refuses", "away"],
                        "filter": {TEXT: TEXT},
                    },
                    "fan_in": {"policy": "best_of", "score_field": "/price"},
                    "timing": {"timeout": "PT1M"},
                    "fulfillment": {
                        "policy": "external_decision",
                        "decision_source": {
                            "kind": "capability",
                            "capability_id": TEXT,
                            "input": {},
                        },
                        "result_match": {
                            "path": "/verdict",
                            "fulfilled_values": [True],
                            "not_fulfilled_values": [TEXT],
                        },
                        "on_not_fulfilled": "pause",
                    },
                }
            ]
        },
    }
)
BAD_RULE = {**RULES["A"], "rules": [f"[amount] > 0 && '{TEXT[:10]}' == 'x'"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(Path(tmp_path_factory.mktemp("nasty")), BOOK) as running:
        yield running


def untouched(page: Any, address: str) -> None:
    page.evaluate("() => new Promise(go => requestAnimationFrame(() => setTimeout(go, 0)))")
    assert page.evaluate("window.hacked") is None, address
    assert page.locator(f"{FOREIGN}, main b").count() == 0, address


def test_what_participants_and_owners_say_stays_text(
    page: Any, plain: PlainPage, server: Server
) -> None:
    run = server.run(WORKFLOW)
    session = server.run(
        OPINIONS,
        {"amount": 5, "note": TEXT},
        rules={**RULES, "A": BAD_RULE},
        labels={"owner": TEXT},
    )
    shown = 0
    for address in (
        f"/runs/{run}/joins",
        f"/runs/{run}/dispatches",
        f"/runs/{run}",
        f"/runs/{session}/joins",
        f"/runs/{session}/receipts",
        "/sessions",
        f"/sessions?owner={quote(TEXT)}",
        "/approvals",
        "/definitions?fingerprint=" + server.parts.verbs.read.find(run).definition,
        f"/definitions?name={quote(TEXT)}",
    ):
        plain.goto(address)
        shown += says_it(plain) > 0
        assert plain.locator(f"{FOREIGN}, main b").count() == 0, address
    assert shown >= 8
    for address in (f"/runs/{run}", f"/runs/{session}/joins", f"/runs/{run}/joins"):
        page.goto(address)
        untouched(page, address)
    assert "<img src=x" in page.locator(".who-cell").first.inner_text()
    assert "<img src=x" in page.locator(".judged").first.inner_text()
    answer = page.request.get(f"/runs/{run}/snapshot.json")
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_a_panel_is_sent_later_is_text_too(page: Any, server: Server) -> None:
    page.goto("/sessions")
    run = server.start(POLLING, rules=SLEEPY, labels={"owner": TEXT})
    page.locator(f'[data-key="{run}"]').wait_for()
    untouched(page, "/sessions")
    assert "<img src=x" in page.locator(f'[data-key="{run}"]').inner_text()
    assert eventually(lambda: server.parts.engine.state(run).phases.get("sleeping"))


def test_the_editor_shows_names_fields_and_errors_as_text(page: Any) -> None:
    page.goto("/definitions")
    field = json.dumps(TEXT)
    text = f"""apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: {field}, description: {field}}}
workload: {{{field}: {field}, list: [{field}]}}
workflow:
  - step: a
    desc: {field}
    tool: {{kind: noop}}
"""
    page.get_by_role("textbox", name="Text").fill(text)
    becomes(page, f"{SUMMARY}.includes('it can run')")
    untouched(page, "typed")
    page.get_by_label("list").fill(TEXT)
    page.get_by_role("button", name="Start", exact=True).click()
    page.locator(".field-error").wait_for()
    untouched(page, "refused")
    assert page.get_by_label("list").input_value() == TEXT
    assert page.locator("#field-1").input_value() == TEXT
    page.get_by_role("textbox", name="Text").fill(text + f"    {field}: 1\n")
    page.locator("#marks button").first.wait_for()
    untouched(page, "problems")
    assert "<img src=x" in page.locator("#marks button").first.get_attribute("aria-label")
