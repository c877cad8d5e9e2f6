"""Pools on a compute cluster over HTTP: their state, the places of jobs, metrics and health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from anabranch.pools.backend import BackendAway, Lost, Started
from anabranch.settings import Settings
from anabranch.surfaces.http.routes import API
from anabranch.surfaces.http.serve import Server
from pools.scripted import DASHBOARD, Script, ScriptedBackend, scripts

from ..support import playbook, run, step

__all__ = ["scripts"]

STEP = playbook(step("render", spec={"pool": "heavy"}))
LOOP = playbook(
    step(
        "frames",
        spec={
            "pool": "heavy",
            "loop_mode": "fanout",
            "fanout": {"shard_size": 5, "max_concurrent": 8, "max_job_retries": 0},
        },
        loop={"in": {"range": 100}, "iterator": "n"},
    )
)
WORKER = "tcp://10.0.0.7:4021"


class Caller:
    def __init__(self, session: ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def get(self, path: str) -> Any:
        async with self._session.get(f"{self._url}{API}{path}") as answer:
            return await answer.json()

    async def start(self, definition: Any) -> str:
        body = {"definition": definition}
        async with self._session.post(f"{self._url}{API}/runs", json=body) as answer:
            return str((await answer.json())["run"])

    async def metrics(self) -> dict[tuple[str, ...], float]:
        """(name, the values of its labels) → value, of pools alone."""
        async with self._session.get(f"{self._url}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
            return {
                (one.name, *one.labels.values()): one.value
                for family in families
                if family.name.startswith("anabranch_pool")
                for one in family.samples
            }

    async def until(self, path: str, holds: Callable[[Any], bool]) -> Any:
        """The answer when it holds."""
        while not holds(found := await self.get(path)):
            await asyncio.sleep(0.01)
        return found


@asynccontextmanager
async def serving(store: Path, pools: str) -> AsyncIterator[Caller]:
    settings = Settings(store=str(store), serve_port=0, pools=pools)
    async with Server(settings, grace_seconds=0) as server, ClientSession() as session:
        yield Caller(session, server.url)


def backend_of(script: Script) -> ScriptedBackend:
    assert script.backend is not None
    return script.backend


def test_a_pool_says_where_its_cluster_is_and_what_it_has(
    scripts: dict[str, Script], tmp_path: Path
) -> None:
    heavy = scripts["heavy"] = Script(slots=2, workers=2)

    async def work() -> None:
        async with serving(tmp_path / "runs.db", "heavy=dask://10.0.0.5:8786?queue=1") as ask:
            await ask.until("/pools/heavy", lambda one: one["cluster"]["state"] == "open")
            begun = await ask.start(LOOP)
            card = await ask.until("/pools/heavy", lambda one: one["cluster"]["submitted"] == 3)
            assert await ask.get("/pools") == {
                "items": [await ask.get("/pools/heavy")],
                "next": None,
            }
            cluster = card["cluster"]
            assert {key: cluster[key] for key in ("engine", "address", "workers", "slots")} == {
                "engine": "dask", "address": "dask://10.0.0.5:8786", "workers": 2, "slots": 2,
            }  # fmt: skip
            assert (cluster["dashboard"], cluster["version"]) == (DASHBOARD, "1.2.3")
            assert len(card["leased"]) == cluster["queued"] == 3  # two slots, one in the queue
            first = cluster["tickets"][0]
            assert (first["run"], first["step"], first["worker"]) == (begun, "frames", "")
            backend_of(heavy).tell(Started(first["ticket"], WORKER, "p1"))
            card = await ask.until("/pools/heavy", lambda one: one["cluster"]["running"] == 1)
            assert card["cluster"]["tickets"][0]["worker"] == WORKER
            assert card["cluster"]["queued"] == 2

    run(work())


def test_a_run_says_on_which_cluster_its_jobs_are(
    scripts: dict[str, Script], tmp_path: Path
) -> None:
    heavy = scripts["heavy"] = Script()

    async def work() -> None:
        async with serving(tmp_path / "runs.db", "heavy=dask://10.0.0.5:8786") as ask:
            begun = await ask.start(STEP)
            await ask.until("/pools/heavy", lambda one: one["cluster"]["submitted"] == 1)
            (waiting,) = (await ask.get(f"/runs/{begun}/explain"))["waiting"]
            (ticket,) = backend_of(heavy).tickets
            assert "in its queue" in waiting["waits_for"]
            place = {
                "engine": "dask", "address": "dask://10.0.0.5:8786", "state": "open",
                "dashboard": DASHBOARD, "task": ticket,
            }  # fmt: skip
            assert waiting["cluster"] == place
            backend_of(heavy).tell(Started(ticket, WORKER, "p1"))
            shown = await ask.until(
                f"/runs/{begun}", lambda one: WORKER in one["waiting"][0]["waits_for"]
            )
            (waiting,) = shown["waiting"]
            assert waiting["cluster"] == {**place, "worker": WORKER}
            assert waiting["movers"] == ["dask at 10.0.0.5:8786"]

    run(work())


def test_metrics_count_what_each_cluster_was_given_and_lost(
    scripts: dict[str, Script], tmp_path: Path
) -> None:
    heavy = scripts["heavy"] = Script(slots=2, workers=1)
    far = scripts["far"] = Script()
    far.refuses = BackendAway("the scheduler does not answer")

    async def work() -> None:
        pools = "heavy=dask://10.0.0.5:8786, far=ray:auto"
        async with serving(tmp_path / "runs.db", pools) as ask:
            await ask.start(STEP)
            card = await ask.until("/pools/heavy", lambda one: one["cluster"]["submitted"] == 1)
            (ticket,) = card["cluster"]["tickets"]
            found = await ask.metrics()
            assert found["anabranch_pool_cluster_up", "heavy"] == 1
            assert found["anabranch_pool_cluster_up", "far"] == 0
            assert found["anabranch_pool_cluster_slots", "heavy"] == 2
            assert found["anabranch_pool_cluster_workers", "heavy"] == 1
            assert found["anabranch_pool_cluster_jobs", "heavy", "queued"] == 1
            assert found["anabranch_pool_submitted_total", "heavy"] == 1
            backend_of(heavy).tell(Started(ticket["ticket"], WORKER, "p1"))
            backend_of(heavy).tell(Lost(ticket["ticket"], "its worker died", True))
            await ask.until("/pools/heavy", lambda one: one["cluster"]["submitted"] == 2)
            found = await ask.metrics()
            assert found["anabranch_pool_lost_total", "heavy", "worker"] == 1
            assert found["anabranch_pool_finished_total", "heavy"] == 0
            assert found["anabranch_pool_late_total", "heavy"] == 0
            assert found["anabranch_pool_withdrawn_total", "far"] == 0

    run(work())


def test_health_warns_of_a_cluster_that_is_away_without_telling_where_it_is(
    scripts: dict[str, Script], tmp_path: Path
) -> None:
    far = scripts["far"] = Script()
    far.refuses = BackendAway("the scheduler at dask://hpc.internal:8786 does not answer")

    async def work() -> None:
        async with serving(tmp_path / "runs.db", "far=dask://hpc.internal:8786") as ask:
            await ask.until("/pools/far", lambda one: one["cluster"]["state"] == "away")
            report = await ask.get("/health")
            (check,) = [one for one in report["checks"] if one["name"] == "pool:far"]
            assert (report["status"], report["ready"]) == ("warn", True)
            assert check["reason"] == (
                "the dask cluster of pool 'far' does not answer: /pools says why"
            )
            assert "hpc.internal" not in str(report)
            far.refuses = None
            await ask.until("/pools/far", lambda one: one["cluster"]["state"] == "open")
            report = await ask.get("/health")  # of a busy machine it may warn of other things
            (check,) = [one for one in report["checks"] if one["name"] == "pool:far"]
            assert check["level"] == "ok"

    run(work())
