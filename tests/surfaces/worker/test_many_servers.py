"""Workers of several servers on one store: they serve all of them, and every job counts once."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.pools.remote import server_client, servers
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.port import Task

from .cluster import ClusterServer, cluster_server, ended, schema_in, shared_out
from .support import ONE, playbook, run, until, working

SHORT = playbook("""
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 10, lease_s: 1}}
    loop: {in: [1], iterator: n}
    tool: {kind: noop}
""")
HELD = playbook("  - {step: far, spec: {pool: gpu}, tool: {kind: held}}\n")


@pytest.fixture(scope="module")
def store(postgres: str) -> str:
    return schema_in(postgres)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_client, "DELAY_SECONDS", (0.05, 0.2))
    monkeypatch.setattr(servers, "LOOK_SECONDS", 0.3)
    monkeypatch.setattr(servers, "SOON_SECONDS", 0.1)


class Held:
    """A tool that says for which runs it is at work, and waits to be let go."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.begun: list[str] = []
        self.most = 0
        self.go_on = asyncio.Event()
        self.toolbox = Toolbox()

        @self.toolbox.tool("held")
        async def held(task: Task) -> int:
            self.runs.append(task.run)
            self.begun.append(task.run)
            self.most = max(self.most, len(self.runs))
            try:
                await self.go_on.wait()
            finally:
                self.runs.remove(task.run)
            return 7


async def started_at(server: ClusterServer, text: str, count: int = 1) -> list[str]:
    """Runs that this server owns."""
    found = [await server.start(text) for _ in range(count)]
    assert all(server.owns(one) for one in found)
    return found


def test_a_worker_with_one_address_serves_the_runs_of_every_server(store: str) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a, cluster_server(store) as b:
            await shared_out([a, b])
            runs = await started_at(a, ONE, 3) + await started_at(b, ONE, 3)
            async with working(a.url, concurrency=2):
                for one in runs:
                    assert (await ended(a, one)).results["far"] == 21

    run(scenario())


def test_a_server_that_joins_later_is_served_without_a_restart_of_the_worker(store: str) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a, working(a.url) as worker:
            (first,) = await started_at(a, ONE)
            await ended(a, first)
            async with cluster_server(store) as b:
                await shared_out([a, b])
                for one in await started_at(b, ONE, 2):
                    await ended(b, one)
            await until(lambda: worker._servers.answering == (1, 1))  # it is forgotten again
            (last,) = await started_at(a, ONE)
            await ended(a, last)
            await until(lambda: worker.tally.done == 4)

    run(scenario())


def test_the_places_of_a_worker_are_shared_between_servers_and_never_exceeded(store: str) -> None:
    async def scenario() -> None:
        held = Held()
        async with cluster_server(store) as a, cluster_server(store) as b:
            await shared_out([a, b])
            at_a, at_b = await started_at(a, HELD, 5), await started_at(b, HELD, 5)
            async with working(a.url, concurrency=4, toolbox=held.toolbox):
                await until(lambda: len(held.runs) == 4)
                await asyncio.sleep(0.3)  # whatever more it would claim has come by now
                assert len(set(held.runs) & set(at_a)) == 2
                assert len(set(held.runs) & set(at_b)) == 2
                out = [a.events(one, e.JobStarted) for one in at_a + at_b]
                assert sum(map(len, out)) == 4  # nothing is claimed and handed back
                held.go_on.set()
                for one in at_a + at_b:
                    await ended(a, one)
        assert held.most == 4
        assert sorted(held.begun) == sorted(at_a + at_b)

    run(scenario())


def test_a_job_at_a_worker_outlives_the_orderly_stop_of_its_server(store: str) -> None:
    async def scenario() -> None:
        held = Held()
        async with cluster_server(store) as a:
            async with cluster_server(store) as b:
                await shared_out([a, b])
                (name,) = await started_at(b, HELD)
                async with working(a.url, toolbox=held.toolbox) as worker:
                    await until(lambda: held.runs == [name])
                    await b.server.stop()
                    await until(lambda: a.owns(name))
                    held.go_on.set()
                    assert (await ended(a, name)).results["far"] == 7
                    await until(lambda: worker.tally.done == 1)
            assert held.begun == [name]
            assert a.events(name, e.JobLost) == []
            assert len(a.events(name, e.JobReported)) == 1

    run(scenario())


def test_a_job_whose_run_has_moved_is_stopped_by_a_cancel_at_its_new_owner(store: str) -> None:
    async def scenario() -> None:
        held = Held()
        async with cluster_server(store) as a:
            async with cluster_server(store) as b:
                await shared_out([a, b])
                (name,) = await started_at(b, HELD)
                async with working(a.url, toolbox=held.toolbox) as worker:
                    await until(lambda: held.runs == [name])
                    await b.server.stop()
                    await until(lambda: a.owns(name))
                    await a.parts.verbs.send(name, s.Cancel())
                    await until(lambda: held.runs == [])
                    await until(lambda: worker.tally.handed_back == 1)
            assert a.parts.engine.state(name).status == "cancelled"

    run(scenario())


