"""Everything a worker can do wrong has a code, says what to do about it, and changes nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.kernel import events as e
from surfaces.worker.support import LOOP, ONE, Server, playbook, run, serving, until

from .test_claims import events_of

VERBS = {
    "heartbeat": {},
    "progress": {"progress": 1},
    "report": {"result": 1},
    "fail": {"message": "no luck"},
    "park": {"ticket": "t"},
    "release": {},
}


async def refused(server: Server, task: Any, verb: str, body: Any) -> tuple[int, str]:
    status, answer = await server.say(task, verb, body)
    assert status >= 400, answer
    assert answer["detail"]
    assert answer["hint"]
    return status, str(answer["code"])


async def one_job(server: Server) -> tuple[dict[str, Any], int]:
    name = await server.start(ONE)
    (task,) = (await server.claim())["tasks"]
    return task, server.state(name).seq


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_can_be_said_of_a_job_that_is_with_somebody_else(verb: str) -> None:
    async def scenario() -> None:
        async with serving() as server:
            task, seq = await one_job(server)
            theirs = {**task, "worker": "w2"}
            assert await refused(server, theirs, verb, VERBS[verb]) == (409, "not_your_job")
            path = server.job(task, verb).partition("?")[0]
            status, answer = await server.ask("POST", path, VERBS[verb])
            assert (status, answer["code"]) == (400, "parameter")
            assert "?worker=NAME" in answer["hint"]
            assert server.state(task["run"]).seq == seq
            await server.good(task, "report", {"result": 1})

    run(scenario())


@pytest.mark.parametrize("verb", VERBS)
def test_a_doubled_report_and_whatever_follows_it_is_refused(verb: str) -> None:
    async def scenario() -> None:
        text = (
            ONE
            + "    next: {arcs: [{step: wait}]}\n  - {step: wait, tool: {kind: decision, ask: x}}\n"
        )
        async with serving() as server:
            name = await server.start(text)
            (task,) = (await server.claim())["tasks"]
            await server.good(task, "report", {"result": 1})
            seq = server.state(name).seq
            assert await refused(server, task, verb, VERBS[verb]) == (409, "unknown_job")
            assert server.state(name).seq == seq
            assert len(events_of(server, name, e.JobReported)) == 1

    run(scenario())


@pytest.mark.parametrize("verb", ["report", "heartbeat", "release"])
def test_a_stale_lease_is_refused(verb: str) -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(ONE)
            (task,) = (await server.claim(lease_seconds=1))["tasks"]
            await until(lambda: bool(events_of(server, name, e.JobLost)))
            assert await refused(server, task, verb, VERBS[verb]) == (409, "stale_attempt")
            (again,) = (await server.claim())["tasks"]
            await server.good(again, "report", {"result": 2})

    run(scenario())


@pytest.mark.parametrize(
    ("verb", "body", "status", "code"),
    [
        ("report", {"result": 1, "surprise": 2}, 422, "schema"),
        ("report", [], 422, "schema"),
        ("report", {"shard": {"succeeded": 1}}, 422, "shard"),
        ("report", {"shard": 7}, 422, "schema"),
        ("report", {"patches": [{"key": 1}]}, 422, "schema"),
        ("fail", {}, 422, "schema"),
        ("fail", {"message": "x", "status": "fine"}, 422, "schema"),
        ("progress", {}, 422, "schema"),
        ("progress", {"progress": "p" * 5000}, 422, "too_large"),
        ("heartbeat", {"lease_seconds": -1}, 422, "input"),
        ("heartbeat", {"lease_seconds": "long"}, 422, "schema"),
        ("park", {}, 422, "schema"),
        ("park", {"ticket": "t", "until": 2**63}, 422, "schema"),
        ("park", {"ticket": "t", "limit_ms": 2**63}, 422, "schema"),
        ("park", {"ticket": "t", "until": -(2**70)}, 422, "schema"),
        ("report", {"result": 1, "wait_ms": 2**63}, 422, "schema"),
        ("report", {"result": 1, "redacted": 2**70}, 422, "schema"),
        ("report", {"shard": {"succeeded": 1, "milliseconds": 2**70}}, 422, "schema"),
        ("children", {"path": "x.yaml", "run": "r"}, 409, "no_children"),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_the_job_with_its_worker(
    verb: str, body: Any, status: int, code: str
) -> None:
    async def scenario() -> None:
        async with serving() as server:
            task, seq = await one_job(server)
            assert await refused(server, task, verb, body) == (status, code)
            assert server.state(task["run"]).seq == seq
            await server.good(task, "report", {"result": 1})

    run(scenario())


def test_what_a_worker_says_of_itself_has_a_limit() -> None:
    """What a thousand workers say of themselves is one answer to who looks at them."""

    async def scenario() -> None:
        async with serving() as server:
            await server.claim(about={"kinds": [f"{number:x<30}" for number in range(500)]})
            kinds = [f"{number:x<200}" for number in range(100)]
            body = {"worker": "w2", "about": {"kinds": kinds}}
            for verb in ("claim", "wait"):
                status, answer = await server.ask("POST", f"/pools/gpu/{verb}", body)
                assert (status, answer["code"]) == (422, "input")
                assert "16,384 together" in answer["detail"]
            assert [name for name, _ in server.parts.engine.pools.all_workers()] == ["w1"]

    run(scenario())


def test_bodies_that_are_no_json_or_too_large_are_refused() -> None:
    async def scenario() -> None:
        async with serving() as server:
            task, _ = await one_job(server)
            url = server.api + server.job(task, "report")
            json_type = {"Content-Type": "application/json"}
            for content, headers, code in (
                (b"{", json_type, "not_json"),
                (b"", json_type, "no_body"),
                (b"{}", {"Content-Type": "text/plain"}, "media_type"),
                (b'{"result": %s}' % (b"[" * 300 + b"]" * 300), json_type, "too_deep"),
                (b'{"result": 1, "result": 2}', json_type, "duplicate_key"),
            ):
                async with server.session.post(url, data=content, headers=headers) as response:
                    answer = await response.json(content_type=None)
                    assert answer["code"] == code, answer
                    assert answer["hint"]
            assert server.state(task["run"]).jobs["1.0"].phase == "running"

    run(scenario())


def test_a_pool_that_nobody_knows_is_named_with_the_nearest_known_one() -> None:
    async def scenario() -> None:
        async with serving() as server:
            await server.start(ONE)
            assert "did you mean 'gpu'?" in (await server.claim("gpus"))["note"]
            status, answer = await server.ask("GET", "/pools/gpuu")
            assert (status, answer["code"]) == (404, "unknown_pool")
            assert "gpu" in answer["hint"]
            status, pool = await server.ask("GET", "/pools/gpu")
            assert (status, pool["waiting"]) == (200, 1)
            (task,) = (claimed := await server.claim())["tasks"]
            assert claimed["note"] == ""
            await server.good(task, "report")
            assert (await server.claim())["note"] == "", "only empty, and not unknown"

    run(scenario())


def test_a_claim_that_is_withdrawn_gives_back_what_it_was_given() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(ONE)
            await server.claim(claim="c1")
            body = {"worker": "w1", "claim": "c1"}
            other = {"worker": "w2", "claim": "c1"}
            assert (await server.ask("POST", "/pools/gpu/withdraw", other))[1]["handed_back"] == 0
            assert (await server.ask("POST", "/pools/gpu/withdraw", body))[1]["handed_back"] == 1
            assert (await server.ask("POST", "/pools/gpu/withdraw", body))[1]["handed_back"] == 0
            (lost,) = events_of(server, name, e.JobLost)
            assert (lost.counted, lost.reason) == (False, "its claimer was gone")
            (again,) = (await server.claim())["tasks"]
            assert again["attempt"] == 2
            await server.good(again, "report", {"result": 1})

    run(scenario())


def test_a_claim_that_waits_is_answered_with_nothing_when_it_is_withdrawn() -> None:
    async def scenario() -> None:
        async with serving() as server:
            asking = asyncio.ensure_future(server.claim(wait_seconds=50, claim="c1"))
            pools = server.parts.engine.pools
            await until(lambda: "gpu" in pools._lines and bool(pools._lines["gpu"].waiters))
            await server.ask("POST", "/pools/gpu/withdraw", {"worker": "w1", "claim": "c1"})
            assert (await asking)["tasks"] == []
            await server.start(ONE)
            assert len((await server.claim(worker="w2"))["tasks"]) == 1

    run(scenario())


def test_a_child_run_is_begun_only_under_the_name_of_its_parent() -> None:
    text = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: playbook, path: nowhere.yaml, wait: true}
""")

    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(text)
            (task,) = (await server.claim())["tasks"]
            body = {"path": "nowhere.yaml", "run": "sneaky"}
            assert await refused(server, task, "children", body) == (422, "bad_run_id")
            assert server.parts.store.head("sneaky") is None
            assert server.state(name).jobs["1.0"].phase == "running"

    run(scenario())


def test_a_worker_that_compiles_nothing_gets_the_items_of_a_shard_and_reports_them() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(LOOP, items=[5, 6, 7])
            (task,) = (await server.claim(wait_seconds=20, items=True))["tasks"]
            assert task["items"] == [[0, "0", 5], [1, "1", 6], [2, "2", 7]]
            failed = [[1, "1", "ValueError", "six is not liked", False]]
            report = {"succeeded": 2, "failed": failed, "shared": {"total": 12}}
            await server.good(task, "report", {"shard": report, "result": [10, None, 14]})
            state = await server.parts.verbs.wait(name)
            each = state.results["each"]
            assert (each["succeeded"], each["failed"]) == (2, 1)

    run(scenario())
