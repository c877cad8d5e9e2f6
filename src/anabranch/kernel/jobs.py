"""Jobs: schedule, start, report, retry, lose, cancel.

    scheduled ─▶ running ─▶ answered ─▶ (gone)
        ▲          │ │ └──▶ parked ─▶ answered, or scheduled to go on from where it stood
        │          │ └─ failed, lost, put off or timed out ─▶ backoff ────┐
        └──────────┼──────────────────────────────────────────────────────┘
                   └─ cancelling (intent) ─▶ discharged

A job keeps its id and its idempotency key over all attempts. A report counts only for the attempt
that is out; any other is refused and changes nothing. A job leaves the state when its answer has
been used or its cancelling discharged, so between two turns "no job is left" and "nobody works for
this run, now or later" are the same thing.
"""

from __future__ import annotations

from heapq import heappush
from typing import Literal

import msgspec

from anabranch.errors import Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.idempotency import key_work
from anabranch.kernel.reuse import SETTLED, judgement_of, reuse_key, takes_over
from anabranch.kernel.state import Job, Token
from anabranch.kernel.tracker import Shard, TaskRun, loop_id
from anabranch.kernel.turn import Conclude, FillLoop, FillWindow, SlotOver, Turn
from anabranch.kernel.values import INTERNAL, Answer, Fault, failed
from anabranch.net.net import Step, Work
from anabranch.net.reads import Reads, access

PLAIN_SLOT = -1
CUT_SLOT = -2  # the job that reads ahead in a loop's collection, or finds whom a fan asks
JUDGE_SLOT = -3  # the job that is asked whether the task is fulfilled
DEFAULT_WORK = Work(kind="noop")
#: An error that no code foresaw is seldom gone at once: whatever the policy says, so long at least.
INTERNAL_DELAY_MS = 1_000
#: A shard that was lost so often without getting any further goes out in two halves, and each of
#: them at its next loss, until the item that ends its workers is alone.
LOSSES_IN_PLACE = 2
HALVED = "SHARD_HALVED"  # the code of the fault
_LOOP_READER = Work(kind="loop.cut")
_NAMED_SLOTS = {CUT_SLOT: "cut", JUDGE_SLOT: "judge", PLAIN_SLOT: "0"}


def job_id(token: int, slot: int, asked_again: int = 0, source_asked: int = 0) -> str:
    """`7.0`; in a later round of a fan `7r1.0`; of a source asked once more `7.judge-1`."""
    again = f"r{asked_again}" if asked_again else ""
    source = f"-{source_asked}" if source_asked and slot == JUDGE_SLOT else ""
    return f"{token}{again}.{_NAMED_SLOTS.get(slot, slot)}{source}"


def id_of_job(token: Token, slot: int) -> str:
    """The job that this token has for the slot now."""
    if slot == PLAIN_SLOT:  # it counts attempts; the jobs of a fan are new ones every time
        return f"{token.id}.0"
    return job_id(token.id, slot, token.round, token.source_asked)


def token_of(job: str) -> int:
    """The token that a job works for, from its id."""
    return int(job.partition(".")[0].partition("r")[0])


def work_of(step: Step, job: Job) -> Work:
    """What this job does: the step's work, except for the jobs beside it."""
    if job.slot == CUT_SLOT:
        targets = step.fan.targets if step.fan is not None else None
        return targets or _LOOP_READER
    if job.slot == JUDGE_SLOT and step.decision is not None and step.decision.source is not None:
        return step.decision.source
    return step.work or DEFAULT_WORK


def kind_of_job(step: Step, job: Job) -> str:
    return work_of(step, job).kind


def pool_of_job(step: Step, job: Job) -> str:
    """Whose workers do it; "" is the engine itself, which also does the jobs beside the work."""
    return step.work.pool if step.work is not None and job.slot >= PLAIN_SLOT else ""