def test_what_is_said_to_a_server_that_does_not_own_the_run_names_the_owner_and_changes_nothing(
    store: str,
) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a, cluster_server(store) as b:
            await shared_out([a, b])
            (name,) = await started_at(b, ONE)
            (task,) = await b.claim()
            for verb, body in (
                ("heartbeat", {"lease_seconds": 60}),
                ("progress", {"progress": {"done": 1, "of": 2}}),
                ("report", {"result": 1}),
                ("fail", {"message": "no"}),
                ("release", {}),
            ):
                status, answer = await a.say(task, verb, body)
                assert (status, answer["code"]) == (421, "run_elsewhere"), answer
                assert answer["server"] == b.url
                assert "`server`" in answer["hint"]
            asked = {"worker": "w1", "wait_seconds": 20, "jobs": [_name(task)]}
            status, watched = await a.ask("POST", "/jobs/watch", asked)
            assert status == 200
            assert watched == {"stop": [], "moved": [{**_name(task), "server": b.url}]}
            assert (await b.say(task, "report", {"result": 2}))[0] == 200
            assert (await ended(a, name)).results["far"] == 2
            assert len(a.events(name, e.JobReported)) == 1
            status, answer = await a.say(task, "report", {"result": 3})
            assert status in (409, 421)

    run(scenario())


def test_the_next_owner_knows_the_lease_from_the_log_and_hears_its_worker_and_no_other(
    store: str,
) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a:
            async with cluster_server(store) as b:
                await shared_out([a, b])
                (name,) = await started_at(b, ONE)
                (task,) = await b.claim(lease_seconds=600)
                await b.server.stop()
                await until(lambda: a.owns(name))
            status, beat = await a.say(task, "heartbeat", {"lease_seconds": 900})
            assert (status, beat["lease_until"] > task["lease_until"]) == (200, True)
            stranger = f"/jobs/{name}/{task['job']}/1/report?worker=w2"
            status, answer = await a.ask("POST", stranger, {"result": 1})
            assert (status, answer["code"]) == (409, "not_your_job")
            assert (await a.say(task, "report", {"result": 2}))[0] == 200
            assert (await ended(a, name)).results["far"] == 2

    run(scenario())


def test_a_worker_whose_lease_ran_out_at_the_next_owner_is_told_so(store: str) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a:
            async with cluster_server(store) as b:
                await shared_out([a, b])
                (name,) = await started_at(b, SHORT)
                (task,) = await b.claim()
                await b.server.stop()
            await until(lambda: bool(a.events(name, e.JobLost)))
            done = {"result": [2], "shard": {"succeeded": 1, "failed": []}}
            status, answer = await a.say(task, "report", done)
            assert (status, answer["code"]) == (409, "stale_attempt")
            (again,) = await a.claim(lease_seconds=600)
            assert (again["run"], again["attempt"]) == (name, 2)
            assert (await a.say(again, "report", done))[0] == 200
            assert (await ended(a, name)).results["each"]["succeeded"] == 1

    run(scenario())


def _name(task: dict[str, object]) -> dict[str, object]:
    return {"run": task["run"], "job": task["job"], "attempt": task["attempt"]}


def test_what_a_job_reads_and_its_payloads_can_be_asked_of_any_server(store: str) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a, cluster_server(store) as b:
            await shared_out([a, b])
            (name,) = await started_at(b, ONE)
            (task,) = await b.claim()
            path = f"/jobs/{name}/{task['job']}/{task['attempt']}"
            status, source = await a.ask("GET", f"{path}/definition?worker=w1")
            assert (status, source["name"]) == (200, "pooled")
            binary = {"Content-Type": "application/octet-stream"}
            where = f"{a.url}/api/v1{path}/payloads?worker=w1"
            async with a._session.post(where, data=b'{"a":1}', headers=binary) as kept:
                sha256 = (await kept.json())["sha256"]
            status, content = await a.ask("GET", f"{path}/payloads/{sha256}?worker=w1")
            assert (status, content) == (200, b'{"a":1}')
            assert (await a.ask("GET", f"{path}/payloads/{sha256}?worker=w2"))[0] == 409
            assert (await b.say(task, "report", {"payload": sha256}))[0] == 200
            assert (await ended(a, name)).results["far"] == {"a": 1}
            assert name not in a.parts.engine._core.live  # it was only looked at

    run(scenario())


def test_servers_list_each_other_and_one_that_stops_is_gone_at_once(store: str) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a:
            async with cluster_server(store) as b:
                for asked in (a, b):
                    _, listed = await asked.ask("GET", "/servers")
                    assert {one["url"] for one in listed["items"]} == {a.url, b.url}
                    assert [one["url"] for one in listed["items"] if one["here"]] == [asked.url]
            _, listed = await a.ask("GET", "/servers")
            assert [one["url"] for one in listed["items"]] == [a.url]

    run(scenario())


def test_a_worker_that_works_once_ends_when_no_server_has_a_job(store: str) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a, cluster_server(store) as b:
            await shared_out([a, b])
            runs = await started_at(b, ONE, 3) + await started_at(a, ONE, 1)
            async with working(a.url, once=True) as worker:
                await until(worker._stopping.is_set)
            assert worker.tally.done == 4
            for one in runs:
                await ended(a, one)

    run(scenario())


def test_a_claim_that_waits_lets_go_of_its_places_when_another_server_joins(store: str) -> None:
    async def scenario() -> None:
        async with cluster_server(store) as a, working(a.url) as worker:
            pools = a.parts.engine.pools
            await until(lambda: bool((line := pools._lines.get("gpu")) and line.waiters))
            assert worker._room.free == 0  # the only server: the claim waits with the only place
            async with cluster_server(store) as b:
                await shared_out([a, b])
                (name,) = await started_at(b, ONE)
                await ended(b, name)

    run(scenario())
