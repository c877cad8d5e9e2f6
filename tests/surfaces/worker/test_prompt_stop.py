"""A worker hears at once that a job is to be stopped, however long its heartbeats are apart."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.operations.workers import cancel_watch
from anabranch.pools.remote import server_client
from hangs import PATIENCE
from operations.workers.test_claims import events_of

from .proxy import bad_network
from .support import ONE, Server, run, serving, until, working
from .test_workers import SLOW

LEASE_SECONDS = 600.0  # a heartbeat every 200 seconds: nothing here can wait for one


def is_gone(file: Path) -> bool:
    return not Path(f"/proc/{file.read_text().strip()}").exists()


async def begun(server: Server, file: Path, text: str = SLOW) -> str:
    name = await server.start(text, file=str(file))
    await until(lambda: file.exists() and bool(file.read_text().strip()))
    return name


def names(task: Any) -> dict[str, Any]:
    return {key: task[key] for key in ("run", "job", "attempt")}


async def watch(server: Server, *tasks: Any, **more: Any) -> list[dict[str, Any]]:
    body = {"worker": "w1", "jobs": [names(task) for task in tasks], **more}
    status, answer = await server.ask("POST", "/jobs/watch", body)
    assert status == 200, answer
    return list(answer["stop"])


def test_the_process_of_a_cancelled_job_is_dead_at_once_whatever_the_heartbeat(
    tmp_path: Path, record_property: Any
) -> None:
    async def scenario() -> None:
        file = tmp_path / "pid"
        async with serving() as server, working(server.url, lease_seconds=LEASE_SECONDS):
            name = await begun(server, file)
            await asyncio.sleep(0.5)  # the watch is on
            start = time.monotonic()
            await server.parts.verbs.send(name, s.Cancel("me", "enough"))
            await until(lambda: is_gone(file))
            record_property("seconds_from_cancel_to_death", time.monotonic() - start)
            state = await server.parts.verbs.wait(name)
            assert state.status == "cancelled"
            (over,) = events_of(server, name, e.JobDischarged)
            assert over.how == "stopped"

    run(scenario())


def test_a_job_that_is_cancelled_before_anybody_watches_it_is_stopped_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "pid"
        async with serving() as server, working(server.url, lease_seconds=LEASE_SECONDS):
            name = await begun(server, file)
            await server.parts.verbs.send(name, s.Cancel())
            await until(lambda: is_gone(file))
            assert (await server.parts.verbs.wait(name)).status == "cancelled"

    run(scenario())


def test_of_several_jobs_only_the_cancelled_one_is_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = [tmp_path / f"pid{n}" for n in range(3)]
        async with (
            serving() as server,
            working(server.url, concurrency=3, lease_seconds=LEASE_SECONDS, grace_seconds=0.0),
        ):
            runs = [await begun(server, file) for file in files]
            await server.parts.verbs.send(runs[1], s.Cancel())
            assert (await server.parts.verbs.wait(runs[1])).status == "cancelled"
            assert [is_gone(file) for file in files] == [False, True, False]

    run(scenario())


def test_work_whose_time_is_up_is_stopped_on_the_worker_too(tmp_path: Path) -> None:
    async def began(limit: float) -> bool:
        file = tmp_path / "pid"
        text = SLOW.replace("spec: {pool: gpu}", f"spec: {{pool: gpu, timeout: {limit}}}")
        async with serving() as server, working(server.url, lease_seconds=LEASE_SECONDS) as worker:
            name = await server.start(text, file=str(file))
            assert (await server.parts.verbs.wait(name)).status == "failed"
            if not file.exists() or not file.read_text().strip():
                return False  # its time was up before it was at work
            await until(lambda: is_gone(file))
            await until(lambda: worker.tally.void + worker.tally.handed_back == 1)
            return True

    assert any(run(began(limit)) for limit in PATIENCE)


def test_a_watch_that_is_cut_off_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_client, "DELAY_SECONDS", (0.05, 0.2))

    async def scenario() -> None:
        file = tmp_path / "pid"
        async with (
            serving() as server,
            bad_network(server.url, share=0.0) as network,
            working(network.url, lease_seconds=LEASE_SECONDS),
        ):
            name = await begun(server, file)
            for _ in range(3):
                await asyncio.sleep(0.3)
                network.cut_all()
            await server.parts.verbs.send(name, s.Cancel())
            await until(lambda: is_gone(file))

    run(scenario())


def test_a_watch_is_answered_when_a_job_is_cancelled_and_says_what_to_do() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name, other = await server.start(ONE), await server.start(ONE)
            tasks = (await server.claim())["tasks"]
            assert await watch(server, *tasks, wait_seconds=0) == []
            asking = asyncio.ensure_future(watch(server, *tasks, wait_seconds=50))
            await until(lambda: name in server.parts.pools.watching.watched)
            await server.parts.verbs.send(name, s.Cancel("me", "changed my mind"))
            (stop,) = await asking
            assert (stop["run"], stop["code"], stop["reason"]) == (
                name,
                cancel_watch.CANCELLED,
                "changed my mind",
            )
            mine = next(task for task in tasks if task["run"] == name)
            await server.good(mine, "release")
            await server.good(next(t for t in tasks if t["run"] == other), "report", {"result": 1})
            codes = {one["run"]: one["code"] for one in await watch(server, *tasks)}
            assert codes == {name: "run_finished", other: "run_finished"}

    run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        {"worker": "w1", "jobs": []},
        {"worker": "w1", "jobs": [{"run": "r"}]},
        {"worker": "w1", "jobs": [{"run": "r", "job": "1.0", "attempt": 1}], "wait_seconds": 1e6},
        {"worker": "w1", "jobs": [{"run": "r", "job": "1.0", "attempt": 1}] * 1001},
        {"jobs": []},
        [],
    ],
)
def test_a_watch_that_makes_no_sense_is_refused_with_a_hint(body: Any) -> None:
    async def scenario() -> None:
        async with serving() as server:
            status, answer = await server.ask("POST", "/jobs/watch", body)
            assert status == 422, answer
            assert answer["detail"]
            assert answer["hint"]

    run(scenario())


def test_a_job_that_nobody_knows_is_told_to_be_dropped() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(ONE)
            (task,) = (await server.claim())["tasks"]
            assert [one["code"] for one in await watch(server, {**task, "attempt": 7})] == [
                "stale_attempt"
            ]
            assert [one["code"] for one in await watch(server, {**task, "run": "nobody"})] == [
                "not_found"
            ]
            assert [one["code"] for one in await watch(server, task, worker="w2")] == [
                "not_your_job"
            ]
            assert server.state(name).jobs["1.0"].phase == "running"

    run(scenario())
