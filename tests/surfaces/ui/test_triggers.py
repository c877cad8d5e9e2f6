"""The page of triggers: what fires what, paused and resumed with a click, aliases rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.operations.definitions.catalog import Draft
from anabranch.operations.triggers.triggers import AfterDraft, HookDraft, TriggerDraft
from anabranch.surfaces.http.serve import Server

from ..cli.server_in_thread import served
from .support import eventually

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: NAME, path: NAME}
workload: {order: "VERSION"}
workflow:
- step: only
  tool: {kind: noop}
"""


def written(name: str, version: int = 1) -> Draft:
    return Draft(PLAYBOOK.replace("NAME", name).replace("VERSION", str(version)), name)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place: Path = tmp_path_factory.mktemp("triggers") / "store.db"
    with served(place) as server:
        catalog, triggering = server.parts.catalog, server.parts.triggering
        catalog.register([written("quotes"), written("load")], 1)
        catalog.register([written("quotes", 2)], 2)
        triggering.aliases.set("prod", "quotes@1", "ann")
        triggering.aliases.set("prod", "quotes@2", "ann")
        hook = HookDraft(credential="shop")
        triggering.triggers.add(TriggerDraft(name="paid", hook=hook, path="prod"))
        after = AfterDraft(definition="load", labels={"tenant": "north"})
        triggering.triggers.add(TriggerDraft(name="report", after=after, path="quotes"))
        unknown = TriggerDraft(
            name="broken", after=after, path="quotes", input={"order": "{{ run.result.x.y }}"}
        )
        triggering.triggers.add(unknown)
        yield server


def test_triggers_and_aliases_are_seen_and_changed_with_a_click(page: Any, server: Server) -> None:
    page.goto("/runs")
    page.get_by_role("link", name="Triggers").click()
    page.get_by_text("POST /hooks/paid").wait_for()
    page.get_by_text("signed with shop").wait_for()
    page.get_by_role("button", name="Pause paid").click()
    page.get_by_text("Calls are refused").wait_for()
    triggers = server.parts.triggering.triggers
    assert triggers.show("paid").state == "paused"
    page.get_by_role("button", name="Resume paid").click()
    page.get_by_text("It takes calls and finished runs again.").wait_for()
    assert triggers.show("paid").state == "on"
    page.get_by_role("button", name="Roll back prod").click()
    page.get_by_text("The alias leads to what it led to before.").wait_for()
    assert server.parts.triggering.aliases.show("prod").target == "quotes@1"


def test_a_finished_run_shows_what_it_began_and_what_was_refused(page: Any, server: Server) -> None:
    page.goto("/triggers")
    begun = page.request.post("/api/v1/runs", data={"path": "load", "labels": {"tenant": "north"}})
    assert begun.ok
    triggers = server.parts.triggering.triggers
    assert eventually(lambda: triggers.show("broken").refused == 1)
    page.locator("tr", has_text="broken").get_by_text("the template of `input`").wait_for()
    link = page.locator("tr", has_text="report").get_by_role("link", name="report-")
    link.wait_for()  # the page follows by itself
    page.get_by_role("button", name="Try again broken").wait_for()
    link.click()
    page.get_by_text("trigger=report").first.wait_for()