def fan_id(token: Token) -> str:
    return f"f{token.id}r{token.round}" if token.round else f"f{token.id}"


def find_reusable(turn: Turn, token: Token, slot: int = PLAIN_SLOT, label: str = "") -> str:
    """Under which key the origin of a redriven run has this; "" where it has not."""
    state = turn.state
    if not state.reuse or token.via == "final" or slot in (CUT_SLOT, JUDGE_SLOT):
        return ""
    depend_on(turn, token, access(turn.net).steps[token.step].work)
    if not takes_over(state, token, whole=slot == PLAIN_SLOT and not label):
        return ""
    key = reuse_key(state, token, slot, label)
    return key if key in state.reuse else ""


def depend_on(turn: Turn, token: Token, reads: Reads) -> None:
    """In a redriven run: note if something of this is not what it was in the origin."""
    if turn.state.provenance is not None:
        cause = turn.state.provenance.cause_for(token.id, reads)
        if cause is not None:
            turn.emit(e.TokenInvalidated(token.id, cause))


def schedule(turn: Turn, token: Token, slot: int = PLAIN_SLOT) -> None:
    """A new job for the token, or its answer at once where the origin of a redrive had it."""
    if turn.state.reuse and reuse_answer(turn, token, slot):
        return
    attempt = token.attempt + 1 if slot == PLAIN_SLOT else 1
    job = id_of_job(token, slot)
    if slot >= PLAIN_SLOT:  # the others ask, and change nothing
        key_work(turn, token, job, slot)
    turn.emit(e.JobScheduled(job, token.id, slot, attempt))


def reuse_answer(turn: Turn, token: Token, slot: int = PLAIN_SLOT) -> bool:
    """Take the answer that the origin of a redriven run had for this, if it had one."""
    key = find_reusable(turn, token, slot)
    if not key:
        return False
    reuse, job = turn.state.reuse, id_of_job(token, slot)
    settled = reuse_key(turn.state, token, label=SETTLED) if slot == PLAIN_SLOT else ""
    kept = reuse[settled][0] if settled in reuse else None
    if slot != PLAIN_SLOT:
        take_over_later(turn, token, key, slot)
    key_work(turn, token, job, slot)
    turn.emit(e.JobReused(job, token.id, slot, reuse[key][0], key, settled if kept else ""))
    if kept is not None and (said := judgement_of(kept)) is not None:
        turn.emit(
            e.TaskJudged(
                token.id,
                said.fulfilled,
                said.policy,
                said.actor,
                said.reason,
                said.evidence,
                override=said.override,
            )
        )
    if slot == PLAIN_SLOT:
        settle(turn, turn.state.jobs[job])
    return True


def take_over_later(turn: Turn, token: Token, key: str, slot: int = PLAIN_SLOT) -> None:
    """Answers that are taken over count in the order in which they came in the origin: who was
    first there is first here, at a join and in a fan."""
    if not turn.places:
        turn.places = {each: place for place, each in enumerate(turn.state.reuse)}
    heappush(turn.to_take_over, (turn.places[key], token.id, slot))
    if slot != PLAIN_SLOT:
        turn.slots_to_take_over[token.id] = turn.slots_to_take_over.get(token.id, 0) + 1


def settle_slot(turn: Turn, name: int, slot: int) -> None:
    turn.slots_to_take_over[name] -= 1
    token = turn.state.tokens.get(name)
    job = turn.state.jobs.get(id_of_job(token, slot)) if token is not None else None
    if job is not None:
        settle(turn, job)


# -- what workers say ------------------------------------------------------------------------


def _expect(turn: Turn, job_name: str, attempt: int) -> Job:
    job = turn.state.jobs.get(job_name)
    if job is None:
        raise Refused(
            f"job {job_name} is not open: it is unknown or already over", code="unknown_job"
        )
    if attempt != job.attempt:
        raise Refused(
            f"job {job_name} is at attempt {job.attempt}, not {attempt}: the report is stale",
            code="stale_attempt",
        )
    return job


