"""What the analysis says about joins before anything runs is true of every run."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from random import Random
from typing import Any

import pytest

from anabranch.net.analyse import JoinReach, join_slots_reachable
from seeds import part

from .documents import document
from .lower import LEFT, lower
from .oracle import Action, Process, Session, fill, name
from .schedules import Walk

pytestmark = pytest.mark.slow

DOCUMENTS = 3_000
SHARDS = 5
Where = tuple[str, str]
"""The step and the outcome whose branch declares a join."""


def foretold(orchestration: dict[str, Any], start: str) -> dict[Where, JoinReach]:
    reaches = join_slots_reachable(lower(orchestration, start, LEFT))
    return {(reach.step, reach.outcome or ""): reach for reach in reaches}


def check(session: Watched, said: dict[Where, JoinReach]) -> str:
    """What happened although it was said that it never could."""
    for process in session.processes:
        if process.join is None:
            continue
        reach, filled = said[session.opened[process.pid]], fill(process.join)
        if process.join.selected and not reach.possible:
            return f"{name(process)} closed"
        if len(filled) > reach.most:
            return f"{name(process)} got {len(filled)} deliveries, not at most {reach.most}"
        for place in filled:
            if reach.join.slots[place] in reach.lost:
                return f"{name(process)} got a delivery for {reach.join.slots[place]}"
    return ""


class Watched(Session):
    """Remembers which branch opened each join."""

    def __init__(self, *given: Any) -> None:
        self.opened: dict[int, Where] = {}
        super().__init__(*given)

    def _branch(self, parent: Process, outcome: str, wait_ms: int) -> None:
        self.opened[len(self.processes) + 1] = (parent.step, outcome)
        super()._branch(parent, outcome, wait_ms)

    def closed(self) -> set[Where]:
        return {
            self.opened[process.pid]
            for process in self.processes
            if process.join is not None and process.join.selected
        }


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_join_that_is_said_never_to_close_closes_in_no_schedule(shard: int) -> None:
    flagged = 0
    chosen = part(shard, SHARDS, DOCUMENTS)
    for seed in chosen:
        rng = Random(f"analysis {seed}")
        orchestration, start = document(rng)
        said = foretold(orchestration, start)
        flagged += sum(not reach.possible for reach in said.values())
        for _ in range(3):
            session = Watched(orchestration, start)
            walk = Walk(rng, session)
            while (action := walk.next()) is not None:
                session.act(action)
            assert not check(session, said), f"seed {seed}: {session.log}"
    assert flagged > len(chosen) // 10, "the documents give the analysis nothing to find"


# -- every schedule of small orchestrations --------------------------------------------------------

PROCESSES_MAX = 8
STATES_MAX = 700


def small(rng: Random) -> tuple[dict[str, Any], str]:
    while True:
        orchestration, start = document(rng)
        if len(orchestration["structure"]) <= 5 and "join" in str(orchestration):
            return orchestration, start


def explored(orchestration: dict[str, Any], start: str) -> Iterator[Watched]:
    """Every state some schedule leads to, as far as the session stays small."""
    frontier, seen = [Watched(orchestration, start)], set[str]()
    while frontier and len(seen) < STATES_MAX:
        session = frontier.pop()
        yield session
        if len(session.processes) > PROCESSES_MAX:
            continue
        for action in actions(session):
            after = again(session)
            after.act(action)
            look = str([(p, after.opened.get(p.pid)) for p in after.processes])
            if look not in seen:
                seen.add(look)
                frontier.append(after)


def actions(session: Session) -> Iterator[Action]:
    for process in session.startable():
        yield ("start", process.pid)
    for process in session.running():
        yield ("finish", process.pid, "valid", {}, 0)
        yield ("finish", process.pid, "invalid", {}, 0)


def again(session: Watched) -> Watched:
    """The same session, to be taken another way."""
    twin = copy(session)
    twin.opened = dict(session.opened)
    twin.killed_groups = set(session.killed_groups)
    twin.log = []
    twin.processes = [copy(process) for process in session.processes]
    for process in twin.processes:
        process.payload = {}
        if process.join is not None:
            join = process.join = copy(process.join)
            join.offers, join.late = list(join.offers), list(join.late)
    return twin


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_join_that_closes_in_some_schedule_is_not_said_never_to_close(shard: int) -> None:
    closing = 0
    for seed in part(shard, SHARDS, 150, least=50):
        orchestration, start = small(Random(f"small {seed}"))
        said = foretold(orchestration, start)
        for session in explored(orchestration, start):
            closing += len(session.closed())
            assert not check(session, said), f"seed {seed}: {session.log} in {orchestration}"
    assert closing > 0
