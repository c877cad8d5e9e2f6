"""A worker outlives its server, says what matters once, and never does more at once than it may."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from anabranch.kernel import events as e
from anabranch.pools.remote import server_client
from anabranch.work.kinds.callables import Toolbox
from operations.workers.test_claims import events_of

from .proxy import bad_network
from .support import ONE, Server, playbook, run, serving, until, working

NOWHERE = "http://127.0.0.1:1"


class Crowd:
    """A tool that knows how many of it are at work at once, and waits to be let go."""

    def __init__(self) -> None:
        self.now = self.most = self.done = 0
        self.go_on = asyncio.Event()
        self.toolbox = Toolbox()

        @self.toolbox.tool("crowd")
        async def crowd() -> int:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await self.go_on.wait()
                await asyncio.sleep(0.01)
            finally:
                self.now -= 1
            self.done += 1
            return 1


ONE_OF_A_CROWD = playbook("  - {step: far, spec: {pool: gpu}, tool: {kind: crowd}}\n")


def test_that_a_server_is_away_and_back_is_said_once_however_many_jobs_are_at_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_client, "DELAY_SECONDS", (0.02, 0.1))
    caplog.set_level(logging.INFO, "anabranch.worker")

    def said(words: str) -> int:
        return sum(words in record.getMessage() for record in caplog.records)

    async def scenario() -> None:
        crowd = Crowd()
        async with (
            serving() as server,
            bad_network(server.url, share=0.0) as network,
            working(network.url, toolbox=crowd.toolbox, concurrency=5, lease_seconds=1.5) as worker,
        ):
            runs = [await server.start(ONE_OF_A_CROWD) for _ in range(4)]
            await until(lambda: crowd.now == 4)
            network.leads_to(NOWHERE)
            crowd.go_on.set()
            await until(lambda: crowd.done == 4)
            await asyncio.sleep(0.5)  # four reports, a claim and a watch meet a closed door
            assert said("cannot be reached") == 1
            assert worker._servers.away_seconds > 0
            network.leads_to(server.url)
            for name in runs:
                assert (await server.parts.verbs.wait(name)).results["far"] == 1
                assert len(events_of(server, name, e.JobReported)) == 1
            await until(lambda: worker.tally.done == 4)
            assert said("is back after") >= 1
            assert worker._servers.away_seconds == 0

    run(scenario())


def test_pauses_between_tries_grow_up_to_a_limit_and_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def slept(seconds: float) -> None:
        pauses.append(seconds)

    async def away() -> None:
        if len(pauses) < 12:
            raise server_client.ServerAway("closed")

    monkeypatch.setattr(server_client, "asyncio", SimpleNamespace(sleep=slept))
    run(server_client.until_heard(away))
    first, most = server_client.DELAY_SECONDS
    assert first / 2 <= pauses[0] <= first
    assert all(most / 2 <= pause <= most for pause in pauses[-3:])
    assert len(set(pauses)) == len(pauses)


def test_a_worker_never_does_more_at_once_than_its_concurrency() -> None:
    async def scenario() -> None:
        crowd = Crowd()
        async with serving() as server:
            runs = [await server.start(ONE_OF_A_CROWD) for _ in range(12)]
            async with working(server.url, toolbox=crowd.toolbox, concurrency=3):
                await until(lambda: crowd.now == 3)
                assert server.parts.engine.pools.waiting("gpu") == 9
                crowd.go_on.set()
                for name in runs:
                    await server.parts.verbs.wait(name)
        assert (crowd.most, crowd.done) == (3, 12)

    run(scenario())


def test_the_window_of_a_loop_holds_over_all_workers_together() -> None:
    text = playbook("""
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 1, max_concurrent: 3}}
    loop: {in: {range: 20}, iterator: n}
    tool: {kind: crowd}
""")

    async def scenario() -> None:
        crowd = Crowd()
        async with serving(toolbox=crowd.toolbox) as server:
            name = await server.start(text)
            async with (
                working(server.url, toolbox=crowd.toolbox, concurrency=4, name="a"),
                working(server.url, toolbox=crowd.toolbox, concurrency=4, name="b"),
            ):
                await until(lambda: crowd.now == 3)
                crowd.go_on.set()
                state = await server.parts.verbs.wait(name)
        assert (crowd.most, state.results["each"]["succeeded"]) == (3, 20)

    run(scenario())


def test_a_worker_that_stops_while_it_asks_leaves_no_job_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its last question may have been answered on the way: the job goes back at once."""

    async def scenario() -> None:
        async with serving() as server, bad_network(server.url, share=0.0) as network:
            async with working(network.url, once=True, name="known"):
                pass
            async with working(network.url, grace_seconds=0.0, name="late") as worker:
                await until(lambda: _waits(server, "late"))
                monkeypatch.setattr(worker, "_begin", lambda *_: None)  # it never hears the answer
                worker.stop()
                name = await server.start(ONE)
            assert server.state(name).jobs["1.0"].phase == "scheduled"
            (task,) = (await server.claim(worker="next"))["tasks"]
            assert task["run"] == name

    run(scenario())


def _waits(server: Server, worker: str) -> bool:
    line = server.parts.engine.pools._lines.get("gpu")
    return line is not None and bool(line.waiters) and worker in line.workers


def test_an_answer_that_was_lost_on_its_way_is_repeated_and_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_client, "DELAY_SECONDS", (0.02, 0.1))

    async def scenario() -> None:
        crowd = Crowd()
        async with (
            serving() as server,
            bad_network(server.url, share=0.0) as network,
            working(network.url, toolbox=crowd.toolbox) as worker,
        ):
            name = await server.start(ONE_OF_A_CROWD)
            await until(lambda: crowd.now == 1)
            hear = server.parts.engine.listen(lambda _news: network.cut_all())  # before it answers
            crowd.go_on.set()
            state = await server.parts.verbs.wait(name)
            hear()
            await until(lambda: worker.tally.done == 1)
            assert worker.tally.void == 0
            assert (state.results["far"], crowd.done) == (1, 1)
            assert len(events_of(server, name, e.JobReported)) == 1

    run(scenario())


def test_a_slip_of_the_pen_in_the_name_of_a_pool_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "anabranch.worker")

    async def scenario() -> None:
        async with serving() as server:
            await server.start(ONE)
            async with working(server.url, pool="gqu"):  # before the first wait, not after it
                await until(lambda: "did you mean 'gpu'?" in caplog.text)

    run(scenario())


def test_a_worker_of_a_server_behind_a_wrong_door_waits_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that answers 502 while the server is being started again is no reason to give up."""
    monkeypatch.setattr(server_client, "DELAY_SECONDS", (0.02, 0.1))
    assert {502, 503, 504} <= server_client.PATIENCE
    path = tmp_path / "store.db"

    async def scenario() -> None:
        async with (
            serving(path) as first,
            bad_network(first.url, share=0.0) as network,
            working(network.url, concurrency=2) as worker,
        ):
            name = await first.start(ONE)
            await first.parts.verbs.wait(name)
            await first.parts.close()
            first.parts.store.close()
            async with serving(path) as second:
                network.leads_to(second.url)
                again = await second.start(ONE)
                assert (await second.parts.verbs.wait(again)).results["far"] == 21
                await until(lambda: worker.tally.done == 2)

    run(scenario())
