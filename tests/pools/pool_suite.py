"""Runs of an engine on a real cluster: what is done there, and what is left when parts of it die.

A subclass has a fixture `cluster`, as for `BackendSuite`. Whatever happens, a run ends with every
item in exactly one terminal state and the right result, and an item is always done under one key.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from aiohttp import web

import pools.held_tools
from acceptance.log import Story, story_in
from anabranch import Engine, Settings
from anabranch.kernel import events as e
from hangs import HANG_SECONDS
from in_loop import in_loop
from pools.backend_suite import Cluster as AnyCluster

TESTS = Path(__file__).parent.parent
TOOLS = pools.held_tools.__name__
SECRET = "correct-horse-battery-staple"
HEAD = "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: far}\n"


def loop(tool: str, items: int, shard: int, fanout: str = "") -> str:
    """Adds up its items, in shards of so many."""
    return f"""{HEAD}
workflow:
  - step: each
    spec:
      pool: heavy
      loop_mode: fanout
      fanout: {{shard_size: {shard}, max_concurrent: 64, reducers: {{total: sum}}{fanout}}}
    loop: {{in: {{range: {items}}}, iterator: n}}
    tool:
      kind: {tool}
      args: {{n: "{{{{ iter.n }}}}", file: "{{{{ workload.file }}}}", gate: "{{{{ workload.gate }}}}"}}
      set_shared: {{total: "{{{{ outcome.result }}}}"}}
    next: {{arcs: [{{step: sum}}]}}
  - step: sum
    tool: {{kind: noop, result: "{{{{ steps.each.shared.total }}}}"}}
workload: {{file: "", gate: ""}}
"""  # noqa: E501


class Cluster(AnyCluster, Protocol):
    def heal_workers(self) -> None:
        """Start those that have died, whatever there is to do, and do not wait."""

    def close(self) -> None:
        """End all of it."""

    def log(self) -> str:
        """What its processes have printed."""


class Line(NamedTuple):
    """A line of the tools: what was done to which item, under which key, in which process."""

    what: str
    n: int
    key: str
    pid: int


class Site:
    """An engine with the pool `heavy`, and the files of its tools."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.file, self.gate = folder / "lines", folder / "gate"
        self.input = {"file": str(self.file), "gate": str(self.gate)}

    @property
    def parts(self) -> Any:
        return self.engine._open

    @property
    def pool(self) -> Any:
        """What people see of it."""
        return self.parts.clusters[0].state()

    def lines(self, *what: str) -> list[Line]:
        return lines_of(self.file, *what)

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while not holds():
                await asyncio.sleep(0.02)

    async def wait(self, run: str) -> Any:
        async with asyncio.timeout(HANG_SECONDS):
            return await self.engine.wait(run)

    def story(self, run: str) -> Story:
        """Checks what holds of every log."""
        return story_in(self.parts.store, run)

    def losses(self, run: str) -> list[e.JobLost]:
        return [one for one in self.story(run).events if isinstance(one, e.JobLost)]


@asynccontextmanager
async def engine_on(
    cluster: Cluster, folder: Path, options: str = "", *, store: str = ":memory:"
) -> AsyncIterator[Site]:
    await asyncio.to_thread(cluster.heal)
    pool = f"{cluster.url}?tools={TOOLS}{options}"
    settings = Settings(store=store, grace_seconds=2.0)
    async with Engine(settings=settings, pools={"heavy": pool}) as engine:
        yield Site(engine, folder)


def lines_of(file: Path, *what: str) -> list[Line]:
    if not file.exists():
        return []
    words = [line.split() for line in file.read_text().split("\n")[:-1]]
    found = [Line(one, int(n), key, int(pid)) for one, n, key, pid in words]
    return [line for line in found if not what or line.what in what]


