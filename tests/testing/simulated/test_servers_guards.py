"""Each guard of a server that shares a store is needed: without it the simulation breaks a law."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.runtime.cluster import failover
from anabranch.runtime.cluster.membership import Membership
from anabranch.runtime.jobs.executor import Executor
from anabranch.runtime.messages.mailbox import Mailbox
from anabranch.runtime.messages.subscribers import Subscribers
from anabranch.store.memory import cluster
from anabranch.store.memory.cluster import MemoryCluster, MemoryServer
from anabranch.store.partition_moves import moves_of
from anabranch.testing.simulated.server_process import SimulatedServer
from anabranch.testing.simulated.servers import Disturbances, ServerSimulation

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


LOSSES = Disturbances(answer_lost=0.6, join=0.02, leave=0.01, kill=0.01)
JOINS = Disturbances(stop_midway=0.5, join=0.05)
MIDWAY = Disturbances(stop_midway=0.3, join=0.01)
MIDWAY_OFTEN = Disturbances(stop_midway=0.5, join=0.02)
MIDWAY_LOST = Disturbances(stop_midway=0.15, connection_lost=0.3, join=0.01, post_lost=0.0)

#: Each with what makes it needed sooner than the usual disturbances do.
GUARDS: tuple[tuple[Patch, Disturbances | None], ...] = (
    (commits_check_no_epoch, MIDWAY),
    (partitions_of_a_claim_whose_answer_was_lost_are_forgotten, LOSSES),
    (answers_move_no_number, MIDWAY),
    (a_commit_whose_end_was_not_seen_is_taken_for_done, None),
    (effects_leave_without_a_lease, MIDWAY_OFTEN),
    (work_begins_without_a_look_at_the_lease, JOINS),
    (a_lease_is_extended_though_others_have_taken_partitions, None),
    (what_was_recorded_is_said_to_be_lost, MIDWAY_LOST),
    (notifications_leave_without_a_lease, None),
    (mail_that_was_lost_with_a_lease_is_not_read_again, MIDWAY),
    (a_post_whose_end_was_not_seen_is_posted_anew, None),
    (who_waits_is_not_sent_elsewhere, None),
)


@pytest.mark.slow
@pytest.mark.parametrize(("guard", "disturbances"), GUARDS, ids=[one.__name__ for one, _ in GUARDS])
def test_a_guard_that_is_missing_is_noticed(
    guard: Patch, disturbances: Disturbances | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard(monkeypatch)
    webhooks = guard is notifications_leave_without_a_lease or None
    made = (
        ServerSimulation(seed, disturbances=disturbances, webhooks=webhooks)
        for seed in range(SEEDS)
    )
    assert any(breaks(simulation) for simulation in made)


def breaks(simulation: ServerSimulation) -> bool:
    try:
        simulation.run()
    except Exception:
        return True
    return False
