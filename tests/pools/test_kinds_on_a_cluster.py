"""Every kind of work does in a process of a cluster what it does in the engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anabranch.pools.entry.tools import tools_to_send
from anabranch.work.kinds.callables import Toolbox, default_toolbox
from surfaces.worker.support import LOOP, playbook
from surfaces.worker.test_kinds import tasks
from work.support import server

from . import cluster_tools
from .entry_support import CLUSTER, Entry, child_entry, dispatching, done, ended, engine, run


@pytest.fixture(scope="module")
def child() -> Iterator[Entry]:
    """With the modules of these tests within its reach."""
    with child_entry({}, Path(__file__).parent.parent) as entry:
        yield entry


async def by_both(entry: Entry, text: str, **given: Any) -> dict[str, Any]:
    """What the run comes to on the cluster; the engine by itself comes to the same."""
    tools = tools_to_send([cluster_tools.__name__])
    async with engine(default_toolbox) as parts, dispatching(parts, entry, CLUSTER, *tools):
        there = await ended(parts, text, **given)
    async with engine(default_toolbox, pools_here="*") as parts:
        here = await ended(parts, text, **given)
    for name in ("status", "result", "failures"):
        assert there[name] == here[name]
    assert there["status"] == "completed", there
    return there


TOOL = '{kind: %s, args: {n: "{{ %s }}"}}'
KINDS: dict[str, tuple[list[str], Any]] = {
    "noop": (['{kind: noop, result: "{{ workload.n + 1 }}"}'], 3),
    "python": (['{kind: python, args: {n: "{{ workload.n }}"}, code: "result = n * 2"}'], 4),
    "shell": (
        [
            '{kind: shell, command: "printf %s-$((40 + 2)) hi"}',
            '{kind: noop, result: "{{ _prev.stdout }}"}',
        ],
        "hi-42",
    ),
    "callable": ([TOOL % ("cluster_double", "workload.n")], 4),
    "callable in place": ([TOOL % ("cluster_triple", "workload.n")], 6),
    "async callable": ([TOOL % ("cluster_later", "workload.n")], 3),
    "artifact": (
        [
            "{name: put, kind: artifact, action: put, data: {a: [1, 2]}}",
            '{kind: artifact, action: get, uri: "{{ put.uri }}"}',
        ],
        {"a": [1, 2]},
    ),
    "inner loop": (
        [
            "{name: all, loop: {in: [1, 2, 3], iterator: n}, "
            'tool: [{kind: noop, result: "{{ iter.n * 10 }}"}]}',
            '{kind: noop, result: "{{ all.results }}"}',
        ],
        [10, 20, 30],
    ),
    "pipeline": (
        [
            TOOL % ("cluster_double", "workload.n"),
            '{kind: python, args: {n: "{{ _prev }}"}, code: "result = [n, 2**63, str(2**80)]"}',
            TOOL.replace("n:", "value:") % ("cluster_echo", "_prev"),
        ],
        [4, 2**63, str(2**80)],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_comes_to_the_same_result(entry: Entry, kind: str) -> None:
    lines, result = KINDS[kind]
    assert run(by_both(entry, tasks(*lines), n=2))["result"] == result


def test_the_shards_of_a_loop_come_to_the_same_result(entry: Entry) -> None:
    assert run(by_both(entry, LOOP, items=list(range(95))))["result"] == sum(range(95))


COLLECTIONS = {
    "list": "[5, 6, 7, 8, 9]",
    "range": "{range: 5}",
    "mapping": '"{{ workload.prices }}"',
    "long list": '"{{ workload.many }}"',
}


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_items_of_every_collection_reach_the_work(entry: Entry, collection: str) -> None:
    text = playbook(f"""
  - step: each
    spec: {{pool: gpu, loop_mode: fanout, fanout: {{shard_size: 3, max_concurrent: 2}}}}
    loop: {{in: {COLLECTIONS[collection]}, iterator: n}}
    tool: {{kind: cluster_echo, args: {{value: "{{{{ iter.n }}}}"}}}}
    next: {{arcs: [{{step: end}}]}}
  - step: end
    tool: {{kind: artifact, action: get, uri: "{{{{ steps.each.refs }}}}"}}