def require_whole(ended: Any, story: Story, done: list[Line], items: int, shard: int) -> None:
    """Every item is done, once as far as the log goes, and always under the same key."""
    assert ended.status == "completed", ended
    assert ended.result == sum(range(items))
    each = ended.steps["each"]["result"]
    assert (each["total"], each["succeeded"], each["failed"]) == (items, items, 0)
    closed = Counter(one.job for one in story.events if isinstance(one, e.ShardClosed))
    assert len(closed) == items // shard
    assert set(closed.values()) == {1}
    assert {line.n for line in done} == set(range(items))
    keys: dict[int, set[str]] = {}
    for line in done:
        keys.setdefault(line.n, set()).add(line.key)
    assert all(len(one) == 1 for one in keys.values()), "an item was done under two keys"


@contextmanager
def engine_process(
    cluster: Cluster, folder: Path, definition: str, run: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A program with an engine, which starts the run or goes on with it, to be killed."""
    (folder / "far.yaml").write_text(definition)
    arguments = [cluster.url, str(folder), run]
    with (folder / "engine.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pools.pool_suite", *arguments],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(HANG_SECONDS)


async def _program(url: str, folder: Path, run: str) -> None:
    settings = Settings(store=str(folder / "store.db"))
    async with Engine(settings=settings, pools={"heavy": f"{url}?tools={TOOLS}&queue=60"}) as one:
        if run not in {known["run"] for known in one.read.runs()}:
            given = {"file": str(folder / "lines"), "gate": str(folder / "gate")}
            await one.start((folder / "far.yaml").read_text(), given, run=run)
        await one.wait(run)


class PoolSuite:
    """What holds on every engine of clusters."""

    @in_loop
    async def test_a_loop_is_done_on_the_cluster(self, cluster: Cluster, tmp_path: Path) -> None:
        async with engine_on(cluster, tmp_path) as site:
            run = await site.engine.start(loop("hold", 1000, 50), site.input)
            await site.until(lambda: len(site.lines("began")) == 2)
            assert len({line.pid for line in site.lines("began")}) == 2  # both workers
            site.gate.touch()
            ended = await site.wait(run)
            done = site.lines("did")
            require_whole(ended, site.story(run), done, 1000, 50)
            assert len(done) == 1000


class MorePoolSuite:
    """What else holds on every one of them, and leaves the cluster whole."""

    @in_loop
    async def test_work_of_every_kind_is_done_on_the_cluster(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        database = tmp_path / "rows.db"
        with sqlite3.connect(database) as made:
            made.execute("CREATE TABLE beds (n INTEGER)")
            made.executemany("INSERT INTO beds VALUES (?)", [(40,), (25,)])
        made.close()
        keys: list[str] = []

        async def answer(request: web.Request) -> web.Response:
            keys.append(request.headers["Idempotency-Key"])
            return web.json_response({"n": 3})

        async with _http(answer) as url, engine_on(cluster, tmp_path) as site:
            run = await site.engine.start(
                _KINDS, {"url": url, "database": str(database), "file": str(site.file)}
            )
            ended = await site.wait(run)
            assert ended.status == "completed", ended
            assert ended.result == {
                "python": 21,
                "tool": 7,
                "http": {"n": 3},
                "sqlite": [{"n": 65}],
                "duckdb": [{"n": 42}],
                "large": 300_001,
            }
            assert len(keys) == 1
            (line,) = site.lines("did")
            assert line.key.startswith(f"{run}/")
            assert line.pid != os.getpid()
            assert site.pool.finished == 7
            assert site.pool.losses == {}

    @in_loop
    async def test_a_secret_of_the_cluster_is_used_there_and_shown_nowhere(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        seen: list[str | None] = []

        async def answer(request: web.Request) -> web.Response:
            seen.append(request.headers.get("Authorization"))
            return web.json_response({"echo": request.headers.get("Authorization")})

        text = f"""{HEAD}
keychain: [{{name: far_key, kind: env, variable: FAR_TOKEN}}]
workload: {{url: ""}}
workflow:
  - step: far
    spec: {{pool: heavy}}
    tool:
      kind: http
      url: "{{{{ workload.url }}}}"
      headers: {{Authorization: "{{{{ keychain.far_key }}}}"}}
"""
        async with _http(answer) as url, engine_on(cluster, tmp_path) as site:
            run = await site.engine.start(text, {"url": url})
            ended = await site.wait(run)
            assert ended.status == "completed", ended
            assert seen == [SECRET]
            assert SECRET not in repr(site.engine.read.events(run))
            assert SECRET not in repr(ended)
            assert SECRET not in cluster.log()

    @in_loop
    async def test_a_cancelled_run_leaves_nothing_on_the_cluster(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        async with engine_on(cluster, tmp_path, "&queue=8") as site:
            run = await site.engine.start(loop("hold", 20, 1), site.input)
            await site.until(lambda: len(site.lines("began")) == 2 and site.pool.queued == 8)
            await site.engine.cancel(run, reason="enough")
            ended = await site.wait(run)
            assert ended.status == "cancelled"
            await site.until(lambda: site.pool.queued == site.pool.running == 0)
            await site.until(lambda: len(site.lines("stopped")) == 2)
            next_run = await site.engine.start(loop("mark", 4, 1), site.input)
            await site.wait(next_run)
            assert len(site.lines("began")) == 2, "what was queued never began"

    @in_loop
    async def test_a_worker_that_is_killed_costs_one_more_attempt_of_its_shards(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        async with engine_on(cluster, tmp_path) as site:
            run = await site.engine.start(loop("hold", 12, 2), site.input)
            await site.until(lambda: len(site.lines("began")) == 2)
            victim, other = site.lines("began")
            os.kill(victim.pid, signal.SIGKILL)
            await site.until(lambda: site.losses(run))
            site.gate.touch()
            ended = await site.wait(run)
            require_whole(ended, site.story(run), site.lines("did"), 12, 2)
            (lost,) = site.losses(run)
            assert (lost.counted, lost.worker) == (True, True)
            again = [line for line in site.lines("began") if line.n == victim.n]
            assert len(again) == 2
            assert {line.pid for line in again} == {victim.pid, again[1].pid}
            assert len([line for line in site.lines("began") if line.n == other.n]) == 1


class PoolDeathsSuite:
    """What is left when clusters and engines die."""

    @in_loop
    async def test_work_that_kills_its_worker_every_time_fails_with_that_reason(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        async with engine_on(cluster, tmp_path) as site:
            run = await site.engine.start(loop("crash", 1, 1, ", max_job_retries: 1"), site.input)
            await site.until(lambda: site.losses(run))
            await asyncio.to_thread(cluster.heal_workers)
            ended = await site.wait(run)
            assert ended.status == "failed"
            assert "died" in repr(ended.problem), ended.problem
            assert len(site.lines("crashed")) == 2
            assert len({line.key for line in site.lines("crashed")}) == 1

    @in_loop
    async def test_a_scheduler_that_restarts_costs_no_attempt(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        async with engine_on(cluster, tmp_path) as site:
            run = await site.engine.start(loop("hold", 12, 2, ", max_job_retries: 0"), site.input)
            await site.until(lambda: len(site.lines("began")) == 2)
            await asyncio.to_thread(cluster.kill_scheduler)
            await site.until(lambda: site.pool.state == "away")
            await site.until(lambda: site.pool.queued == site.pool.running == 0)
            assert len(site.losses(run)) <= 6, "each shard once"
            site.gate.touch()
            await asyncio.to_thread(cluster.heal)
            ended = await site.wait(run)
            require_whole(ended, site.story(run), site.lines("did"), 12, 2)
            assert site.losses(run)
            assert not any(lost.counted for lost in site.losses(run))

    @in_loop
    async def test_a_run_waits_for_a_cluster_that_is_gone_and_claims_nothing(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        async with engine_on(cluster, tmp_path) as site:
            await asyncio.to_thread(cluster.close)
            await site.until(lambda: site.pool.state == "away")
            run = await site.engine.start(loop("mark", 20, 5), site.input)
            await site.until(lambda: cluster.url in repr(site.engine.read.explain(run)))
            begun = [one for one in site.story(run).events if isinstance(one, e.JobStarted)]
            assert [one for one in begun if one.worker.startswith("heavy@")] == []
            await asyncio.to_thread(cluster.heal)
            ended = await site.wait(run)
            require_whole(ended, site.story(run), site.lines("did"), 20, 5)
            assert site.losses(run) == []

    @in_loop
    async def test_an_engine_that_is_killed_with_many_shards_out_goes_on_where_it_was(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        await asyncio.to_thread(cluster.heal)
        text = loop("hold", 120, 2)
        file, gate = tmp_path / "lines", tmp_path / "gate"

        for began in (2, 4):
            with engine_process(cluster, tmp_path, text, "mortal"):
                async with asyncio.timeout(HANG_SECONDS):
                    while len(lines_of(file, "began")) < began:
                        await asyncio.sleep(0.05)
        gate.touch()
        async with engine_on(
            cluster, tmp_path, "&queue=60", store=str(tmp_path / "store.db")
        ) as site:
            ended = await site.wait("mortal")
            story = site.story("mortal")
            require_whole(ended, story, site.lines("did"), 120, 2)
            losses = site.losses("mortal")
            assert len({lost.job for lost in losses}) >= 50, "many shards were out"
            assert not any(lost.counted for lost in losses)
            attempts = story.started()
            assert max(attempts.values()) <= 3
        done = Counter(line.n for line in lines_of(file, "did"))
        assert max(done.values()) <= 2, "only what ran at a kill may be done again"


_KINDS = f"""{HEAD}
workload: {{url: "", database: "", file: ""}}
workflow:
  - step: by_python
    spec: {{pool: heavy}}
    tool: {{kind: python, args: {{n: 20}}, code: "result = n + 1"}}
    next: {{arcs: [{{step: by_tool}}]}}
  - step: by_tool
    spec: {{pool: heavy}}
    tool: {{kind: mark, args: {{n: 7, file: "{{{{ workload.file }}}}"}}}}
    next: {{arcs: [{{step: by_http}}]}}
  - step: by_http
    spec: {{pool: heavy}}
    tool: {{kind: http, method: POST, url: "{{{{ workload.url }}}}", json: {{order: 1}}}}
    next: {{arcs: [{{step: by_sqlite}}]}}
  - step: by_sqlite
    spec: {{pool: heavy}}
    tool:
      kind: sqlite
      database: "{{{{ workload.database }}}}"
      query: select sum(n) as n from beds
    next: {{arcs: [{{step: by_duckdb}}]}}
  - step: by_duckdb
    spec: {{pool: heavy}}
    tool: {{kind: duckdb, query: "select 6 * 7 as n"}}
    next: {{arcs: [{{step: large}}]}}
  - step: large
    spec: {{pool: heavy}}
    tool: {{kind: python, code: "result = 'x' * 300_000"}}
    next: {{arcs: [{{step: larger}}]}}
  - step: larger
    spec: {{pool: heavy}}
    tool: {{kind: python, args: {{text: "{{{{ large }}}}"}}, code: "result = len(text + 'y')"}}
    next: {{arcs: [{{step: end}}]}}
  - step: end
    tool:
      kind: noop
      result:
        python: "{{{{ by_python }}}}"
        tool: "{{{{ by_tool }}}}"
        http: "{{{{ by_http.data }}}}"
        sqlite: "{{{{ by_sqlite.rows }}}}"
        duckdb: "{{{{ by_duckdb.rows }}}}"
        large: "{{{{ larger }}}}"
"""


@asynccontextmanager
async def _http(answer: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_program(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
