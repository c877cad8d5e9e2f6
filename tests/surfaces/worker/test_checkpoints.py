"""A shard whose worker is lost goes on from what was said of it in time; every item counts once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from anabranch.kernel import events as e
from anabranch.kernel.state import State
from anabranch.pools import task_environment as benches
from anabranch.pools.remote import server_client
from anabranch.surfaces.worker import job_runner
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.loops import checkpoints
from operations.workers.test_claims import events_of

from .proxy import bad_network
from .support import Server, playbook, run, serving, until, working

ITEMS = 60
LOOP = playbook("""
  - step: each
    spec:
      pool: gpu
      loop_mode: fanout
      fanout: {shard_size: 60, tolerated_failures: 60, reducers: {total: sum, all: append}}
    loop: {in: {range: 60}, iterator: n}
    tool:
      kind: note
      n: "{{ iter.n }}"
      set_shared: {total: "{{ outcome.result.n }}", all: "{{ outcome.result.n }}"}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: artifact, result_ref: "{{ each.refs }}"}
""")


class Notes:
    """A tool that notes every item it is given; the fortieth waits until it may go on."""

    def __init__(self, pad: int = 0) -> None:
        self.seen: Counter[int] = Counter()
        self.go_on = asyncio.Event()
        self.toolbox = Toolbox()

        @self.toolbox.tool("note")
        async def note(n: int) -> dict[str, Any]:
            if n == 40:
                await self.go_on.wait()
            self.seen[n] += 1
            if n % 10 == 7:
                raise ValueError("seven")
            return {"n": n, "pad": "p" * pad}


async def stand_still(server: Server, name: str) -> None:
    """Until the shard stands at its fortieth item and a checkpoint has been told."""
    told = events_of
    await until(lambda: any(_done(one) >= 39 for one in told(server, name, e.JobProgressed)))


def _done(event: e.JobProgressed) -> int:
    return int(event.progress["done"])


@pytest.mark.parametrize("pad", [0, 5000], ids=["in the log", "as a payload"])
def test_items_that_a_checkpoint_has_are_not_done_again_and_all_count_once(
    pad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_client, "DELAY_SECONDS", (0.05, 0.2))
    monkeypatch.setattr(job_runner, "BEATS_PER_LEASE", 3000)  # often; its lease never runs out

    async def scenario() -> None:
        notes = Notes(pad)
        tools = notes.toolbox
        async with (
            serving(toolbox=tools) as server,
            bad_network(server.url, share=0.0) as network,
            working(network.url, lease_seconds=600.0, name="lost", toolbox=tools) as lost,
        ):
            name = await server.start(LOOP)
            await stand_still(server, name)
            event = events_of(server, name, e.JobProgressed)[-1]
            assert ("payload" in event.progress) == bool(pad)
            network.leads_to("http://127.0.0.1:1")  # nobody hears of it any more
            started = events_of(server, name, e.JobStarted)[-1]
            job = {"run": name, "job": started.job, "attempt": started.attempt, "worker": "lost"}
            await server.good(job, "release", {"reason": "nobody hears of its worker"})
            await until(lambda: bool(events_of(server, name, e.JobLost)))
            notes.go_on.set()
            async with working(server.url, name="next", toolbox=tools):
                state = await server.parts.verbs.wait(name)
            network.leads_to(server.url)
            await until(lambda: lost.tally.void + lost.tally.done == 1)  # and changes nothing
            check(state)
            assert [notes.seen[n] for n in range(39)] == [1] * 39, "nothing was done again"
            assert len(events_of(server, name, e.JobLost)) == 1

    run(scenario())


def test_a_lease_that_runs_out_hands_the_checkpoint_to_the_next_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when a busy machine lets it run out sooner: then the same worker goes on from there."""
    monkeypatch.setattr(server_client, "DELAY_SECONDS", (0.05, 0.2))
    monkeypatch.setattr(job_runner, "BEATS_PER_LEASE", 30)

    async def scenario() -> None:
        silent, heard = Notes(), Notes()
        heard.go_on.set()
        async with (
            serving(toolbox=heard.toolbox) as server,
            bad_network(server.url, share=0.0) as network,
            working(network.url, lease_seconds=2.0, name="silent", toolbox=silent.toolbox),
        ):
            name = await server.start(LOOP)
            await stand_still(server, name)
            network.leads_to("http://127.0.0.1:1")  # it lives, and nobody hears of it
            await until(lambda: bool(events_of(server, name, e.JobLost)))
            lost = events_of(server, name, e.JobLost)[-1]
            assert lost.worker, "the worker was lost, not the engine"
            assert "lease" in lost.reason
            async with working(server.url, name="next", toolbox=heard.toolbox):
                state = await server.parts.verbs.wait(name)
            silent.go_on.set()
            network.leads_to(server.url)
            check(state)
            assert {n for n in heard.seen if n < 39} == set(), "what the checkpoint has is not done"
            assert set(range(41, ITEMS)) <= set(heard.seen)

    run(scenario())