def start(turn: Turn, stimulus: s.JobStart) -> None:
    job = _expect(turn, stimulus.job, stimulus.attempt)
    if job.phase != "scheduled":
        raise Refused(f"job {job.id} is {job.phase}, not scheduled", code="job_not_scheduled")
    if turn.state.paused:
        raise Refused("the run is paused; resume it first", code="paused")
    work = work_of(turn.net.steps[job.step], job)
    limited = work.timeout_ms is not None and not stimulus.queued
    until = turn.at + (work.timeout_ms or 0) if limited else 0
    lease, holder = stimulus.lease_until, stimulus.holder
    turn.emit(e.JobStarted(job.id, job.attempt, stimulus.worker, lease, until, holder))


def extend(turn: Turn, stimulus: s.JobExtend) -> None:
    job = _expect(turn, stimulus.job, stimulus.attempt)
    if job.phase != "running" or not job.lease:
        raise Refused(f"job {job.id} is {job.phase}: there is no lease to extend", code="no_lease")
    limit = work_of(turn.net.steps[job.step], job).timeout_ms
    if stimulus.began and limit is not None and not job.until:
        lease = max(stimulus.lease_until, job.lease)
        turn.emit(e.JobExtended(job.id, lease, turn.at + limit))
    elif stimulus.lease_until > job.lease:
        turn.emit(e.JobExtended(job.id, stimulus.lease_until))


def progress(turn: Turn, stimulus: s.JobProgress) -> None:
    job = _expect(turn, stimulus.job, stimulus.attempt)
    if job.phase != "running":
        raise Refused(f"job {job.id} is {job.phase}: no worker has it", code="job_not_running")
    if stimulus.progress != job.progress:
        turn.emit(e.JobProgressed(job.id, job.attempt, stimulus.progress))


def park(turn: Turn, stimulus: s.JobPark) -> None:
    job = _expect(turn, stimulus.job, stimulus.attempt)
    if job.phase != "running":
        raise Refused(f"job {job.id} is {job.phase}: only a running job parks", code="not_running")
    until = stimulus.until
    timed = stimulus.wait is not None and not stimulus.wait.event
    if not until and (stimulus.limit_ms or timed):
        until = max(1, turn.at + stimulus.limit_ms)  # 0 would be no limit
    parked = e.JobParked(
        job.id, job.attempt, stimulus.ticket, until, stimulus.memory, stimulus.wait
    )
    turn.emit(parked)


def report(turn: Turn, stimulus: s.JobReport) -> None:
    job = _expect(turn, stimulus.job, stimulus.attempt)
    if job.phase == "cancelling":
        _report_too_late(turn, job, stimulus.answer)
        return
    if job.phase not in ("running", "parked"):
        raise Refused(f"job {job.id} is {job.phase}: no worker has it", code="job_not_running")
    if job.wait is not None:
        raise Refused(f"job {job.id} waits for no answer", code="waits_by_itself")
    heard(turn, job, stimulus.answer)


def heard(turn: Turn, job: Job, answer: Answer) -> None:
    """The answer of its work, or what its work waited for and goes on with."""
    if job.phase == "parked" and job.memory is not None and _still_wanted(turn, job):
        turn.emit(e.JobContinued(job.id, job.attempt + 1, answer))
        return
    turn.emit(e.JobReported(job.id, job.attempt, _with_task(turn, job, answer)))
    settle(turn, job)


def _with_task(turn: Turn, job: Job, answer: Answer) -> Answer:
    """A job that is one task of its step, and no more, also says which."""
    work = turn.net.steps[job.step].work
    if work is None or not work.label or job.slot != PLAIN_SLOT:
        return answer
    error = "" if answer.status == "ok" else answer.fault.kind if answer.fault else "unknown"
    done = TaskRun(work.label, job.attempt, error)
    return msgspec.structs.replace(answer, tasks=(done,))


