"""The page of schedules: what comes next, paused and resumed with a click, a run begun now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.operations.definitions.catalog import Draft
from anabranch.operations.schedules.schedules import ScheduleDraft
from anabranch.surfaces.http.serve import Server

from ..cli.server_in_thread import served
from .support import eventually

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: nightly, path: reports/nightly}
workflow:
- step: report
  tool: {kind: noop}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place: Path = tmp_path_factory.mktemp("schedules") / "store.db"
    with served(place) as server:
        server.parts.catalog.register([Draft(PLAYBOOK, "nightly.yaml")], 1)
        schedules = server.parts.scheduling.schedules
        schedules.add(
            ScheduleDraft(
                name="nightly",
                path="reports/nightly",
                cron="0 3 1 1 *",
                timezone="Europe/Berlin",
            )
        )
        yield server


def test_a_schedule_is_paused_resumed_and_begun_now_with_a_click(page: Any, server: Server) -> None:
    page.goto("/runs")
    page.get_by_role("link", name="Schedules").click()
    row = page.locator("tr", has_text="nightly").last
    row.get_by_text("-01-01 03:00:00").first.wait_for()
    row.get_by_text("Europe/Berlin, skip").wait_for()
    page.get_by_role("button", name="Pause nightly").click()
    page.get_by_text("No tick begins a run").wait_for()
    page.locator(".badge", has_text="paused").wait_for()
    schedules = server.parts.scheduling.schedules
    assert schedules.show("nightly").state == "paused"
    page.get_by_role("button", name="Resume nightly").click()
    page.get_by_text("It goes on with its next time.").wait_for()
    assert schedules.show("nightly").state == "on"
    page.get_by_role("button", name="Run now nightly").click()
    page.get_by_text("A run begins within a moment.").wait_for()
    assert eventually(lambda: schedules.show("nightly").fired == 1)
    link = page.get_by_role("link", name="nightly-now-")  # the page follows by itself
    link.wait_for()
    link.click()
    page.get_by_text("schedule=nightly").first.wait_for()
