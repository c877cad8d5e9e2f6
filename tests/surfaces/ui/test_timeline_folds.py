"""The timeline: scaled to the work, with the waiting folded, the critical path and shards."""

from __future__ import annotations

from typing import Any

from .scenes import shot
from .support import LOOP, Server, becomes

#: Little work, a wait that is far longer, and a branch that nobody waits for.
PATIENT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: patient}
workflow:
  - step: begin
    tool: {kind: python, code: "import time; time.sleep(0.01)"}
    next: {spec: {mode: inclusive}, arcs: [{step: aside}, {step: rest}]}
  - step: aside
    tool: {kind: noop}
  - step: rest
    tool: {kind: wait, for: 3s}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: python, code: "import time; time.sleep(0.01)"}
"""


def width(page: Any, words: str) -> float:
    return float(
        page.locator(f'#timeline rect[data-words*="{words}"]').first.bounding_box()["width"]
    )


def test_waiting_is_folded_and_can_be_unfolded(page: Any, server: Server) -> None:
    run = server.run(PATIENT)
    page.goto(f"/runs/{run}/timeline")
    page.wait_for_selector("#timeline rect.fold")
    # On a busy machine a job may wait for its turn so long that this is folded as well.
    words = "all => all.map(one => one.dataset.words)"
    folds = page.locator("#timeline rect.fold").evaluate_all(words)
    assert all(one.startswith("nothing at work for ") and "folded" in one for one in folds)
    folded = width(page, "after: at work")
    shot(page, "timeline-folded")
    page.get_by_role("button", name="Fold waiting").click()
    becomes(page, "!document.querySelector('#timeline rect.fold')")
    assert page.locator("#fold-waiting").get_attribute("aria-pressed") == "false"
    assert width(page, "after: at work") < folded
    page.get_by_role("button", name="Fold waiting").click()
    page.wait_for_selector("#timeline rect.fold")


def test_the_critical_path_is_marked_and_told(page: Any, server: Server) -> None:
    run = server.run(PATIENT)
    page.goto(f"/runs/{run}/timeline")
    page.wait_for_selector("#timeline rect.critical")
    assert page.locator("#timeline rect.critical").count() == 3
    told = page.locator("#critical-path").inner_text()
    assert [one.split(" (")[0] for one in told.split(" → ")] == [
        "Critical path begin", "rest", "after",
    ]  # fmt: skip


def test_the_shards_of_a_loop_are_shown_on_request(page: Any, server: Server) -> None:
    run = server.run(LOOP, {"count": 60})
    page.goto(f"/runs/{run}/timeline")
    page.wait_for_selector("#timeline rect.seg")
    page.get_by_role("button", name="Shards").click()
    page.locator("#timeline .lane-shard").first.wait_for()
    names = page.locator("#timeline .lane-shard").all_text_contents()
    assert len(names) == 6
    assert names[0].startswith("items 0 to 9")
    page.get_by_role("button", name="Shards").click()
    becomes(page, "!document.querySelector('#timeline .lane-shard')")