""")
    many = [{"n": n, "text": "x" * 5000} for n in range(40)]
    run(by_both(entry, text, prices={"a": 1, "b": 2}, many=many))


def test_a_list_travels_in_slices_and_not_as_a_whole_with_every_shard(here: Entry) -> None:
    text = playbook("""
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 2, max_concurrent: 4}}
    loop: {in: "{{ workload.rows }}", iterator: n}
    tool: {kind: noop, result: "{{ iter.n | length }}"}
""")
    rows = ["x" * 1000] * 20
    found, dispatch = run(done(here, text, rows=rows))
    assert found["status"] == "completed", found
    assert len(dispatch.blobs) >= 10  # and those that lacked a part, again
    sizes = sorted(len(blob) for blob in dispatch.blobs)
    assert sizes[5] < 10_000, sizes


def test_an_item_that_fails_fails_alone(entry: Entry) -> None:
    text = playbook("""
  - step: each
    spec:
      pool: gpu
      loop_mode: fanout
      fanout: {shard_size: 4, max_concurrent: 2, fail_fast: false, allow_partial: true}
    loop: {in: {range: 10}, iterator: n}
    tool: {kind: cluster_odd, args: {n: "{{ iter.n }}"}}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, result: "{{ steps.each }}"}
""")

    async def scenario() -> None:
        tools = tools_to_send([cluster_tools.__name__])
        async with engine(default_toolbox) as parts, dispatching(parts, entry, CLUSTER, *tools):
            found = await ended(parts, text)
        assert found["result"]["succeeded"] == 5, found
        assert found["result"]["failed"] == 5, found

    run(scenario())


async def _echo(request: web.BaseRequest) -> web.StreamResponse:
    return web.json_response({"path": request.path, "key": request.headers["Idempotency-Key"]})


def test_http_calls_leave_from_the_cluster_with_the_key_of_the_job(entry: Entry) -> None:
    text = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: http, method: POST, url: "{{ workload.url }}", json: {order: 1}}
""")

    async def scenario() -> None:
        async with server(_echo) as url:
            found, dispatch = await done(entry, text, url=f"{url}/order")
        assert found["result"]["data"]["path"] == "/order", found
        assert found["result"]["data"]["key"]
        assert len(dispatch.tickets) == 1

    run(scenario())


def test_databases_are_reached_from_the_cluster(entry: Entry, tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE beds (n INTEGER)")
        made.executemany("INSERT INTO beds VALUES (?)", [(40,), (25,)])
    text = tasks(
        '{kind: sqlite, database: "{{ workload.path }}", query: "SELECT sum(n) AS n FROM beds"}',
    )
    found, _ = run(done(entry, text, path=str(path)))
    assert found["result"]["rows"] == [{"n": 65}], found


def test_duckdb_is_reached_from_the_cluster(entry: Entry) -> None:
    pytest.importorskip("duckdb")
    found, _ = run(done(entry, tasks('{kind: duckdb, query: "SELECT 6 * 7 AS n"}')))
    assert found["result"]["rows"] == [{"n": 42}], found


def test_postgres_is_reached_from_the_cluster(entry: Entry, postgres: str) -> None:
    text = tasks('{kind: postgres, dsn: "{{ workload.dsn }}", query: "SELECT 6 * 7 AS n"}')
    found, _ = run(done(entry, text, dsn=postgres))
    assert found["result"]["rows"] == [{"n": 42}], found


def test_a_kind_that_no_tool_provides_fails_with_a_word_on_what_to_do(entry: Entry) -> None:
    toolbox = Toolbox()
    toolbox.add("only_at_the_engine", lambda: 1)

    async def scenario() -> None:
        async with engine(toolbox) as parts, dispatching(parts, entry):
            found = await ended(parts, tasks("{kind: only_at_the_engine}"))
        (failure,) = found["failures"]
        assert "only_at_the_engine" in failure["message"]
        assert "tools" in failure["message"], failure
        assert not failure["retryable"]

    run(scenario())
