"""The part of `evolve` that is about jobs; the table in `kernel.evolve` knows these functions."""

from __future__ import annotations

from anabranch.kernel import events as e
from anabranch.kernel.evolve_loops import (
    job_given_up,
    note_stars,
    queue_time_runs,
    shard_put_back,
)
from anabranch.kernel.state import FAULTS_KEPT, Job, JobPhase, State, Token, TokenPhase
from anabranch.kernel.values import Answer, Wait

PLAIN, CUT = -1, -2  # slots of jobs that fill none


def enter(state: State, token: Token, phase: TokenPhase, at: int) -> None:
    if token.phase == "held":
        del state.held[token.id]
    elif token.phase == "queued":
        del state.queued[token.id]
    phases = state.phases
    phases[token.phase] -= 1
    phases[phase] = phases.get(phase, 0) + 1
    token.phase = phase
    token.since = at
    tally = state.steps[token.step]
    if token.ordinal >= tally.dropped:  # or it is so old that the list has dropped it
        tally.statuses[token.ordinal - tally.dropped] = phase


def drop_answered(state: State, token: Token) -> None:
    """The answer of a plain step's job has been used."""
    job = state.jobs.get(f"{token.id}.0")
    if job is not None and job.slot == PLAIN and job.phase == "answered":
        keep_tries(token, job)
        drop_job(state, job.id)


def keep_tries(token: Token, job: Job) -> None:
    """Work that was done may still not be accepted, and is then tried again within its budget."""
    if job.answer is not None and job.answer.status == "ok":
        token.failures += job.failures
        token.timeouts += job.timeouts


def job_scheduled(state: State, event: e.JobScheduled, at: int) -> None:
    job = state.jobs.get(event.job)
    if job is None:
        job = new_job(state, event.job, event.token, event.slot, at)
    else:
        if job.phase == "backoff":
            state.timers.drop(f"retry:{job.id}")
        turn_to(state, job, "scheduled", at)
        if state.loops:
            queue_time_runs(state, job, at)
    job.attempt = event.attempt
    job.answer = None
    if event.slot == PLAIN and event.token in state.tokens:
        token = state.tokens[event.token]
        token.attempt = event.attempt
        token.answer = None


def turn_to(state: State, job: Job, phase: JobPhase, at: int) -> None:
    state.busy += (job.phase == "parked") - (phase == "parked")
    job.phase = phase
    job.since = at


def drop_job(state: State, job_id: str) -> None:
    job = state.jobs.pop(job_id, None)
    if job is None:
        return
    state.busy -= job.phase != "parked"
    if job.phase == "scheduled":
        state.timers.drop(f"queue:{job_id}")
    if job.token in state.tokens:
        state.tokens[job.token].jobs -= 1


def new_job(state: State, job_id: str, token_id: int, slot: int, at: int) -> Job:
    token = state.tokens[token_id]
    job = Job(id=job_id, token=token_id, slot=slot, step=token.step, attempt=1, since=at)
    state.jobs |= {job_id: job}
    state.busy += 1
    token.jobs += 1
    if slot >= 0 and token.gather:
        job.gather = token.gather
        gather = state.gathers[token.gather]
        gather.next_slot = max(gather.next_slot, slot + 1)
    if token.phase not in ("ready", "running"):
        enter(state, token, "ready", at)
    return job


def job_started(state: State, event: e.JobStarted, at: int) -> None:
    job = state.jobs[event.job]
    job.phase = "running"
    job.since = at
    if state.loops:
        state.timers.drop(f"queue:{job.id}")
    job.worker = event.worker
    job.holder = event.holder
    job.lease = event.lease
    job.until = event.until
    if event.lease:
        state.timers.set(f"lease:{job.id}", event.lease)
    if event.until:
        state.timers.set(f"job:{job.id}", event.until)
    token = state.tokens.get(job.token)
    if token is not None and token.phase == "ready":
        enter(state, token, "running", at)


def job_extended(state: State, event: e.JobExtended, at: int) -> None:
    job = state.jobs[event.job]
    job.lease = event.lease
    state.timers.set(f"lease:{event.job}", event.lease)
    if event.until:
        job.until = event.until
        state.timers.set(f"job:{event.job}", event.until)


def job_progressed(state: State, event: e.JobProgressed, at: int) -> None:
    job = state.jobs[event.job]
    job.progress, job.losses_in_place = event.progress, 0


def job_parked(state: State, event: e.JobParked, at: int) -> None:
    job = state.jobs[event.job]
    turn_to(state, job, "parked", at)
    job.ticket = event.ticket
    job.memory, job.heard = event.memory, None
    if job.lease:
        job.lease = 0
        state.timers.drop(f"lease:{job.id}")
    if event.wait is not None:
        _wait_begins(state, job, event)
    elif event.until and event.memory is not None:  # the time of this wait, not of the whole job
        job.due = event.until
        state.timers.set(f"wait:{job.id}", event.until)
    elif event.until:
        job.until = event.until
        state.timers.set(f"job:{job.id}", event.until)


