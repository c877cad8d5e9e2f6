"""Each guard of a server that shares a store is needed: without it the simulation breaks a law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import pytest

from anabranch.runtime.child_runs import ChildRuns
from anabranch.runtime.cluster import failover
from anabranch.runtime.cluster.membership import Membership
from anabranch.runtime.jobs.executor import Executor
from anabranch.runtime.messages import mailbox
from anabranch.runtime.messages.mailbox import Mailbox
from anabranch.runtime.messages.subscribers import Subscribers
from anabranch.store.memory import cluster
from anabranch.store.memory.cluster import MemoryCluster, MemoryServer
from anabranch.store.partition_moves import moves_of
from anabranch.testing.simulated.server_process import SimulatedServer
from anabranch.testing.simulated.servers import Disturbances, ServerSimulation
from seeds import SHARE

from .test_servers import LACKING

SEEDS = 500  # so many are tried, at most

Patch = Callable[[pytest.MonkeyPatch], None]


def commits_check_no_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryServer, "_require_owned", lambda _self, _partition, _move: None)


def partitions_of_a_claim_whose_answer_was_lost_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "_unknown", lambda _self, _servers: 0)


def answers_move_no_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cluster, "moves_of", lambda rows, _answered, owned: moves_of(rows, (), owned))


def a_commit_whose_end_was_not_seen_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cluster, "happened", lambda *_given: True)


def effects_leave_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    """Neither between the commit and its effects, nor where the work begins."""

    async def confirmed(_self: Membership) -> bool:
        return True

    patch.setattr(Membership, "confirm", confirmed)
    work_begins_without_a_look_at_the_lease(patch)


def work_begins_without_a_look_at_the_lease(patch: pytest.MonkeyPatch) -> None:
    nothing = property(lambda _self: None, lambda _self, _value: None)
    patch.setattr(Executor, "may_act_for", nothing, raising=False)


def a_lease_is_extended_though_others_have_taken_partitions(patch: pytest.MonkeyPatch) -> None:
    def extended(self: MemoryCluster, _seconds: float) -> bool:
        return True

    patch.setattr(MemoryCluster, "extend_lease", extended)


def what_was_recorded_is_said_to_be_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(failover, "is_recorded", lambda _store, _batch: False)


def notifications_leave_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    made = SimulatedServer._dispatcher

    def without(self: SimulatedServer, nets: Any) -> Any:
        dispatcher = made(self, nets)
        dispatcher._may_act_for = lambda _run: True
        return dispatcher

    patch.setattr(SimulatedServer, "_dispatcher", without)


def mail_that_was_lost_with_a_lease_is_not_read_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mailbox, "forget", lambda _self: None)


def a_post_whose_end_was_not_seen_is_posted_anew(patch: pytest.MonkeyPatch) -> None:
    post = MemoryServer.post

    def anew(self: MemoryServer, run: str, body: bytes, now: int, _nonce: str = "") -> int:
        return post(self, run, body, now)

    patch.setattr(MemoryServer, "post", anew)


def who_waits_is_not_sent_elsewhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Subscribers, "look_again", lambda _self, _why: None)


def a_message_loses_its_line_for_the_audit_trail(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mailbox, "audit_in", lambda _message: None)


def a_parent_that_is_set_aside_is_not_marked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ChildRuns, "find_unheard", lambda _self, _batch: [])


LOSSES = Disturbances(answer_lost=0.6, join=0.02, leave=0.01, kill=0.01)
JOINS = Disturbances(stop_midway=0.5, join=0.05)
MIDWAY = Disturbances(stop_midway=0.3, join=0.01)
MIDWAY_OFTEN = Disturbances(stop_midway=0.5, join=0.02)
MIDWAY_LOST = Disturbances(stop_midway=0.15, connection_lost=0.3, join=0.01, post_lost=0.0)


class Guard(NamedTuple):
    """A guard that is taken away, what makes it needed sooner than the usual disturbances do, and
    some seeds that need it."""

    take_away: Patch
    disturbances: Disturbances | None
    known: tuple[int, ...]


GUARDS = (
    Guard(commits_check_no_epoch, MIDWAY, (2, 6)),
    Guard(partitions_of_a_claim_whose_answer_was_lost_are_forgotten, LOSSES, (26, 181)),
    Guard(answers_move_no_number, MIDWAY, (67, 172)),
    Guard(a_commit_whose_end_was_not_seen_is_taken_for_done, None, (0, 2)),
    Guard(effects_leave_without_a_lease, MIDWAY_OFTEN, (125,)),
    Guard(work_begins_without_a_look_at_the_lease, JOINS, (12, 392)),
    Guard(a_lease_is_extended_though_others_have_taken_partitions, None, (2, 3)),
    Guard(what_was_recorded_is_said_to_be_lost, MIDWAY_LOST, (6,)),
    Guard(notifications_leave_without_a_lease, None, (6, 9)),
    Guard(mail_that_was_lost_with_a_lease_is_not_read_again, MIDWAY, (176, 438)),
    Guard(a_post_whose_end_was_not_seen_is_posted_anew, None, (4, 45)),
    Guard(who_waits_is_not_sent_elsewhere, None, (4, 10)),
    Guard(a_message_loses_its_line_for_the_audit_trail, None, (0, 1)),
    Guard(a_parent_that_is_set_aside_is_not_marked, LACKING, (4, 11)),
)


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.take_away.__name__)
def test_a_guard_that_is_missing_is_noticed(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    guard.take_away(monkeypatch)
    assert any(breaks(simulation) for simulation in simulations_of(guard))


def simulations_of(guard: Guard) -> Iterator[ServerSimulation]:
    """With the known seeds first: a change of the engine changes what a seed does, and then others
    find it. `make soak` always searches."""
    webhooks = guard.take_away is notifications_leave_without_a_lease or None
    for seed in chain(guard.known if SHARE < 1 else (), range(SEEDS)):
        yield ServerSimulation(seed, disturbances=guard.disturbances, webhooks=webhooks)


def breaks(simulation: ServerSimulation) -> bool:
    try:
        simulation.run()
    except Exception:
        return True
    return False
