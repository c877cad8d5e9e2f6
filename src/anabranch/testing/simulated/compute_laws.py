"""What must hold of servers whose pool is on a compute cluster, whatever goes wrong with both.

A ticket goes out for an attempt whose start is in the log, from the server that owns the run, and
never more than the cluster has slots for and its queue may hold. Every run ends, and comes to what
it comes to without a cluster and without faults. An item counts once, and has the same idempotency
key in all attempts. What a cluster comes to of an attempt that was given up is recorded as late. In
the end nothing is out any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from anabranch.errors import LawBroken
from anabranch.kernel import events as e
from anabranch.kernel.state import State
from anabranch.pools.address import PoolOptions
from anabranch.pools.assignment import decode_assignment
from anabranch.pools.dispatcher import QUEUE_LEAST
from anabranch.runtime.live_run import history
from anabranch.testing.simulated.audit import Audit
from anabranch.testing.simulated.compute_cluster import SimulatedBackend, SimulatedCluster
from anabranch.testing.simulated.compute_definitions import Labour, Story
from anabranch.testing.simulated.compute_server import ComputeServer
from anabranch.testing.simulated.shared_store import UnreliableStore

#: A ticket may be on its way when the cluster becomes smaller: a server that is stopped sends it
#: when it wakes, up to two leases later, and may be stopped again meanwhile.
ON_ITS_WAY_SECONDS = 60.0


class JudgedWorld(Protocol):
    tally: Counter[str]
    shared: UnreliableStore
    cluster: SimulatedCluster
    pool: PoolOptions
    labour: Labour
    stories: Mapping[str, Story]
    servers: list[ComputeServer]
    touched: set[str]
    inline: bool

    @property
    def audits(self) -> Mapping[str, Audit]: ...


class ComputeLaws:
    def __init__(self, world: JudgedWorld) -> None:
        self._world = world
        self._sent: set[tuple[str, str, int]] = set()

    # -- at any time -------------------------------------------------------------------------

    def submitted(
        self, server: ComputeServer, backend: SimulatedBackend, ticket: str, blob: bytes
    ) -> None:
        self._world.tally["submitted"] += 1
        given = decode_assignment(blob)
        run, job, attempt = given.job.id
        _demand(given.ticket == ticket, f"{ticket} travels as {given.ticket}")
        if (run, job, attempt) in self._sent:
            return  # a process asked for its parts
        self._sent.add((run, job, attempt))
        self._world.audits[run].executed(job, attempt)
        queue = self._world.pool.queue
        slots = backend.slots_lately(server.seconds() - ON_ITS_WAY_SECONDS)
        most = slots + (max(slots, QUEUE_LEAST) if queue is None else queue)
        out = self._world.cluster.out_of(backend)
        _demand(out <= max(most, 1), f"{server.name} has {out} tickets out, over {most}")

    # -- the end -----------------------------------------------------------------------------

    def why_not_over(self) -> str:
        world = self._world
        missing = [run for run in world.stories if run not in world.audits]
        if missing:
            return f"{missing} have not begun"
        unfinished = [run for run, audit in world.audits.items() if not audit.state.finished]
        if unfinished:
            states = [_shown(world.audits[run].state) for run in unfinished]
            return f"{unfinished} have not finished: {states}"
        if world.cluster.out:
            return f"the cluster has {world.cluster.out} tickets"
        for server in world.servers:
            if server.dispatcher is not None and server.dispatcher.state().tickets:
                return f"{server.name} has tickets out: {server.dispatcher.state().tickets}"
        return ""

    def last_look(self) -> None:
        store = self._world.shared.store
        for run, audit in self._world.audits.items():
            records = store.read(run)
            audit.whole_log(records)
            self._late_is_not_counted(run, [event for _, event in history(records)])
        for what, keys in self._world.labour.keys.items():
            _demand(len(keys) == 1, f"{what} was done under several keys: {sorted(keys)}")

    def _late_is_not_counted(self, run: str, events: list[e.Event]) -> None:
        late = [(one.job, one.attempt) for one in events if isinstance(one, e.JobLate)]
        counted = {(one.job, one.attempt) for one in events if isinstance(one, e.JobReported)}
        self._world.tally["late"] += len(late)
        both = counted.intersection(late)
        _demand(not both, f"{run}: {sorted(both)} were recorded as answers and as late")

    def outcome(self, run: str) -> tuple[Any, ...]:
        """What a run came to, as far as it is the same wherever it is done."""
        state = self._world.audits[run].state
        said = {step: state.results[step] for step in state.results if step.startswith("said")}
        return state.status, said, self._items(run)

    def _items(self, run: str) -> dict[str, tuple[int, list[int]]]:
        """Of each loop: how many items succeeded, and which failed for good."""
        found: dict[str, tuple[int, list[int]]] = {}
        shards: dict[str, e.JobReported] = {}
        for _, event in history(self._world.shared.store.read(run)):
            if isinstance(event, e.JobReported) and event.answer.shard is not None:
                shards[event.job] = event
            elif isinstance(event, e.ShardClosed) and event.job in shards:
                report = shards.pop(event.job).answer.shard
                assert report is not None
                good, bad = found.get(event.loop, (0, []))
                failed = [one.index for one in report.failed if one.index not in event.again]
                found[event.loop] = good + report.succeeded, sorted([*bad, *failed])
        return found


def _shown(state: State) -> str:
    jobs = {name: (job.phase, job.attempt, job.worker) for name, job in state.jobs.items()}
    return f"{state.ending or 'moving'}, paused={state.paused}, jobs {jobs}"


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LawBroken(otherwise)