def _wait_begins(state: State, job: Job, event: e.JobParked) -> None:
    """The limit of the job is one of work: while it waits for time or a signal it does not run."""
    job.wait = event.wait
    if job.until:
        job.until = 0
        state.timers.drop(f"job:{job.id}")
    if event.until:
        job.due = event.until
        state.timers.set(f"wait:{job.id}", event.until)
    if event.wait is not None and event.wait.event:
        if event.wait.event not in state.waits:
            state.waits |= {event.wait.event: {}}
        state.waits[event.wait.event][job.id] = True


def _wait_ends(state: State, job: Job, wait: Wait) -> None:
    job.wait = None
    if wait.event:
        waiting = state.waits[wait.event]
        del waiting[job.id]
        if not waiting:
            del state.waits[wait.event]


def job_continued(state: State, event: e.JobContinued, at: int) -> None:
    job = state.jobs[event.job]
    off_worker(state, job)
    turn_to(state, job, "scheduled", at)
    if state.loops:
        queue_time_runs(state, job, at)
    job.attempt = event.attempt
    job.heard = event.answer
    if job.slot == PLAIN and job.token in state.tokens:
        state.tokens[job.token].attempt = event.attempt


def off_worker(state: State, job: Job) -> None:
    """Nobody works on it now: its lease and timeout no longer run."""
    if job.wait is not None:
        _wait_ends(state, job, job.wait)
    if job.phase == "parked" and job.due:
        job.due = 0
        state.timers.drop(f"wait:{job.id}")
    if job.lease:
        job.lease = 0
        state.timers.drop(f"lease:{job.id}")
    if job.until:
        job.until = 0
        state.timers.drop(f"job:{job.id}")
    job.worker = job.holder = ""
    job.ticket = ""


def job_reported(state: State, event: e.JobReported, at: int) -> None:
    job = state.jobs[event.job]
    if event.answer.later_ms:
        job.postponed += 1
        job.postponed_ms += at - job.since + event.answer.later_ms
    else:
        job.failures += event.answer.status == "error"
    off_worker(state, job)
    state.busy += job.phase == "parked"
    job.phase = "answered"
    job.since = at
    job.answer = event.answer
    if event.answer.redacted:
        note_stars(state, job.step, event.answer.redacted)
    job.memory = job.heard = job.progress = None
    answer_plain(state, job)


def answer_plain(state: State, job: Job) -> None:
    """The one job of a plain step answers for its token; fans wait for their gather."""
    token = state.tokens.get(job.token)
    if job.slot == PLAIN and token is not None:
        token.answer = job.answer


def job_reused(state: State, event: e.JobReused, at: int) -> None:
    job = new_job(state, event.job, event.token, event.slot, at)
    job.phase = "answered"
    job.answer = event.answer
    note_stars(state, job.step, event.answer.redacted)
    answer_plain(state, job)
    if event.slot < 0:  # only step runs that ended well are taken over: theirs was decided
        state.tokens[event.token].decided = True
    _take(state, event.key)
    if event.settled and (who := _take(state, event.settled).result.get("answered_by")):
        state.answered_by |= {state.tokens[event.token].step: who}


def _take(state: State, key: str) -> Answer:
    """What the origin of a redriven run has under that key, which it has once less now."""
    left = state.reuse[key]
    answer = left.pop(0)
    if not left:
        del state.reuse[key]
    return answer


def job_retrying(state: State, event: e.JobRetrying, at: int) -> None:
    job = state.jobs[event.job]
    if job.answer is not None and job.answer.status == "ok":
        job.failures += 1  # it was a reply, and nobody could read it
    off_worker(state, job)
    turn_to(state, job, "backoff", at)
    job.memory = job.heard = job.progress = None  # the next try begins at the beginning
    job.due = event.due
    state.timers.set(f"retry:{job.id}", event.due)


def job_timed_out(state: State, event: e.JobTimedOut, at: int) -> None:
    job = state.jobs[event.job]
    off_worker(state, job)
    turn_to(state, job, "answered", at)
    job.failures += 1
    job.timeouts += 1


def job_lost(state: State, event: e.JobLost, at: int) -> None:
    job = state.jobs[event.job]
    off_worker(state, job)
    turn_to(state, job, "answered", at)
    job.losses += event.counted
    job.losses_in_place += event.counted
    job.workers_lost += event.counted and event.worker


def job_late(state: State, event: e.JobLate, at: int) -> None:
    """Changes nothing: the attempts that count have been counted."""


def job_cancelling(state: State, event: e.JobCancelling, at: int) -> None:
    job = state.jobs[event.job]
    worker, holder, lease = job.worker, job.holder, job.lease
    off_worker(state, job)
    job.worker, job.holder = worker, holder
    if lease:  # a worker that never says it stopped is forgotten with its lease
        job.lease = lease
        state.timers.set(f"lease:{job.id}", lease)
    turn_to(state, job, "cancelling", at)
    job.reason = event.reason


def job_discharged(state: State, event: e.JobDischarged, at: int) -> None:
    job = state.jobs[event.job]
    if event.how == "abandoned":
        state.abandoned += 1
        if state.abandoned <= FAULTS_KEPT:
            state.left_behind += ((job.step, event.reason),)
    off_worker(state, job)
    state.timers.drop(f"retry:{job.id}")
    tracker = state.loops.get(f"l{job.token}")
    if tracker is not None and event.how == "put_back":
        shard_put_back(tracker, job.id)
    elif tracker is not None:
        job_given_up(tracker, job.id)
    drop_job(state, event.job)
