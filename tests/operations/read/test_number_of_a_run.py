"""A run has a number beside its id, and who finds it in a table finds the run."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import anabranch

PLAYBOOK = """
metadata: {name: numbered}
workload: {file: ""}
workflow:
  - step: write
    tool:
      kind: sqlite
      database: "{{ workload.file }}"
      commands: "create table t (id bigint); insert into t values ({{ execution_id }});"
"""


def test_the_number_in_a_table_is_the_one_that_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "rows.db"

    async def scenario() -> str:
        async with anabranch.Engine(tmp_path / "runs.db") as engine:
            run = await engine.start(PLAYBOOK, {"file": str(file)})
            assert (await engine.wait(run)).status == "completed"
            return str(engine.read.show(run)["execution_number"])

    shown = asyncio.run(scenario())
    connection = sqlite3.connect(file)
    try:
        assert connection.execute("select id, typeof(id) from t").fetchone() == (
            int(shown),
            "integer",
        )
    finally:
        connection.close()
