"""What waits for somebody to say yes or no, over all runs, newest first.

The log knows it run by run. So that nobody has to go through all runs for every look, the open
gates of a run are remembered until something is recorded about them; only then it is read again.
On a store that several servers share the log says which runs those are, whoever has written them.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, Literal

import msgspec

from anabranch.errors import AnabranchError, DamagedRun
from anabranch.kernel import events as e
from anabranch.kernel.ending import gate_id
from anabranch.kernel.gates import source_of
from anabranch.kernel.privacy import public
from anabranch.kernel.state import Gate, State, Token
from anabranch.net.net import Net
from anabranch.runtime.effects import DurableEvents
from anabranch.runtime.live_run import history, load_state
from anabranch.runtime.nets import Nets
from anabranch.store.cluster_ports import Cluster
from anabranch.store.ports import Head, Store

RUNS_AT_ONCE = 500
EVENTS_READ = 5000  # in a longer log earlier answers are not looked for
ROWS_MISSED = 50_000  # of the log: to look at all open runs costs less than to go through more
_MOVING = (
    *(e.GateOpened, e.GateDecided, e.TokenHeld, e.TokenAdmitted, e.TokenFinished, e.RunFinished),
    *(e.GateAskedAgain, e.TokenTimed, e.TokenDoomed, e.TokenReleased),
)


def moves_gates(news: DurableEvents) -> bool:
    """Whether other gates may be open after this than before."""
    for event in news.events:  # noqa: SIM110 - a generator takes longer, for every turn of a run
        if isinstance(event, _MOVING):
            return True
    return False


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier answer to the same gate: it was asked again after a rejection."""

    at: int
    verdict: str
    actor: str
    reason: str
    evidence: Any


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """One open gate."""

    run: str
    name: str
    dialect: str
    labels: Mapping[str, str]
    gate: str
    kind: Literal["decision", "admission"]
    step: str
    ask: str
    actors: list[str]  # who may answer; empty is anybody
    since: int
    until: int | None
    answer: Any  # what the work of the step came to, for whoever decides about it
    answered: list[Answered] | None = None  # None: the log is too long to look
    source: str = ""  # what alone decides here; people can have it asked again, or override it


