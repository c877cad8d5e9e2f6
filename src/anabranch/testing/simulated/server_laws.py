"""What must hold of servers that share a store, whatever goes wrong between them.

No two epochs of a partition interleave, and its numbers have no gap. An effect leaves the server
that owns the run, once for each attempt, and its start is in the log. A message is answered once
and takes effect once, and the audit trail has a line of it where it has an effect. Every run comes
to what it comes to on one engine without faults. Whoever waits for a run hears of its end. A
notification is sent by the owner of the run, in order. In the end every partition has an owner, and
they are shared out evenly. A limit across runs is never exceeded, and every run that waits for a
place gets one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from anabranch.errors import LawBroken
from anabranch.runtime.live_run import history
from anabranch.runtime.messages.codec import read_answer
from anabranch.store.access_ports import AuditFilter
from anabranch.store.hook_ports import DeliveryFilter
from anabranch.testing.simulated.audit import Audit
from anabranch.testing.simulated.server_clients import Clients
from anabranch.testing.simulated.server_process import SimulatedServer
from anabranch.testing.simulated.shared_store import UnreliableStore
from anabranch.testing.simulated.workload import counted, transitions
from anabranch.work.port import Task

HOOK = "hook"
#: What a run of a definition comes to without faults, and how many reports of work it has.
Expected = Callable[[str], tuple[Counter[tuple[Any, ...]], int]]


class JudgedWorld(Protocol):
    tally: Counter[str]
    shared: UnreliableStore
    servers: list[SimulatedServer]
    clients: Clients
    webhooks: bool

    @property
    def audits(self) -> Mapping[str, Audit]: ...


class ServerLaws:
    def __init__(self, world: JudgedWorld, expected: Expected) -> None:
        self._world = world
        self._expected = expected
        self._taken: dict[str, set[int]] = {}  # run → numbers of events that were taken

    # -- at any time -------------------------------------------------------------------------

    def effect_left(self, server: SimulatedServer, task: Task) -> None:
        self._world.tally["effects"] += 1
        _demand(
            server.owns(task.run),
            f"{server.name} let {task.run}/{task.job}#{task.attempt} out without owning the run",
        )
        self._world.audits[task.run].executed(task.job, task.attempt)

    def limits_hold(self) -> None:
        """No more runs of a key are under way than each of them was promised."""
        holding: Counter[str] = Counter()
        limits: dict[str, int] = {}
        for audit in self._world.audits.values():
            state = audit.state
            self._world.tally["queued"] += state.queued_for_place
            if state.finished or state.queued_for_place:
                continue
            for one in state.limits:
                holding[one.key] += 1
                limits[one.key] = one.limit
        for key, most in limits.items():
            _demand(holding[key] <= most, f"{holding[key]} runs of {key} are under way, not {most}")

    def notice_sent(self, server: SimulatedServer, delivery: str) -> None:
        self._world.tally["notices"] += 1
        _, run, seq = delivery.split(":")
        _demand(server.owns(run), f"{server.name} sent {delivery} without owning the run")
        waiting = [
            one.seq
            for one in self._world.shared.store.deliveries(DeliveryFilter(hook=HOOK, run=run))
            if one.seq < int(seq) and one.seq not in self._taken.get(run, ())
        ]
        _demand(not waiting, f"{delivery} was sent before {waiting} were taken")

    def notice_taken(self, delivery: str) -> None:
        _, run, seq = delivery.split(":")
        self._taken.setdefault(run, set()).add(int(seq))

    # -- the end -----------------------------------------------------------------------------

    def over(self) -> bool:
        return not self.why_not_over()

    def why_not_over(self) -> str:
        world = self._world
        store = world.shared.store
        unfinished = [run for run, audit in world.audits.items() if not audit.state.finished]
        if unfinished:
            return f"{unfinished} have not finished"
        if message := store.unanswered(1):
            return f"no server answered message {message[0].id} to {message[0].run}"
        if world.clients.waiting:
            return f"{world.clients.waiting} clients have not heard of the end of their runs"
        if world.webhooks and (pending := store.backlog()[HOOK].pending):
            return f"{pending} notifications were not delivered"
        return self._why_not_even()

    def _why_not_even(self) -> str:
        world = self._world
        owners = Counter(partition.owner for partition in world.shared.partitions)
        staying = {one.name for one in world.servers if not one.leaving}
        if not owners.keys() <= {one.name for one in world.servers}:
            return f"partitions are owned by {dict(owners)}"
        counts = [owners[name] for name in staying]
        if max(counts) - min(counts) > 1:
            return f"partitions are shared out as {dict(owners)}"
        return ""

    def last_look(self) -> None:
        self._no_epochs_interleave()
        store = self._world.shared.store
        for run, audit in self._world.audits.items():
            records = store.read(run)
            audit.whole_log(records)
            self._as_without_faults(run, [event for _, event in history(records)])
        for run in self._world.clients.runs:
            _demand(run in self._world.audits, f"the start of {run} was acknowledged and is lost")
        self._every_patch_once()
        self._every_signal_there()
        self._every_message_answered()

    def _no_epochs_interleave(self) -> None:
        last: dict[int, tuple[int, int]] = {}
        for one in self._world.shared.written:
            epoch, number = last.get(one.partition, (0, 0))
            _demand(
                one.epoch >= epoch and one.before == number,
                f"partition {one.partition}: epoch {one.epoch} wrote after number {one.before} "
                f"when epoch {epoch} had written number {number}",
            )
            last[one.partition] = (one.epoch, one.number)

    def _as_without_faults(self, run: str, events: list[Any]) -> None:
        state = self._world.audits[run].state
        expected, reports = self._expected(state.name)
        found = transitions(run, events)
        _demand(
            found == expected, f"{run}: {found - expected} too much, {expected - found} missing"
        )
        _demand(
            counted(state.ctx) == reports, f"{run}: {counted(state.ctx)} reports, not {reports}"
        )

    def _every_signal_there(self) -> None:
        """What was acknowledged is in the log; that it is taken once at most, the audit sees to."""
        for signal, run in self._world.clients.told.items():
            known = self._world.audits[run].state.past_signals
            _demand(signal in known, f"signal {signal} was acknowledged and is lost")

    def _every_patch_once(self) -> None:
        clients = self._world.clients
        for name, run in clients.tried.items():
            found = self._world.audits[run].state.ctx.get(name, 0)
            said = clients.applied[name]
            _demand(found <= 1 and said <= found, f"{name}: written {found} times, said {said}")
            lines = len(self._world.shared.store.audit(AuditFilter(subject=name)))
            _demand(lines == found, f"{name}: written {found} times, {lines} lines tell of it")

    def _every_message_answered(self) -> None:
        store = self._world.shared.store
        for number in range(1, store._last_message + 1):
            message = store.message(number)
            answer = message.answer if message is not None else None
            assert answer is not None, "it would not be over"
            read_answer(answer)


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LawBroken(otherwise)