def check(state: State) -> None:
    """Every item counts once, in the sums and in the results."""
    assert state.status == "completed", state.problem
    each = state.results["each"]
    good = [n for n in range(ITEMS) if n % 10 != 7]
    assert (each["succeeded"], each["failed"]) == (len(good), ITEMS - len(good))
    assert each["shared"]["total"] == sum(good)
    assert sorted(each["shared"]["all"]) == good
    kept = [row["n"] if row else None for row in state.results["after"]["results"]]
    assert kept == [None if n % 10 == 7 else n for n in range(ITEMS)]


def test_a_worker_that_stops_in_order_says_how_far_it_is_before_it_hands_back() -> None:
    async def scenario() -> None:
        notes = Notes()
        async with serving(toolbox=notes.toolbox) as server:
            name = await server.start(LOOP)
            async with working(
                server.url, toolbox=notes.toolbox, lease_seconds=600.0, grace_seconds=0.1
            ):
                await until(lambda: notes.seen[39] == 1)
            (event,) = events_of(server, name, e.JobProgressed)
            assert _done(event) == 40
            notes.go_on.set()
            async with working(server.url, toolbox=notes.toolbox, name="next"):
                state = await server.parts.verbs.wait(name)
            assert state.results["each"]["succeeded"] == 54
            assert set(notes.seen.values()) == {1}

    run(scenario())


def test_what_is_too_large_to_remember_is_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benches, "CHECKPOINT_BYTES", 1000)
    monkeypatch.setattr(benches, "PROGRESS_BYTES", 100)

    async def scenario() -> None:
        notes = Notes(pad=500)
        async with serving(toolbox=notes.toolbox) as server:
            name = await server.start(LOOP)
            async with working(
                server.url, toolbox=notes.toolbox, lease_seconds=600.0, grace_seconds=0.1
            ):
                await until(lambda: notes.seen[39] == 1)
            (event,) = events_of(server, name, e.JobProgressed)
            assert event.progress == {"done": 40, "of": 60}
            notes.go_on.set()
            async with working(server.url, toolbox=notes.toolbox, name="next"):
                state = await server.parts.verbs.wait(name)
            assert state.results["each"]["succeeded"] == 54
            assert notes.seen[1] == 2, "done again from the beginning"

    run(scenario())


@pytest.mark.parametrize(
    "said",
    [
        None,
        "half",
        {"done": 3, "of": 9},
        {"checkpoint": 7},
        {"checkpoint": {"over": [[0, 3]], "succeeded": 2}},
        {"checkpoint": {"over": [[0, 300]], "succeeded": 300}},
        {"checkpoint": {"over": [[5, 2]], "succeeded": 0}},
        {"checkpoint": {"over": "all", "succeeded": 1}},
    ],
)
def test_a_progress_without_a_checkpoint_that_fits_begins_at_the_beginning(said: Any) -> None:
    assert checkpoints.read(said, 0, 10) is None


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    made = checkpoints.Checkpoint(
        over=checkpoints.ranges([4, 2, 3, 9]), succeeded=4, shared={"n": 1}, results=[1]
    )
    assert made.over == [(2, 5), (9, 10)]
    said = {"done": 4, "of": 10, "checkpoint": msgspec.to_builtins(made)}
    found = checkpoints.read(said, 0, 10)
    assert found == made
    assert found is not None
    assert found.indexes == {2, 3, 4, 9}
