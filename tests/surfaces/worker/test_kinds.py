"""Every kind of work does on a worker what it does in the engine."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anabranch.errors import DefinitionError
from anabranch.work.kinds.callables import Toolbox

from .support import playbook, run, serving, working


async def both(text: str, step: str, toolbox: Toolbox | None = None, **given: Any) -> Any:
    """What a step comes to: done by a worker, and the same done by the engine itself."""
    async with serving() as server, working(server.url, toolbox=toolbox, concurrency=4):
        there = await server.parts.verbs.wait(await server.start(text, **given))
    async with serving(toolbox=toolbox, pools_here="*") as server:
        here = await server.parts.verbs.wait(await server.start(text, **given))
    assert (there.status, there.problem) == (here.status, here.problem)
    assert there.results[step] == here.results[step]
    return there.results[step]


def tasks(*lines: str) -> str:
    steps = "".join(f"      - {line}\n" for line in lines)
    return playbook(f"  - step: far\n    spec: {{pool: gpu}}\n    tool:\n{steps}")


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        (['{kind: noop, result: "{{ workload.n + 1 }}"}'], 3),
        (['{kind: python, args: {n: "{{ workload.n }}"}, code: "result = n * 2"}'], 4),
        (["{kind: secrets, provider: static, value: ab}", "{kind: noop, result: fine}"], "fine"),
        (
            [
                "{name: put, kind: artifact, action: put, data: {a: [1, 2]}}",
                '{kind: artifact, action: get, uri: "{{ put.uri }}"}',
            ],
            {"a": [1, 2]},
        ),
        (
            [
                '{name: all, loop: {in: [1, 2, 3], iterator: n}, '
                'tool: [{kind: noop, result: "{{ iter.n * 10 }}"}]}',
                '{kind: noop, result: "{{ all.results }}"}',
            ],
            [10, 20, 30],
        ),
    ],
    ids=["noop", "python", "secrets", "artifact", "inner loop"],
)  # fmt: skip
def test_a_worker_comes_to_the_same_result_as_the_engine(lines: list[str], result: Any) -> None:
    async def scenario() -> None:
        assert await both(tasks(*lines), "far", n=2) == result

    run(scenario())


def test_shell_and_tools_see_the_same_key_on_a_worker() -> None:
    toolbox = Toolbox()

    @toolbox.tool("whoami")
    def whoami(task: Any) -> str:
        return str(task.key.split("/", 1)[1])

    async def scenario() -> None:
        text = tasks(
            '{name: one, kind: shell, command: "echo ${ANABRANCH_KEY#*/}"}',
            "{name: two, kind: whoami}",
            '{kind: noop, result: ["{{ one.stdout }}", "{{ two }}"]}',
        )
        assert await both(text, "far", toolbox) == ["1.0/one\n", "1.0/two"]

    run(scenario())


def test_http_from_a_worker_carries_the_same_idempotency_key_for_every_attempt() -> None:
    keys: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        keys.append(request.headers.get("Idempotency-Key", ""))
        return web.json_response({"n": len(keys)}, status=200 if len(keys) > 1 else 503)

    text = playbook("""
  - step: far
    spec: {pool: gpu, retry: {attempts: 3, delay: 0s}}
    tool: {kind: http, method: POST, url: "{{ workload.url }}", json: {order: 1}}
""")

    async def scenario() -> None:
        application = web.Application()
        application.router.add_post("/", answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        try:
            async with serving() as server, working(server.url):
                state = await server.parts.verbs.wait(await server.start(text, url=url))
            assert state.results["far"]["data"] == {"n": 2}
            assert len(set(keys)) == 1
            assert keys[0]
        finally:
            await runner.cleanup()

    run(scenario())


def test_a_database_of_the_worker_is_reached_from_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE beds (n INTEGER)")
        made.executemany("INSERT INTO beds VALUES (?)", [(40,), (25,)])
    made.close()

    async def scenario() -> None:
        sqlite = f"{{kind: sqlite, database: {path}, query: 'select sum(n) as n from beds'}}"
        result = await both(tasks(sqlite), "far")
        assert result["rows"] == [{"n": 65}]

    run(scenario())


def test_a_decision_on_a_pooled_step_needs_no_worker() -> None:
    text = playbook("""
  - step: ask
    spec: {pool: gpu}
    tool: {kind: decision, ask: "Go on?"}
""")

    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(text)
            gate = next(iter(server.state(name).gates))
            body = {"verdict": "fulfil", "reason": "seen"}
            status, answer = await server.ask("POST", f"/runs/{name}/gates/{gate}/decide", body)
            assert status == 200, answer
            state = await server.parts.verbs.wait(name)
            assert state.results["ask"]["decision"] == "fulfilled"

    run(scenario())


LOOPS = playbook("""
  - step: each
    spec: {loop_mode: fanout, fanout: {shard_size: 30}}
    loop: {in: {range: 100}, iterator: n}
    tool: {kind: noop, result: "{{ iter.n * 2 }}"}
    next: {arcs: [{step: page}]}
  - step: page
    spec: {pool: gpu}
    tool:
      - {name: part, kind: artifact, result_ref: "{{ each.refs }}", offset: 25, limit: 10}
      - {kind: noop, result: "{{ part }}"}
    next: {arcs: [{step: again}]}
  - step: again
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 40, reducers: {total: sum}}}
    loop: {in: {results_of: "{{ each.refs }}"}, iterator: n}
    tool: {kind: noop, set_shared: {total: "{{ iter.n }}"}}