def lose(turn: Turn, stimulus: s.JobLose) -> None:
    job = _expect(turn, stimulus.job, stimulus.attempt)
    if job.phase == "cancelling":
        discharge(turn, job, "lost")
        return
    if job.phase != "running":
        raise Refused(f"job {job.id} is {job.phase}: no worker has it", code="job_not_running")
    if stimulus.unbegun and beyond_window(turn, job):
        turn.emit(e.JobDischarged(job.id, "put_back", stimulus.reason))
        return
    lost = e.JobLost(job.id, job.attempt, stimulus.reason, stimulus.counted, stimulus.worker)
    turn.emit(lost)
    work, shard = work_of(turn.net.steps[job.step], job), _shard_of(turn, job)
    most, before = work.workers_lost_max, shard.lost if shard is not None else 0
    if most is not None and job.workers_lost + before > most:
        message = f"{job.workers_lost + before} workers were lost with it, the last one by: "
        message += f"{stimulus.reason}; the limit max_job_retries is {most}"
        over(turn, job, Fault("lost", message, code="JOB_LOST", retryable=False))
    elif job.losses + before > work.losses_max or not _still_wanted(turn, job):
        message = f"lost {job.losses + before} times, the last time by: {stimulus.reason}"
        over(turn, job, Fault("lost", message, code="JOB_LOST"))
    elif shard is not None and _may_be_an_item(job, shard):
        message = f"lost {job.losses + before} times, the last time by: {stimulus.reason}"
        over(turn, job, Fault("lost", f"{message}; its items go out in two halves", code=HALVED))
    else:  # a loss is nobody's fault: it costs no attempt of the retry policy and no delay
        turn.emit(e.JobScheduled(job.id, job.token, job.slot, job.attempt + 1))


def _shard_of(turn: Turn, job: Job) -> Shard | None:
    tracker = turn.state.loops.get(loop_id(job.token))
    return tracker.in_flight.get(job.id) if tracker is not None else None


def _may_be_an_item(job: Job, shard: Shard) -> bool:
    """One of several ends its workers, by all that is known: it is to be found, and the others are
    to be done without it."""
    return shard.size > 1 and (shard.lost > 0 or job.losses_in_place >= LOSSES_IN_PLACE)


def beyond_window(turn: Turn, job: Job) -> bool:
    """Whether its loop was narrowed so far that this shard can wait in the loop as well as in a
    queue: nothing of it is kept that another job would not know."""
    tracker = turn.state.loops.get(loop_id(job.token))
    if tracker is None or tracker.stopped or job.slot < 0 or not _still_wanted(turn, job):
        return False
    kept = (job.failures, job.losses, job.progress, job.memory, job.heard)
    return not any(kept) and len(tracker.in_flight) > tracker.window


def late(turn: Turn, stimulus: s.JobLate) -> None:
    """An attempt that is not out any more has ended: its job has gone on, and is left as it is."""
    name, attempt = stimulus.job, stimulus.attempt
    job = turn.state.jobs.get(name)
    if job is None and not _was_there(turn, name):
        raise Refused(f"there was no job {name}", code="unknown_job")
    if attempt < 1 or (job is not None and attempt > job.attempt):
        raise Refused(f"job {name} had no attempt {attempt}", code="unknown_attempt")
    if job is not None and attempt == job.attempt and job.phase not in ("backoff", "answered"):
        raise Refused(f"attempt {attempt} of job {name} is out: report it", code="not_late")
    turn.emit(e.JobLate(name, attempt, stimulus.worker, stimulus.outcome))


def _was_there(turn: Turn, job_name: str) -> bool:
    """Whether a job of this name can have been; those that are over are forgotten."""
    token = job_name.partition(".")[0].partition("r")[0]
    return token.isdecimal() and 0 < int(token) < turn.state.next_token


