"""A run has a number beside its id, and who finds it in a table finds the run."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
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


SUMMED = """
metadata: {name: summed}
workload: {file: "", broken: ""}
workflow:
  - step: write
    loop: {in: [1, 2, 3], iterator: n}
    spec: {loop_mode: fanout, fanout: {fail_fast: false}}
    tool:
      - name: check
        kind: python
        args: {n: "{{ iter.n }}", broken: "{{ workload.broken }}"}
        code: |
          from pathlib import Path
          assert n != 2 or Path(broken).exists()
          result = [context["execution_id"], context["run_id"]]
      - name: keep
        kind: sqlite
        database: "{{ workload.file }}"
        command: "insert into t values (?, ?, ?)"
        params: ["{{ execution_id }}", "{{ check[0] }}", "{{ iter.n }}"]
    next: {arcs: [{step: read, when: "{{ execution_id > 0 }}"}]}
  - step: read
    tool:
      kind: sqlite
      database: "{{ workload.file }}"
      command: "select n from t where run = ? and code = run order by n"
      params: ["{{ execution_id }}"]
"""


def test_a_redrive_finds_the_rows_of_what_it_takes_over(tmp_path: Path) -> None:
    file, broken = tmp_path / "rows.db", tmp_path / "mended"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("create table t (run bigint, code bigint, n)")

    async def scenario() -> None:
        async with anabranch.Engine(tmp_path / "runs.db") as engine:
            first = await engine.start(SUMMED, {"file": str(file), "broken": str(broken)})
            assert (await engine.wait(first)).status == "failed"
            broken.touch()
            again = await engine.redrive(first)
            result = await engine.wait(again)
            assert result.steps["read"]["result"]["rows"] == [{"n": 1}, {"n": 2}, {"n": 3}]
            shown = [engine.read.show(run)["execution_number"] for run in (first, again)]
            assert shown[0] == shown[1]

    asyncio.run(scenario())
