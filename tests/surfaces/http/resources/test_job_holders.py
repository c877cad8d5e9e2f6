"""A job belongs to the token that claimed it, and a token works for its pools only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.kernel import events as e
from anabranch.kernel.state import Job
from anabranch.operations.workers.cancel_watch import CancelWatch
from anabranch.operations.workers.claims import CLAIM_MAX
from anabranch.operations.workers.worker_api import WorkerApi

from ..access import Door, Reply, serving
from ..support import run

ONE = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: pooled}
workflow:
  - step: far
    spec: {pool: gpu}
    tool: {kind: python, args: {n: 20}, code: "result = n + 1"}
"""

HERS, HIS = "first-owner", "second-owner"
JOB = "/jobs/{run}/{job}/{attempt}/{verb}?worker={worker}"
#: Everything that can be said of a job, and whether it changes anything.
SAID: list[tuple[str, str, Any]] = [
    ("POST", "heartbeat", {}),
    ("POST", "progress", {"progress": {"done": 1}}),
    ("POST", "report", {"result": 1}),
    ("POST", "fail", {"message": "no"}),
    ("POST", "park", {"ticket": "x"}),
    ("POST", "release", {}),
    ("GET", "definition", None),
    ("GET", "payloads/" + "0" * 64, None),
    ("POST", "payloads", None),
    ("GET", "results", None),
    ("POST", "children", {"path": "x.yaml", "run": "r"}),
]


def place(task: Any, verb: str, worker: str = "w1") -> str:
    ref = "&ref=anabranch:run:r/loop/l1" if verb == "results" else ""
    return JOB.format(**{**task, "verb": verb, "worker": worker}) + ref


async def claimed(door: Door, token: str, worker: str = "w1", **more: Any) -> Any:
    body = {"worker": worker, "wait_seconds": 20, **more}
    reply = await door.ask("POST", "/pools/gpu/claim", token, body)
    assert reply.status == 200, reply.text
    (task,) = reply.json["tasks"]
    return task


@asynccontextmanager
async def two_workers(store: Path | None = None) -> AsyncIterator[tuple[Door, str, str]]:
    where = str(store) if store is not None else ":memory:"
    async with serving(require_tokens="yes", store=where) as door:
        hers = door.token("work", name=HERS)
        his = door.token("work", name=HIS)
        yield door, hers, his


def refused(reply: Reply) -> None:
    assert (reply.status, reply.code) == (409, "not_your_job"), reply.text
    assert HERS not in reply.text


@pytest.mark.parametrize(("method", "verb", "body"), SAID, ids=[verb for _, verb, _ in SAID])
def test_another_token_cannot_speak_for_a_job_by_giving_the_name_of_its_worker(
    method: str, verb: str, body: Any
) -> None:
    async def go() -> None:
        async with two_workers() as (door, hers, his):
            await door.server.parts.verbs.start(ONE)
            task = await claimed(door, hers)
            refused(await door.ask(method, place(task, verb), his, body))
            wrong = await door.ask(method, place(task, verb, "w2"), hers, body)
            assert (wrong.status, wrong.code) == (409, "not_your_job")
            assert "'w1'" not in wrong.text, "a refusal does not name the right one"
            good = await door.ask("POST", place(task, "report"), hers, {"result": 1})
            assert good.status == 200, good.text

    run(go())


def test_another_token_gets_no_answer_to_a_claim_and_withdraws_none_by_its_name() -> None:
    async def go() -> None:
        async with two_workers() as (door, hers, his):
            await door.server.parts.verbs.start(ONE)
            task = await claimed(door, hers, claim="c1")
            again = await door.ask("POST", "/pools/gpu/claim", his, {"worker": "w1", "claim": "c1"})
            assert again.json["tasks"] == []
            body = {"worker": "w1", "claim": "c1"}
            gone = await door.ask("POST", "/pools/gpu/withdraw", his, body)
            assert gone.json == {"handed_back": 0}
            assert (await claimed(door, hers, claim="c1"))["job"] == task["job"]
            watched = {"worker": "w1", "jobs": [{k: task[k] for k in ("run", "job", "attempt")}]}
            stop = (await door.ask("POST", "/jobs/watch", his, watched)).json["stop"]
            assert [one["code"] for one in stop] == ["not_your_job"]
            assert (await door.ask("POST", "/jobs/watch", hers, watched)).json["stop"] == []

    run(go())


def test_a_restarted_server_knows_which_token_has_a_job(tmp_path: Path) -> None:
    async def go() -> None:
        store = tmp_path / "store.db"
        async with two_workers(store) as (door, hers, his):
            await door.server.parts.verbs.start(ONE)
            task = await claimed(door, hers, lease_seconds=600)
        async with serving(require_tokens="yes", store=str(store)) as door:
            refused(await door.ask("POST", place(task, "report"), his, {"result": 1}))
            good = await door.ask("POST", place(task, "report"), hers, {"result": 1})
            assert good.status == 200, good.text

    run(go())


def test_a_new_token_of_the_same_name_takes_over_when_the_old_one_is_revoked() -> None:
    async def go() -> None:
        async with two_workers() as (door, hers, his):
            await door.server.parts.verbs.start(ONE)
            task = await claimed(door, hers)
            new = door.token("work", name=HERS)
            beat = place(task, "heartbeat")
            refused_yet = await door.ask("POST", beat, new, {})
            assert refused_yet.code == "not_your_job", "as long as the old one opens something"
            door.server.access.revoke(hers.split("_")[1])
            assert (await door.ask("POST", beat, new, {})).status == 200
            assert (await door.ask("POST", beat, his, {})).code == "not_your_job"

    run(go())