""")


def test_the_results_of_a_loop_are_read_from_a_worker_by_page_and_as_a_collection() -> None:
    async def scenario() -> None:
        async with serving() as server, working(server.url, concurrency=2):
            state = await server.parts.verbs.wait(await server.start(LOOPS))
            assert state.status == "completed", state.problem
            assert state.results["page"] == {
                "results": [n * 2 for n in range(25, 35)],
                "total": 100,
                "offset": 25,
                "next": 35,
            }
            assert state.results["again"]["shared"]["total"] == sum(n * 2 for n in range(100))

    run(scenario())


def test_results_too_many_for_one_answer_arrive_in_several() -> None:
    text = playbook("""
  - step: each
    spec: {loop_mode: fanout, fanout: {shard_size: 20}}
    loop: {in: {range: 60}, iterator: n}
    tool: {kind: python, args: {n: "{{ iter.n }}"}, code: "result = [n, 'x' * 150000]"}
    next: {arcs: [{step: far}]}
  - step: far
    spec: {pool: gpu}
    tool:
      - {name: all, kind: artifact, result_ref: "{{ each.refs }}"}
      - kind: python
        args: {all: "{{ all }}"}
        code: |
          rows = all["results"]
          result = [all["total"], [row[0] for row in rows] == list(range(60)), len(rows[59][1])]
""")

    async def scenario() -> None:
        async with serving() as server, working(server.url):
            state = await server.parts.verbs.wait(await server.start(text))
            assert state.status == "completed", state.problem
            assert state.results["far"] == [60, True, 150_000]

    run(scenario())


def test_an_artifact_that_is_larger_than_a_body_comes_whole_from_a_worker(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_text("y" * 20_000_000)
    text = playbook(f"""
  - step: far
    spec: {{pool: gpu}}
    tool: {{kind: artifact, uri: "{path}"}}
    next: {{arcs: [{{step: near}}]}}
  - step: near
    tool: {{kind: python, args: {{text: "{{{{ far }}}}"}}, code: "result = len(text)"}}
""")

    async def scenario() -> None:
        async with serving() as server, working(server.url):
            state = await server.parts.verbs.wait(await server.start(text))
            assert state.status == "completed", state.problem
            assert state.results["near"] == 20_000_000

    run(scenario())


def test_a_result_over_every_limit_fails_with_the_setting_that_says_so() -> None:
    text = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: python, code: "result = 'z' * 3_000_000"}
""")

    async def scenario() -> None:
        async with serving(result_bytes_max=1_000_000) as server, working(server.url):
            state = await server.parts.verbs.wait(await server.start(text))
            assert state.problem is not None
            assert "ANABRANCH_RESULT_BYTES_MAX" in state.problem.message

    run(scenario())


def test_a_large_input_and_a_long_list_reach_the_worker() -> None:
    text = playbook("""
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 50, reducers: {total: sum}}}
    loop: {in: "{{ workload.rows }}", iterator: row}
    tool: {kind: noop, set_shared: {total: "{{ iter.row.n + (workload.words | length) }}"}}
""")

    async def scenario() -> None:
        rows = [{"n": n, "pad": "p" * 2000} for n in range(500)]
        async with serving() as server, working(server.url, concurrency=3):
            name = await server.start(text, rows=rows, words="t" * 2_000_000)
            state = await server.parts.verbs.wait(name)
            assert state.status == "completed", state.problem
            total = state.results["each"]["shared"]["total"]
            assert total == sum(range(500)) + 500 * 2_000_000

    run(scenario())


def test_a_redriven_loop_finds_its_items_and_results_from_a_worker() -> None:
    toolbox = Toolbox()
    broken = {77, 432}

    @toolbox.tool("brittle")
    def brittle(n: int) -> int:
        if n in broken:
            raise ValueError("not yet")
        return n

    text = playbook("""
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 50}}
    loop: {in: "{{ workload.rows }}", iterator: row}
    tool: {kind: brittle, n: "{{ iter.row.n }}"}
    next: {arcs: [{step: far, when: "{{ event.name == 'step.done' }}"}]}
  - step: far
    spec: {pool: gpu}
    tool:
      - {name: part, kind: artifact, result_ref: "{{ each.refs }}", offset: 70, limit: 10}
      - {kind: noop, result: "{{ part.results }}"}
""")

    async def scenario() -> None:
        rows = [{"n": n, "pad": "p" * 2000} for n in range(500)]
        async with serving(toolbox=toolbox) as server:
            async with working(server.url, toolbox=toolbox, concurrency=3):
                first = await server.start(text, rows=rows)
                assert (await server.parts.verbs.wait(first)).status == "failed"
                broken.clear()
                state = await server.parts.verbs.wait(await server.parts.verbs.redrive(first))
            assert state.status == "completed", state.problem
            assert state.results["far"] == list(range(70, 80))

    run(scenario())


def test_a_pool_that_is_no_name_is_refused_at_its_line() -> None:
    text = playbook("  - {step: far, spec: {pool: [gpu]}, tool: {kind: noop}}\n")

    async def scenario() -> None:
        async with serving() as server:
            with pytest.raises(DefinitionError) as caught:
                await server.start(text)
            (problem,) = caught.value.problems
            assert "the name of a pool" in problem.message

    run(scenario())
