"""A crash after any commit changes nothing: the log alone says how the session goes on.

After every action the process dies. A new one reads the log, finds the same state to the byte,
loses the work that was under way, leases it again and goes on; at the end it has come to what the
oracle, which never crashes, has come to.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.evolve import evolve
from anabranch.kernel.laws import Witness, check, check_rest
from anabranch.kernel.replay import replay
from anabranch.kernel.state import State, decode_state, encode_state
from anabranch.net.net import Net
from seeds import part

from .agree import ACTIONS_MAX, compare, compare_end
from .documents import document, some_slow
from .kernel_run import KernelRun
from .lower import LEFT, TOLD, compiled
from .oracle import Session
from .schedules import Walk

pytestmark = pytest.mark.slow

SHARDS = 10
PAIRS = 2_000


class CrashingRun(KernelRun):
    """Keeps nothing between two actions but the rows of its log."""

    def __init__(self, net: Net, start: str, rng: Random) -> None:
        self._rng = rng
        self._log: list[tuple[int, bytes]] = []
        self._checked = State()
        self._witness = Witness()
        self._snapshot = (0, b"")
        super().__init__(net, start)

    def send(self, stimulus: s.Stimulus) -> None:
        before = len(self.rows)
        super().send(stimulus)
        for at, events in self.rows[before:]:
            row = e.encode_events(events)
            self._log.append((at, row))
            for event in e.decode_events(row):
                evolve(self._checked, event, at)
                check(self._checked)
                self._witness.see(event)
        check_rest(self.state)

    def crash(self) -> list[int]:
        """Start anew from the log; returns the killed processes whose work nobody will end."""
        begin, snapshot = self._snapshot
        base = decode_state(snapshot) if snapshot else None
        rows = self._log[begin:]
        history = [(at, event) for at, row in rows for event in e.decode_events(row)]
        state = replay(history, base)
        assert encode_state(state) == encode_state(self.state)
        self.state = state
        if self._rng.random() < 0.2:
            self._snapshot = (len(self._log), encode_state(state))
        return self._lose_work()

    def _lose_work(self) -> list[int]:
        buried = []
        for job in list(self.state.jobs.values()):
            if job.phase not in ("running", "cancelling"):
                continue
            doomed = self.state.tokens[job.token].doomed
            if doomed and self._rng.random() < 0.5:
                continue  # a worker elsewhere survived, and will report
            self.send(s.JobLose(job.id, job.attempt, "crash", counted=False))
            if doomed:
                buried.append(job.token)
            else:
                self.send(s.JobStart(job.id, self.state.jobs[job.id].attempt))
        return buried


def crashed(orchestration: dict[str, Any], net: Net, start: str, rng: Random) -> str:
    """Play a random schedule with a crash after every action; returns what came out otherwise."""
    return crashed_in(CrashingRun(net, start, rng), Session(orchestration, start), rng)


def crashed_in(kernel: CrashingRun, session: Session, rng: Random) -> str:
    walk = Walk(rng, session)
    for _ in range(ACTIONS_MAX):
        action = walk.next()
        if action is None:
            return compare_end(session, kernel)
        session.act(action)
        kernel.act(action)
        for pid in kernel.crash():
            session.act(("error", pid))  # killed, and its work is gone: it ends here
        difference = compare(session, kernel)
        if difference:
            return f"after {action}: {difference}"
    return "it does not come to an end"


@pytest.mark.parametrize("shard", some_slow(SHARDS))
def test_a_crash_after_every_commit_changes_nothing(shard: int) -> None:
    for seed in part(shard, SHARDS, PAIRS):
        rng = Random(f"crash {seed}")
        orchestration, start = document(rng)
        net = compiled(orchestration, rng.choice((TOLD, LEFT)))
        difference = crashed(orchestration, net, start, rng)
        assert not difference, f"seed {seed}: {difference}"
