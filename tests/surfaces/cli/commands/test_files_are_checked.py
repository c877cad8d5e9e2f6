"""`anabranch check` names the files that the work may not open, and looks at none of them."""

from __future__ import annotations

import pytest

from ..support import HEAD, Here

READS = f"""{HEAD}metadata: {{name: reads}}
keychain:
  - {{name: key, kind: file, path: /run/secrets/key}}
workflow:
  - step: rows
    loop: {{in: {{csv: data/rows.csv}}, iterator: row}}
    tool: {{kind: artifact, action: get, uri: ../outside.json}}
    next: {{arcs: [{{step: child}}]}}
  - step: child
    tool:
      - {{kind: playbook, path: /elsewhere/child.yaml}}
      - {{kind: transfer, source: {{tool: sqlite, database: /other.db, query: SELECT 1}},
         target: {{tool: duckdb, database: data/mine.duckdb, table: t}}}}
      - {{kind: artifact, action: get, uri: /proc/self/environ}}
"""


def test_check_names_the_files_outside_of_the_folders(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("reads.yaml", READS)
    first = here.run("check", "reads.yaml")
    assert first.out.count("file-not-allowed") == 1, "of the system, whatever the setting says"
    monkeypatch.setenv("ANABRANCH_FILES_ALLOWED", ".")
    told = here.run("check", "reads.yaml")
    assert told.code == 0
    lines = [line for line in told.out.splitlines() if "file-not-allowed: warning" in line]
    named = ("/run/secrets/key", "../outside.json", "/elsewhere/child.yaml", "/other.db", "/proc/")
    assert len(lines) == len(named)
    assert all(any(name in line for line in lines) for name in named)
