"""A run that waits for its child: what it waits for is what the child waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..support import HEAD, Here

GATE = """metadata: {name: gate}
workflow:
  - step: ask
    tool: {kind: decision, ask: "Ship it?"}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, result: shipped}
"""
CALLS = """metadata: {name: calls}
workflow:
  - step: call
    spec: {retry: {attempts: 3}}
    tool: {kind: playbook, path: CHILD, return_step: end}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, result: "{{ call.result }}"}
"""
FAILS_TWICE = """metadata: {name: fails_twice}
workflow:
  - step: end
    tool:
      kind: python
      input: {place: PLACE}
      code: |
        import pathlib
        file = pathlib.Path(place) / 'tries'
        tries = int(file.read_text()) + 1 if file.exists() else 1
        file.write_text(str(tries))
        if tries < 3:
            raise RuntimeError('not yet')
        return tries
"""


@pytest.fixture
def here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Here:
    made = Here(tmp_path, capsys, monkeypatch)
    made.write("gate.yaml", HEAD + GATE)
    made.write("middle.yaml", HEAD + CALLS.replace("CHILD", "./gate.yaml"))
    made.write("outer.yaml", HEAD + CALLS.replace("CHILD", "./middle.yaml"))
    made.write("tries.yaml", HEAD + FAILS_TWICE.replace("PLACE", str(tmp_path)))
    made.write("patient.yaml", HEAD + CALLS.replace("CHILD", "./tries.yaml"))
    return made


def test_a_parent_whose_grandchild_waits_for_a_person_is_left_and_says_for_whom(here: Here) -> None:
    left = here.run("run", "outer.yaml", "--run-id", "outer")
    assert left.code == 4, left
    assert "ask waits for a decision: Ship it?" in left.err
    (line,) = [line for line in left.err.splitlines() if line.endswith("--fulfil")]
    told = here.ok("explain", "outer", "--json").json["waiting"]
    assert [one["movers"][0] for one in told] == [line.partition(": ")[2].strip()]
    here.ok(*told[0]["movers"][0].split()[1:])
    ended = here.run("resume")
    assert ended.code == 0, ended
    assert here.show("outer")["result"] == "shipped"


def test_a_child_that_failed_is_tried_again_as_a_run_of_its_own(here: Here) -> None:
    done = here.ok("run", "patient.yaml", "--json")
    assert done.json["result"] == 3
    runs = here.ok("runs", "--json").json
    assert sorted(one["status"] for one in runs) == ["completed", "completed", "failed", "failed"]
