"""Whatever order a real engine came to: the oracle, given that order, comes to the same end.

The language promises an outcome for a given trace. The log of a session is that trace, so it is
read back as the oracle's actions and played once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel.values import Answer, aborted, cancels_run, failed, succeeded
from anabranch.runtime.live_run import history
from anabranch.work.port import Task
from seeds import seeds

from .documents import document
from .engines import Kept, Perform, engine, start, to_the_end
from .oracle import Action, Session, name
from .schedules import payload

SEEDS = seeds(250)


def performer(seed: int) -> Perform:
    """Answers by the seed and the job alone, at a time of its own."""

    async def perform(task: Task) -> Answer:
        rng = Random(f"{seed} {task.job}")
        for _ in range(rng.choice((0, 0, 1, 3))):
            await asyncio.sleep(0)
        process = int(task.job.partition(".")[0])
        if process > 25 or rng.random() < 0.1:
            return rng.choice((failed("cel", "no", retryable=False), aborted("abort_step", "no")))
        if rng.random() < 0.02:
            return cancels_run("cancel_session", "enough")
        outcome = "valid" if rng.random() < 0.75 else "invalid"
        return succeeded(payload(rng, process), outcome=outcome, wait_ms=rng.choice((0, 0, 0, 1)))

    return perform


def actions_of(log: list[tuple[int, e.Event]]) -> Iterator[Action]:
    """The log in the oracle's words."""
    now = log[0][0]
    for at, event in log:
        if at > now:
            yield ("tick", at - now)
            now = at
        match event:
            case e.JobStarted():
                yield ("start", process_of(event.job))
            case e.JobReported():
                yield ended(process_of(event.job), event.answer)
            case _:
                pass


def process_of(job: str) -> int:
    return int(job.partition(".")[0])


def ended(pid: int, answer: Answer) -> Action:
    match answer.status:
        case "ok":
            return ("finish", pid, answer.outcome, dict(answer.result), answer.wait_ms)
        case "cancel_run":
            return ("cancel", pid)
        case _:
            return ("error", pid)


@pytest.mark.parametrize("snapshot_every", [3, 200])
def test_the_log_of_a_real_session_replays_in_the_oracle(snapshot_every: int) -> None:
    async def sessions() -> None:
        store = Kept()
        for seed in SEEDS:
            orchestration, first = document(Random(f"engine {seed}"))
            async with engine(store, performer(seed), snapshot_every=snapshot_every) as made:
                run = await start(made, orchestration, input={"p": 1}, step=first)
                state = await made.wait(run)
            log = history(store.read(run))
            session = Session(orchestration, first, {"p": 1})
            for action in actions_of(log):
                session.act(action)
            said = {event.token: event.ending for _, event in log if type(event) is e.TokenFinished}
            assert said == {p.pid: p.state for p in session.processes}, described(seed, session)
            assert (state.status == "cancelled") == (session.verdict() == "killed")

    to_the_end(sessions())


def described(seed: int, session: Session) -> str:
    states = [f"{name(process)} {process.state}" for process in session.processes]
    return f"seed {seed}: {states}; {session.log}"


def test_a_start_step_of_a_wild_document_is_the_one_that_was_asked_for() -> None:
    """The comparison above depends on it."""
    orchestration, _ = document(Random("start"))
    last: Any = list(orchestration["structure"])[-1]

    async def begun() -> str:
        store = Kept()
        async with engine(store, performer(0)) as made:
            run = await start(made, orchestration, step=last)
            first = history(store.read(run))[1][1]
            return first.step if isinstance(first, e.TokenCreated) else ""

    assert to_the_end(begun()) == last
