"""Sessions that open joins for as long as they live stay small and cheap."""

from __future__ import annotations

from typing import Any

from anabranch.kernel import events as e
from anabranch.kernel.laws import check_rest
from anabranch.kernel.replay import replay
from anabranch.kernel.state import JOINS_KEPT, encode_state
from anabranch.kernel.summary import summarise
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.port import Task

from .engines import Kept, engine, start, to_the_end
from .kernel_run import KernelRun
from .lower import compiled

RULE = "0x" + "00" * 19 + "01"


def looping(policy: str) -> dict[str, Any]:
    """A opens a join of 2 of 3, and its target leads back to A."""
    entries = [{"node": node, "when": "valid"} for node in "GHI"]
    join = {"joinid": "J", "mode": "kofn", "k": 2, "waitonjoin": policy, "from": entries}
    structure: dict[str, Any] = {name: {"rule": RULE} for name in "AGHIJ"}
    structure["A"]["onValid"] = {"spawns": ["G", "H", "I"], "join": join}
    structure["J"]["onValid"] = {"spawns": ["A"]}
    return {"id": "looping", "structure": structure}


def played(rounds: int, policy: str) -> KernelRun:
    """That many joins; of each the third producer still runs when the next one opens."""
    kernel = KernelRun(compiled(looping(policy)), "A")
    left: list[int] = []
    for _ in range(rounds):
        opener = max(kernel.state.tokens)
        target, first, second, third = (opener + n for n in (1, 2, 3, 4))
        for pid in (opener, first, second, target):
            kernel.act(("start", pid))
            if pid == first:
                kernel.act(("start", third))
            kernel.act(("finish", pid, "valid", {"n": pid}, 0))
        left.append(third)
        if len(left) > 3:
            kernel.act(("finish", left.pop(0), "valid", {}, 0))
    for pid in left:
        kernel.act(("finish", pid, "valid", {}, 0))
    return kernel


def test_settled_joins_leave_the_state_and_are_counted() -> None:
    rounds = 3 * JOINS_KEPT
    kernel = played(rounds, "kill")
    state = kernel.state
    check_rest(state)
    assert len(state.joins) < 2 * JOINS_KEPT
    assert len(state.joins) + state.joins_dropped == rounds
    assert summarise(kernel.net, state)["joins_dropped"] == state.joins_dropped
    assert state.counts.created == 5 * rounds + 1
    history = [(at, event) for at, events in kernel.rows for event in events]
    assert encode_state(replay(history)) == encode_state(state)


def test_scopes_gathers_and_timers_of_closed_joins_are_gone() -> None:
    for policy in ("kill", "drain"):
        state = played(50, policy).state
        assert (set(state.scopes), state.gathers, state.timers.due) == ({0}, {}, {})
        assert len(state.tokens) == 1


def test_a_delivery_that_comes_after_its_join_was_forgotten_changes_nothing() -> None:
    kernel = KernelRun(compiled(looping("drain")), "A")
    kernel.act(("start", 1))
    kernel.act(("finish", 1, "valid", {}, 0))
    slow = 5
    kernel.act(("start", slow))
    for pid in (3, 4, 2):
        kernel.act(("start", pid))
        kernel.act(("finish", pid, "valid", {}, 0))
    for _ in range(2 * JOINS_KEPT):
        opener = max(kernel.state.tokens)
        for pid in (opener, opener + 2, opener + 3, opener + 4, opener + 1):
            kernel.act(("start", pid))
            kernel.act(("finish", pid, "valid", {}, 0))
    assert "j2" not in kernel.state.joins
    kernel.act(("finish", slow, "valid", {}, 0))
    assert kernel.ended[slow] == "done"
    assert kernel.late[2] == [slow]
    check_rest(kernel.state)


def test_snapshots_together_are_no_larger_than_the_log() -> None:
    """Of a state that grows, snapshots at a fixed distance would grow with the square."""

    async def perform(task: Task) -> Answer:
        rounds = int(task.job.partition(".")[0]) // 5
        return succeeded({}, outcome="valid" if task.step != "J" or rounds < 600 else "invalid")

    async def session() -> tuple[int, int]:
        store = Kept()
        async with engine(store, perform, snapshot_every=10) as made:
            await made.wait(await start(made, looping("drain")))
        commits = [commit for batch in store.batches for commit in batch.commits]
        snapshots = sum(len(commit.snapshot or b"") for commit in commits)
        return snapshots, sum(len(commit.events) for commit in commits)

    snapshots, events = to_the_end(session())
    assert 0 < snapshots < 2 * events


def test_what_a_session_records_per_join_does_not_grow() -> None:
    kernel = played(200, "kill")
    sizes = [len(e.encode_events(events)) for _, events in kernel.rows]
    early, late = sum(sizes[50:550]), sum(sizes[-550:-50])
    assert late < 1.2 * early