def time_out(turn: Turn, job: Job) -> None:
    """The attempt took longer than it may."""
    work = work_of(turn.net.steps[job.step], job)
    seconds = (work.timeout_ms if work.timeout_ms is not None else job.until - job.since) / 1000
    turn.emit(e.JobTimedOut(job.id, job.attempt, job.ticket))
    fault = Fault("timeout", f"no answer within {seconds:g} s", "TIMEOUT")
    if not _retry(turn, job, work, fault):
        over(turn, job, fault)


def wait_over(turn: Turn, job: Job) -> None:
    """What it waited for did not come in time: its work goes on with that."""
    if not _still_wanted(turn, job):
        time_out(turn, job)
        return
    seconds = (job.due - job.since) / 1000
    answer = failed("timeout", f"no answer from {job.ticket or 'outside'} within {seconds:g} s")
    turn.emit(e.JobContinued(job.id, job.attempt + 1, answer, job.ticket))


# -- what follows an answer ------------------------------------------------------------------


def settle(turn: Turn, job: Job) -> None:
    """The attempt is over; the job is too, unless it may be tried again."""
    answer = job.answer
    assert answer is not None, "settle follows a report"
    if answer.status != "error":
        over(turn, job, None)
        return
    if answer.later_ms and _still_wanted(turn, job):
        try_again(turn, job, answer.later_ms)
        return
    fault = answer.fault or Fault("unknown", "the work failed and did not say why")
    work = work_of(turn.net.steps[job.step], job)
    if not _retry(turn, job, work, fault):
        over(turn, job, fault)


def _retry(turn: Turn, job: Job, work: Work, fault: Fault) -> bool:
    retry, failures, timeouts = work.retry, job.failures, job.timeouts
    if (token := _token_of_lone_job(turn, job)) is not None:  # earlier rounds have the same budget
        failures, timeouts = failures + token.failures, timeouts + token.timeouts
    if work.retry_timeouts is not None and has_two_budgets(work):
        timed_out = fault.kind == "timeout"
        retry = work.retry_timeouts if timed_out else work.retry
        failures = timeouts if timed_out else failures - timeouts
    if failures >= retry.attempts or not fault.retryable:
        return False
    if not _still_wanted(turn, job):
        return False
    delay = retry.delay_before(failures)
    try_again(turn, job, max(delay, INTERNAL_DELAY_MS) if fault.kind == INTERNAL else delay)
    return True


def has_two_budgets(work: Work) -> bool:
    """One for failures, one for time limits; they do not touch one another."""
    return work.retry_timeouts is not None and not work.one_budget


def _token_of_lone_job(turn: Turn, job: Job) -> Token | None:
    """The token whose work this job does and no other with it."""
    fan = turn.net.steps[job.step].fan
    alone = job.slot == PLAIN_SLOT or (job.slot >= 0 and fan is not None and fan.keeps_targets)
    return turn.state.tokens.get(job.token) if alone else None


def try_again(turn: Turn, job: Job, delay: int) -> None:
    due = turn.at + delay
    turn.emit(e.JobRetrying(job.id, job.attempt + 1, due))
    if due <= turn.at:
        turn.emit(e.JobScheduled(job.id, job.token, job.slot, job.attempt + 1))


def _still_wanted(turn: Turn, job: Job) -> bool:
    """False for a job that only drains: its token or its gather has gone on without it."""
    token = turn.state.tokens.get(job.token)
    if token is None or token.doomed or turn.state.ending:
        return False
    if token.loop:
        return turn.state.loops[token.loop].status == "open"
    if job.slot < 0:
        return True
    return job.gather == token.gather and turn.state.gathers[token.gather].verdict == "open"


def over(turn: Turn, job: Job, fault: Fault | None) -> None:
    """No further attempt: the answer goes to the gather of a fan, or to the token itself."""
    if job.slot != PLAIN_SLOT:
        turn.agenda.append(SlotOver(job.id, fault))
    elif job.token in turn.state.tokens:
        turn.agenda.append(Conclude(job.token, fault))


