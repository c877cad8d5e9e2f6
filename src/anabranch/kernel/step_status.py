"""How the steps of a run stand, in one word each, as every surface says it.

The kernel keeps the phase of the last run of a step. People are told what that means for its work:
a job that no worker has is `queued`, one that waits for its next try is `retrying`, one whose
answer comes from outside is `parked`. A step whose work names its own outcome has ended `valid` or
`invalid`, or `invalid by error` where an error and no rule said no.
"""

from __future__ import annotations

import msgspec

from anabranch.kernel.state import Job, JobPhase, State, StepTally

BY_ERROR = "by error"
#: Of the phases of the jobs of a step run the first that one of them is in says how it stands.
_WORDS: tuple[tuple[JobPhase, str], ...] = (
    ("running", "running"),
    ("answered", "running"),
    ("cancelling", "running"),
    ("backoff", "retrying"),
    ("parked", "parked"),
    ("scheduled", "queued"),
)
_AT_WORK = ("ready", "running")


class StepStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    status: str  # of its last run, in the words above
    runs: int
    here: int  # how many of them are unfinished


def step_statuses(state: State) -> dict[str, StepStatus]:
    """Of every step that has run, in the order in which they began."""
    here: dict[str, int] = {}
    for token in state.tokens.values():
        here[token.step] = here.get(token.step, 0) + 1
    jobs = _last_jobs(state) if state.jobs else {}
    statuses = {}
    for name, tally in state.steps.items():
        word = tally.statuses[-1]
        if tally.outcome or jobs:  # or else the phase says it
            word = _word(tally, jobs.get(name, ()))
        statuses[name] = StepStatus(word, tally.runs, here.get(name, 0))
    return statuses


def _last_jobs(state: State) -> dict[str, list[Job]]:
    """step → the jobs of its last unfinished run."""
    last = {token.step: token.id for token in state.tokens.values()}
    found: dict[str, list[Job]] = {}
    for job in state.jobs.values():
        if last.get(job.step) == job.token:
            found.setdefault(job.step, []).append(job)
    return found


def _word(tally: StepTally, jobs: list[Job] | tuple[()]) -> str:
    status = tally.statuses[-1]
    if status in _AT_WORK and jobs:
        return work_word(jobs)
    return ended_word(status, tally.outcome, tally.by_error)


def work_word(jobs: list[Job]) -> str:
    """What the work of a step run is doing: the most active of its jobs says it."""
    phases = {job.phase for job in jobs}
    return next((word for phase, word in _WORDS if phase in phases), "running")


def ended_word(status: str, outcome: str, by_error: str) -> str:
    """How a step run ended, with the outcome that its work names."""
    if status != "done" or outcome not in ("valid", "invalid"):
        return status
    return f"{outcome} {BY_ERROR}" if by_error else outcome
