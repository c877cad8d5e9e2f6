"""What the server promises to workers: leases, attempts, order, and clear answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.operations.workers import claims
from anabranch.runtime.jobs import wire
from anabranch.runtime.live_run import history
from anabranch.surfaces.http.resources import workers
from surfaces.worker.support import LOOP, ONE, Server, playbook, run, serving, until

RETRYING = playbook("""
  - step: far
    spec: {pool: gpu, retry: {attempts: 2, delay: 0s}}
    tool: {kind: shell, cmds: ["true"]}
""")


def events_of(server: Server, name: str, kind: type) -> list[Any]:
    return [event for _, event in history(server.parts.store.read(name)) if isinstance(event, kind)]


def test_a_job_of_a_pool_waits_until_a_worker_claims_it_and_leaves_under_a_durable_lease() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(ONE)
            assert server.parts.engine._executor.at_work == 0
            assert (await server.claim("cpu"))["tasks"] == []
            claimed = await server.claim(lease_seconds=30)
            (task,) = claimed["tasks"]
            assert (task["run"], task["job"], task["attempt"]) == (name, "1.0", 1)
            assert (task["key"], task["kind"]) == (f"{name}/1.0", "python")
            assert task["inputs"]["args"] == {"n": 20}
            assert claimed["runs"][name]["workload"] == {}
            (started,) = events_of(server, name, e.JobStarted)
            assert (started.worker, started.lease) == ("w1", task["lease_until"])
            assert (await server.claim())["tasks"] == []  # it is out
            assert (await server.good(task, "report", {"result": 21})) == {"accepted": True}
            assert (await server.parts.verbs.wait(name)).ends["far"] == 21

    run(scenario())


def test_a_claim_waits_for_the_first_job_and_no_longer_than_it_says() -> None:
    async def scenario() -> None:
        async with serving() as server:
            assert (await server.claim(wait_seconds=0.05))["tasks"] == []
            waiting = asyncio.ensure_future(server.claim(wait_seconds=30))
            await until(lambda: bool(server.parts.engine.pools._lines["gpu"].waiters))
            await server.start(ONE)
            assert len((await waiting)["tasks"]) == 1

    run(scenario())


def test_who_asked_for_a_claim_is_forgotten_with_its_answer() -> None:
    async def scenario() -> None:
        async with serving() as server:
            waiting = [
                asyncio.ensure_future(server.claim(claim="c", wait_seconds=30)) for _ in range(3)
            ]
            claims: Any = getattr(server.parts.pools.claim, "__self__")  # noqa: B009
            asked = claims._asked
            await until(lambda: [len(one.askers) for one in asked.values()] == [3])
            await server.start(ONE)
            answers = [(await each)["tasks"] for each in waiting]
            answers += [(await server.claim(claim="c"))["tasks"] for _ in range(3)]
            assert len({str(each) for each in answers}) == 1
            assert [one.askers for one in asked.values()] == [[]]

    run(scenario())


def test_jobs_of_several_runs_are_handed_out_in_turn() -> None:
    async def scenario() -> None:
        async with serving() as server:
            large = await server.start(LOOP, items=list(range(100)))
            small = await server.start(ONE)
            await until(lambda: server.parts.engine.pools.waiting("gpu") == 5)
            claimed = await server.claim(max=2)
            assert [task["run"] for task in claimed["tasks"]] == [large, small]

    run(scenario())


def test_doubled_stale_and_foreign_reports_are_refused_with_a_code_and_change_nothing() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(RETRYING)
            (task,) = (await server.claim())["tasks"]
            before = server.state(name).seq
            assert await server.refused({**task, "attempt": 2}, "report") == "stale_attempt"
            assert await server.refused({**task, "job": "7.0"}, "report") == "unknown_job"
            status, answer = await server.say({**task, "run": "nobody"}, "report")
            assert (status, answer["code"]) == (404, "not_found")
            assert (await server.say({**task, "attempt": "x"}, "report"))[0] == 400
            assert server.state(name).seq == before
            await server.good(task, "fail", {"message": "no luck"})
            (again,) = (await server.claim())["tasks"]
            assert again["attempt"] == 2
            for verb in ("report", "fail", "heartbeat", "progress", "release", "park"):
                body = {"fail": {"message": "x"}, "progress": {"progress": 1}}.get(verb)
                body = {"ticket": "t"} if verb == "park" else body
                assert await server.refused(task, verb, body) == "stale_attempt", verb
            await server.good(again, "report", {"result": "fine"})
            assert await server.refused(again, "report", {"result": "twice"}) == "run_finished"
            state = await server.parts.verbs.wait(name)
            assert (state.status, state.ends["far"]) == ("completed", "fine")
            assert len(events_of(server, name, e.JobReported)) == 2

    run(scenario())


def test_nobody_outside_can_report_a_job_of_the_engine_itself() -> None:
    async def scenario() -> None:
        async with serving() as server:
            slow = playbook("  - {step: near, tool: {kind: shell, cmds: [sleep 30]}}\n")
            name = await server.start(slow)
            await until(lambda: server.state(name).jobs["1.0"].phase == "running")
            task = {"run": name, "job": "1.0", "attempt": 1}
            assert await server.refused(task, "report") == "job_not_running"

    run(scenario())


def test_a_lease_that_runs_out_is_a_loss_and_the_job_goes_out_again_once() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(ONE)
            (first,) = (await server.claim(lease_seconds=1, worker="gone"))["tasks"]
            (second,) = (await server.claim(wait_seconds=30, worker="other"))["tasks"]
            assert (second["attempt"], second["key"]) == (2, first["key"])
            assert await server.refused(first, "report", {"result": 1}) == "stale_attempt"
            await server.good(second, "report", {"result": 2})
            assert (await server.parts.verbs.wait(name)).ends["far"] == 2
            (lost,) = events_of(server, name, e.JobLost)
            assert (lost.reason, lost.counted) == ("its lease ran out", True)

    run(scenario())


def test_a_heartbeat_extends_the_lease_and_progress_is_kept_for_people_and_for_the_next() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(ONE)
            (task,) = (await server.claim(lease_seconds=60))["tasks"]
            beat = await server.good(task, "heartbeat", {"lease_seconds": 600})
            assert beat["lease_until"] >= task["lease_until"] + 500_000
            await server.good(task, "progress", {"progress": {"done": 3, "of": 9}})
            (waits,) = server.parts.verbs.read.explain(name)["waiting"]
            assert waits["waits_for"] == "its work (attempt 1): 3 of 9 done"
            assert waits["movers"] == ("w1",)
            (pool,) = (await server.ask("GET", "/pools"))[1]["items"]
            assert pool["leased"][0]["progress"] == {"done": 3, "of": 9}
            status, answer = await server.say(task, "progress", {"progress": "x" * 5000})
            assert (status, answer["code"]) == (422, "too_large")
            await server.good(task, "release", {"reason": "it rains"})
            (again,) = (await server.claim())["tasks"]
            assert (again["attempt"], again["progress"]) == (2, {"done": 3, "of": 9})

    run(scenario())


def test_a_job_that_was_cancelled_tells_its_worker_to_stop_and_ends_when_it_is_released() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(ONE)
            (task,) = (await server.claim())["tasks"]
            await server.parts.verbs.send(name, s.Cancel("me", "changed my mind"))
            assert server.state(name).jobs["1.0"].phase == "cancelling"
            beat = await server.good(task, "heartbeat")
            assert (beat["stop"], beat["reason"]) == (True, "changed my mind")
            await server.good(task, "release")
            assert (await server.parts.verbs.wait(name)).status == "cancelled"

    run(scenario())


def test_a_job_that_was_claimed_by_nobody_is_not_handed_out_after_a_cancel_or_during_a_pause() -> (
    None
):
    async def scenario() -> None:
        async with serving() as server:
            name, other = await server.start(ONE), await server.start(ONE)
            await server.parts.verbs.send(name, s.Cancel())
            await server.parts.verbs.send(other, s.Pause("me"))
            assert (await server.claim())["tasks"] == []
            (waits,) = server.parts.verbs.read.explain(other)["waiting"][1:]
            assert waits["waits_for"] == "the run to be resumed (attempt 1)"
            await server.parts.verbs.send(other, s.Resume("me"))
            (task,) = (await server.claim(wait_seconds=30))["tasks"]
            assert task["run"] == other

    run(scenario())


def test_a_worker_that_vanishes_too_often_fails_the_job() -> None:
    text = ONE

    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(text)
            for attempt in range(1, 22):
                (task,) = (await server.claim(wait_seconds=30))["tasks"]
                assert task["attempt"] == attempt
                await server.parts.engine.send(name, s.JobLose("1.0", attempt, "gone"))
            state = await server.parts.verbs.wait(name)
            assert state.status == "failed"
            assert state.problem is not None
            assert "lost 21 times" in state.problem.message

    run(scenario())


def test_a_claim_that_is_asked_again_under_its_name_gets_the_same_jobs() -> None:
    async def scenario() -> None:
        async with serving() as server:
            await server.start(ONE)
            await server.start(ONE)
            first = await server.claim(max=1, claim="c1")
            assert first == await server.claim(max=1, claim="c1")
            other = await server.claim(max=1, claim="c2")
            assert other["tasks"][0]["run"] != first["tasks"][0]["run"]
            await server.good(first["tasks"][0], "report", {"result": 1})
            assert (await server.claim(max=1, claim="c1"))["tasks"] == []

    run(scenario())


def test_an_answer_to_a_claim_ends_where_its_bytes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs that have no room in it go to whoever asks next, as if they had not been out."""
    monkeypatch.setattr(workers, "CLAIM_BYTES", 100_000)
    packed: list[str] = []

    def to_wire(live: Any, job: str, *args: Any, **more: Any) -> Any:
        packed.append(job)
        return wire.to_wire(live, job, *args, **more)

    monkeypatch.setattr(claims, "to_wire", to_wire)

    async def scenario() -> None:
        async with serving() as server:
            names = [await server.start(ONE, given=str(n) * 40_000) for n in range(10)]
            await until(lambda: server.parts.engine.pools.waiting("gpu") == 10)
            given = [await server.claim(max=10, claim="c", worker="w0")]
            assert len(packed) < 10, "few are packed beyond the limit"
            given += [await server.claim(max=10, claim="c", worker=f"w{n}") for n in range(1, 4)]
            assert [len(one["tasks"]) for one in given] == [3, 3, 3, 1]
            assert await server.claim(max=10, claim="c", worker="w0") == given[0]
            tasks = [task for one in given for task in one["tasks"]]
            assert sorted(task["run"] for task in tasks) == sorted(names)
            for task in tasks:
                await server.good(task, "report", {"result": 1})
            for name in names:
                assert (await server.parts.verbs.wait(name)).status == "completed"

    run(scenario())