def _report_too_late(turn: Turn, job: Job, answer: Answer) -> None:
    """The job was told to stop and answered all the same: recorded, without effect."""
    turn.emit(e.JobReported(job.id, job.attempt, _with_task(turn, job, answer)))
    if job.slot == PLAIN_SLOT and job.token in turn.state.tokens:
        turn.agenda.append(Conclude(job.token, answer.fault))
        return
    if answer.status == "ok" and job.gather in turn.state.joins:
        turn.emit(e.DeliveryLate(job.gather, job.id, answer.outcome))
    discharge(turn, job, "reported")


# -- cancelling ------------------------------------------------------------------------------


def cancel(turn: Turn, job: Job, reason: str) -> None:
    """Stop it: at once where no worker has it, by an intent where somebody does."""
    if job.phase == "cancelling":
        return
    if job.phase in ("running", "parked"):
        outside = job.phase == "parked"
        turn.emit(e.JobCancelling(job.id, reason, job.attempt, job.ticket))
        if outside:  # nobody of ours works on it; whoever does is told, not waited for
            turn.emit(e.JobDischarged(job.id, "stopped"))
            _end_doomed(turn, job)
        return
    turn.emit(e.JobDischarged(job.id, "reported" if job.phase == "answered" else "unstarted"))
    _end_doomed(turn, job)


def stopped(turn: Turn, stimulus: s.JobDischarge) -> None:
    job = turn.state.jobs.get(stimulus.job)
    if job is None or job.phase != "cancelling":
        raise Refused(f"job {stimulus.job} was not told to stop", code="not_cancelling")
    discharge(turn, job, "stopped")


def abandon(turn: Turn, job: Job) -> None:
    """It did not stop when it was told to, and the time of the run is up."""
    gather = turn.state.gathers.get(job.gather)
    asked = gather is not None and not gather.values and 0 <= job.slot < len(gather.labels)
    whom = f", asked of {gather.labels[job.slot]}," if gather is not None and asked else ""
    why = f"the work of step {job.step}{whom} did not stop when it was told to"
    discharge(turn, job, "abandoned", why)


def discharge(
    turn: Turn,
    job: Job,
    how: Literal["stopped", "reported", "lost", "abandoned"],
    reason: str = "",
) -> None:
    token = turn.state.tokens.get(job.token)
    turn.emit(e.JobDischarged(job.id, how, reason))
    if token is not None and token.loop:
        turn.agenda.append(FillLoop(token.id))
    elif token is not None and token.gather:
        turn.agenda.append(FillWindow(token.id))
    _end_doomed(turn, job)


def _end_doomed(turn: Turn, job: Job) -> None:
    """A killed token ends with the last of its jobs."""
    token = turn.state.tokens.get(job.token)
    if token is not None and token.doomed and token.jobs == 0:
        turn.agenda.append(Conclude(token.id, Fault("cancelled", token.reason, retryable=False)))


def jobs_of(turn: Turn, token: Token) -> list[Job]:
    """The token's jobs that are not over, in slot order."""
    if token.jobs == 0:
        return []
    if token.loop:
        return _jobs_of_loop(turn, token)
    slots = [PLAIN_SLOT, CUT_SLOT, JUDGE_SLOT]
    if token.gather:
        slots[:1] = range(turn.state.gathers[token.gather].next_slot)
    names = (id_of_job(token, slot) for slot in slots)
    return [turn.state.jobs[name] for name in names if name in turn.state.jobs]


def _jobs_of_loop(turn: Turn, token: Token) -> list[Job]:
    names = [*turn.state.loops[token.loop].in_flight, job_id(token.id, CUT_SLOT)]
    return [turn.state.jobs[name] for name in names if name in turn.state.jobs]