class Approvals:
    """Open gates. `hear` is told of everything that becomes durable; `page` may run in a thread."""

    def __init__(self, nets: Nets) -> None:
        self._nets = nets
        self._rows: dict[str, list[Approval]] = {}
        self._stale: set[str] = set()
        self._listed = False
        self._numbers: Mapping[int, int] = {}  # of each partition, the last row looked at
        self._lock = Lock()
        self._asking = Lock()

    def hear(self, news: DurableEvents) -> None:
        if moves_gates(news):
            with self._lock:
                self._stale.add(news.run)

    def page(
        self,
        store: Store,
        *,
        before: tuple[int, str, str] | None = None,
        actor: str | None = None,
        limit: int = 50,
        answers: bool = True,
    ) -> list[Approval]:
        """The newest ones first; `before` is (since, run, gate) of the last one seen.

        Without `answers` no log is read: what was answered before is left out.
        """
        with self._asking:  # two at once would read the same runs twice
            self._refresh(store)
            rows = [row for rows in self._rows.values() for row in rows]
        if before is not None:
            rows = [row for row in rows if _key(row) < before]
        if actor is not None:
            rows = [row for row in rows if not row.actors or actor in row.actors]
        rows.sort(key=_key, reverse=True)
        return [_with_answers(store, row) if answers else row for row in rows[:limit]]

    @property
    def known(self) -> int:
        """How many were open at the last look."""
        return sum(map(len, list(self._rows.values())))

    def count(self, store: Store) -> int:
        """How many are open."""
        with self._asking:
            self._refresh(store)
            return self.known

    def _refresh(self, store: Store) -> None:
        if store.cluster is not None:
            self._look_at_log(store, store.cluster)
        if not self._listed:
            self._list_all(store)
            self._listed = True
        with self._lock:
            stale, self._stale = sorted(self._stale), set()
        try:
            while stale:
                self._read(store, stale[:RUNS_AT_ONCE])
                del stale[:RUNS_AT_ONCE]
        finally:  # what could not be read is read the next time
            with self._lock:
                self._stale.update(stale)

    def _look_at_log(self, store: Store, cluster: Cluster) -> None:
        """Of runs that other servers own nothing is heard. Rows count as looked at when they were:
        a look that fails is made again."""
        before, numbers = self._numbers, store.positions()
        new = {
            partition: before.get(partition, 0)
            for partition, number in numbers.items()
            if number > before.get(partition, 0)
        }
        missed = sum(numbers[partition] - number for partition, number in new.items())
        if not self._listed or missed > ROWS_MISSED:
            self._listed = False
            self._rows.clear()
            new = {}
        for moved in cluster.moved_since(new) if new else ():
            if moved.finished:
                self._rows.pop(moved.run, None)
            else:
                with self._lock:
                    self._stale.add(moved.run)
        self._numbers = numbers

    def _list_all(self, store: Store) -> None:
        after = ""
        while heads := store.unfinished(after, RUNS_AT_ONCE):
            with self._lock:
                self._stale.update(head.run for head in heads)
            after = heads[-1].run

    def _net(self, head: Head) -> Net | None:
        try:
            return self._nets.get(head.definition)
        except AnabranchError:
            return None  # it does not compile any more; its gates are open all the same

    def _read(self, store: Store, runs: list[str]) -> None:
        for run, (snapshot, tail) in store.read_many(runs).items():
            head = store.head(run)
            if head is None or head.finished:
                self._rows.pop(run, None)
                continue
            try:
                rows = open_gates(head, self._net(head), load_state(snapshot, tail, run))
            except DamagedRun:
                rows = []  # it is set aside: an answer would reach nobody
            if rows:
                self._rows[run] = rows
            else:
                self._rows.pop(run, None)


def open_gates(head: Head, net: Net | None, state: State) -> list[Approval]:
    """The gates at which a run stands; nothing of one that is ending.

    Without its net nobody knows what of an answer may be shown: then nothing of it is.
    """
    if state.finished or state.ending:
        return []
    rows = [_of_gate(head, net, state.tokens[gate.token], gate) for gate in state.gates.values()]
    held = [state.tokens[token] for token in state.held]
    rows += [_row(head, net, one, "admission", one.reason, [], one.since) for one in held]
    return rows


def _of_gate(head: Head, net: Net | None, token: Token, gate: Gate) -> Approval:
    row = _row(head, net, token, "decision", gate.ask, gate.actors, gate.since)
    source = source_of(net, gate) if net is not None else ""
    return msgspec.structs.replace(row, source=source) if source else row


def _row(
    head: Head,
    net: Net | None,
    token: Token,
    kind: Literal["decision", "admission"],
    ask: str,
    actors: list[str],
    since: int,
) -> Approval:
    answer = token.answer.result if token.answer is not None and net is not None else None
    return Approval(
        run=head.run,
        name=head.name,
        dialect=head.dialect,
        labels=head.labels,
        gate=gate_id(token),
        kind=kind,
        step=token.step,
        ask=ask,
        actors=list(actors),
        since=since,
        until=token.until or None,
        answer=public(answer, net.private) if net is not None else None,
    )


def _key(row: Approval) -> tuple[int, str, str]:
    return row.since, row.run, row.gate


def _with_answers(store: Store, row: Approval) -> Approval:
    head = store.head(row.run)
    if head is None or head.seq > EVENTS_READ:
        return row
    found = [
        Answered(
            at=at,
            verdict=event.verdict,
            actor=event.actor,
            reason=event.reason,
            evidence=event.evidence,
        )
        for at, event in history(store.read(row.run), run=row.run)
        if isinstance(event, e.GateDecided) and event.gate == row.gate
    ]
    return msgspec.structs.replace(row, answered=found)