def test_without_tokens_a_job_belongs_to_whoever_gives_the_name_of_its_worker() -> None:
    async def go() -> None:
        async with serving() as door:
            await door.server.parts.verbs.start(ONE)
            task = await claimed(door, "")
            assert (await door.ask("POST", place(task, "heartbeat"), "", {})).status == 200
            wrong = await door.ask("POST", place(task, "heartbeat", "w2"), "", {})
            assert wrong.code == "not_your_job"

    run(go())


def test_without_a_token_nobody_speaks_for_a_job_that_was_claimed_with_one() -> None:
    async def go() -> None:
        async with serving() as door:
            await door.server.parts.verbs.start(ONE)
            hers = door.token("work", name=HERS)
            task = await claimed(door, hers)
            refused(await door.ask("POST", place(task, "report"), "", {"result": 1}))

    run(go())


def test_logs_and_snapshots_of_before_have_jobs_without_a_holder() -> None:
    old = b'[["job.started","1.0",1,"w1",5000,0]]'
    (event,) = e.decode_events(old)
    assert isinstance(event, e.JobStarted)
    assert event.holder == ""
    known = msgspec.to_builtins(Job("1.0", 1, -1, "s", 1, 0))
    del known["holder"]
    assert msgspec.convert(known, Job).holder == ""


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("park", {"ticket": "x", "until": 2**63}),
        ("park", {"ticket": "x", "limit_ms": 2**63}),
        ("report", {"wait_ms": 2**63}),
    ],
    ids=["until", "limit", "wait"],
)
def test_a_worker_names_no_instant_that_no_store_holds(verb: str, body: Any) -> None:
    async def go() -> None:
        async with two_workers() as (door, hers, _his):
            await door.server.parts.verbs.start(ONE)
            task = await claimed(door, hers)
            reply = await door.ask("POST", place(task, verb), hers, body)
            assert (reply.status, reply.code) == (422, "schema"), reply.text
            assert (await door.ask("POST", place(task, "heartbeat"), hers, {})).status == 200

    run(go())


# -- pools -----------------------------------------------------------------------------------


def test_jobs_that_are_too_many_to_watch_are_counted_before_one_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(WorkerApi, "pool_of", lambda _self, out: looked.append(out))
    monkeypatch.setattr(CancelWatch, "to_stop", lambda _self, out: looked.append(out))

    async def go() -> None:
        async with serving(require_tokens="yes") as door:
            limited = door.server.access.create("limited", ["work"], None, ["gpu"])[1]
            jobs = [{"run": "r", "job": str(n), "attempt": 1} for n in range(CLAIM_MAX + 1)]
            watched = {"worker": "w1", "jobs": jobs}
            reply = await door.ask("POST", "/jobs/watch", limited, watched)
            assert (reply.status, reply.code) == (422, "schema")
            assert "1000" in reply.text
            assert looked == []

    run(go())


def test_a_token_for_some_pools_claims_withdraws_and_watches_only_there() -> None:
    async def go() -> None:
        async with two_workers() as (door, hers, _):
            limited = door.server.access.create("eu", ["work"], None, ["eu", "asia"])[1]
            await door.server.parts.verbs.start(ONE)
            body = {"worker": "w1", "claim": "c"}
            for verb in ("claim", "withdraw"):
                denied = await door.ask("POST", f"/pools/gpu/{verb}", limited, body)
                assert (denied.status, denied.code) == (403, "pool"), denied.text
                assert (await door.ask("POST", f"/pools/eu/{verb}", limited, body)).status == 200
            task = await claimed(door, hers)
            watched = {"worker": "w1", "jobs": [{k: task[k] for k in ("run", "job", "attempt")}]}
            denied = await door.ask("POST", "/jobs/watch", limited, watched)
            assert (denied.status, denied.code) == (403, "pool"), denied.text
            nothing = {"worker": "w1", "jobs": [{"run": "none", "job": "1.0", "attempt": 1}]}
            assert (await door.ask("POST", "/jobs/watch", limited, nothing)).status == 200

    run(go())


def test_a_token_for_some_pools_speaks_for_no_job_of_another_pool() -> None:
    async def go() -> None:
        async with serving() as door:
            limited = door.server.access.create("eu", ["work"], None, ["eu"])[1]
            await door.server.parts.verbs.start(ONE)
            task = await claimed(door, "")  # nobody's in particular
            refused(await door.ask("POST", place(task, "report"), limited, {"result": 1}))

    run(go())


def test_the_pools_of_a_token_are_made_and_shown_over_http() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes") as door:
            admin = door.token("admin")
            body = {"name": "eu", "scopes": ["work"], "pools": ["gpu", "eu"]}
            made = await door.ask("POST", "/tokens", admin, body)
            assert (made.status, made.json["pools"]) == (201, ["eu", "gpu"])
            listed = (await door.ask("GET", "/tokens", admin)).json["items"]
            assert [one["pools"] for one in listed] == [[], ["eu", "gpu"]]
            me = (await door.ask("GET", "/me", made.json["token"])).json
            assert me == {
                "actor": "eu",
                "scopes": ["work"],
                "token": made.json["id"],
                "pools": ["eu", "gpu"],
            }
            for scopes, pools in (
                (["read"], ["gpu"]),
                (["work", "admin"], ["gpu"]),
                (["work"], [""]),
            ):
                wrong = await door.ask(
                    "POST", "/tokens", admin, {"name": "x", "scopes": scopes, "pools": pools}
                )
                assert (wrong.status, wrong.code) == (422, "token_pool"), wrong.text

    run(go())