def test_a_claimer_that_has_gone_takes_no_job_with_it() -> None:
    async def scenario() -> None:
        async with serving() as server:
            pools = server.parts.engine.pools
            for name in ("", "named"):
                asking = asyncio.ensure_future(server.claim(wait_seconds=30, claim=name))
                await until(lambda: "gpu" in pools._lines and bool(pools._lines["gpu"].waiters))
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                await asyncio.sleep(0.05)
                await server.start(ONE)
                (task,) = (await server.claim(wait_seconds=30, worker="w2"))["tasks"]
                await server.good(task, "report", {"result": 1})

    run(scenario())


def test_leases_outlive_the_engine_and_late_workers_get_a_moment_to_report(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "store.db"
        async with serving(path) as server:
            name, idle = await server.start(ONE), await server.start(ONE)
            claimed = await server.claim(max=1, lease_seconds=1)
            (task,) = claimed["tasks"]
        await asyncio.sleep(1.1)  # the lease runs out while nobody is there to extend it
        async with serving(path) as server:
            (pool,) = (await server.ask("GET", "/pools"))[1]["items"]
            assert (pool["waiting"], len(pool["leased"])) == (1, 1)
            await server.good(task, "report", {"result": 5})
            assert (await server.parts.verbs.wait(name)).ends["far"] == 5
            (other,) = (await server.claim())["tasks"]
            assert other["run"] == idle

    run(scenario())


def test_a_try_whose_worker_was_lost_counts_for_its_items() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(LOOP, items=[1, 2, 3])
            await server.claim(lease_seconds=1, worker="gone")
            (task,) = (await server.claim(wait_seconds=30, worker="other"))["tasks"]
            read = server.parts.verbs.read
            for wanted in (None, "running"):
                seen = read.items(name, "each", state=wanted).items
                assert [(one.state, one.attempts) for one in seen] == [("running", 2)] * 3
            report = {"shard": {"succeeded": 3, "shared": {"total": 6}}, "result": [2, 4, 6]}
            await server.good(task, "report", report)
            await server.parts.verbs.wait(name)
            ended = read.items(name, "each").items
            assert [(one.state, one.attempts) for one in ended] == [("succeeded", 2)] * 3

    run(scenario())


def test_a_shard_goes_out_and_its_report_must_speak_of_its_items() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(LOOP, items=[1, 2, 3])
            (task,) = (await server.claim(wait_seconds=30))["tasks"]
            assert task["shard"][1:3] == [0, 3]
            assert "items" not in task, "a list is worked out by the worker"
            report = {"shard": {"succeeded": 3, "shared": {"total": 6}}, "result": [2, 4, 6]}
            await server.good(task, "report", report)
            state = await server.parts.verbs.wait(name)
            assert (state.status, state.results["sum"]) == ("completed", 6)
            plain = await server.start(ONE)
            (task,) = (await server.claim())["tasks"]
            status, answer = await server.say(task, "report", report)
            assert (status, answer["code"]) == (422, "shard")
            assert server.state(plain).jobs["1.0"].phase == "running"

    run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        {"worker": ""},
        {"worker": "engine"},
        {"worker": "w", "max": 0},
        {"worker": "w", "max": 100_000},
        {"worker": "w", "wait_seconds": 1e9},
        {"worker": "w", "lease_seconds": 0},
        {"max": 1},
        {"worker": "w", "surprise": 1},
        {"worker": 7},
    ],
)
def test_a_claim_that_makes_no_sense_is_refused_and_takes_nothing(body: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with serving() as server:
            await server.start(ONE)
            status, answer = await server.ask("POST", "/pools/gpu/claim", body)
            assert status in (400, 422), answer
            assert answer["detail"]
            assert server.parts.engine.pools.waiting("gpu") == 1

    run(scenario())
