"""What a loop reads is described by its definition alone: data may look like anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.dialects.noetl.sources import DESCRIPTORS
from anabranch.work.loops.collections.port import KIND

#: The same mapping from the input of the run, from the answer of a step, and in a list of its own.
PLACES = ("{{ workload.given }}", "{{ answer.data }}", "{{ answer }}")
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: described}
workload: {given: {}}
workflow:
  - step: answer
    tool: {kind: noop, result: "{{ {'data': workload.given} if WRAPPED else workload.given }}"}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "PLACE", iterator: one, spec: {mode: MODE}}
    tool: {kind: noop, result: "{{ iter.one.key }}"}
"""


def looking_like(kind: str, file: Path) -> dict[str, Any]:
    """What would be read if it came from a definition."""
    described: dict[str, Any] = {
        "range": 3,
        "sql": {"kind": "sqlite", "database": str(file), "query": "SELECT 1 AS n", "key": "n"},
        "claim": {"kind": "sqlite", "database": str(file), "command": "DELETE FROM n RETURNING n"},
        "pages": {"url": "http://127.0.0.1:1/", "auth": "prod"},
        "results_of": "anabranch:run:other/loop/l1",
    }
    if kind == KIND:
        return {KIND: "range", "range": [0, 3, 1]}
    return {kind: described.get(kind, str(file))}


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_mapping_that_looks_like_a_collection_is_gone_through_as_pairs(
    tmp_path: Path, mode: str
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"key": "of the file"}\n')
    for kind in (*DESCRIPTORS, KIND):
        given = looking_like(kind, file)
        for place in PLACES:
            text = PLAYBOOK.replace("PLACE", place).replace("MODE", mode)
            text = text.replace("WRAPPED", str(place.endswith(".data }}")))
            done = anabranch.run(text, {"given": given}, store=":memory:")
            assert done.status == "completed", (kind, place, done.result)
            assert done.result["results"] == list(given), (kind, place, json.dumps(done.result))
