"""`explain(net, state)`: why is it not finished?

For everything unfinished: what it waits for, since when, until when, and who or what can move it.
A pure function of net and state; every surface shows the same answer, in words of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from anabranch.kernel.ending import gate_id
from anabranch.kernel.gates import source_of
from anabranch.kernel.gather import needed
from anabranch.kernel.jobs import pool_of_job
from anabranch.kernel.state import Gather, Job, State, Token
from anabranch.kernel.values import Wait
from anabranch.net.net import Net
from anabranch.net.reach import reachability
from anabranch.net.waits import waits_of

M = TypeVar("M")  # who can move it, as the kernel says it or in words

FEW = 5  # names before they are only counted
REASON_LETTERS = 300
#: How many tokens, jobs and gates of a run a reason is looked for among, however many it has.
LOOKED_AT = 32
PROGRESS_SHOWN = 200  # characters


class SlotState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One slot of an open join: who filled it, or which tokens still can."""

    node: str
    when: str
    state: Literal["filled", "open", "lost"]
    by: tuple[str, ...] = ()  # tokens, as `id at step`


class Mover(msgspec.Struct, frozen=True):
    """Who or what can move it: a party or a thing by its name, or a verb of the operator."""

    verb: Literal["", "resume", "patch", "decide", "wake", "retry", "worker", "signal"]
    target: str  # without a verb the name; else the run, or the pool that a worker serves
    #: decide: the gate and the answer to it; wake: the token; retry: the step; signal: its name
    arguments: tuple[str, ...] = ()


class UnfinishedFields(msgspec.Struct, Generic[M], frozen=True):
    what: str  # "run", "token", "job", "gather", "work"
    id: str
    step: str
    waits_for: str
    since: int
    until: int | None = None
    movers: tuple[M, ...] = ()
    slots: tuple[SlotState, ...] = ()  # of a join
    pool: str = ""  # of a job that waits for a worker from outside
    at_work: bool = False  # it waits for nothing but its own work, which is being done
    queued: bool = False  # it could be done now, and nobody has taken it yet


class Unfinished(UnfinishedFields[Mover], frozen=True):
    """One unfinished thing and what it takes to move it."""


def _named(*names: str) -> tuple[Mover, ...]:
    return tuple(Mover("", name) for name in names)


def explain(net: Net, state: State) -> list[Unfinished]:
    """What an unfinished run waits for, and of any run the work that would not stop."""
    if not state.run:
        return []
    left = _left_behind(state)
    if state.finished:
        return left
    found = [*_run(state), *_tokens(net, state), *_orphans(net, state), *left]
    return [_standing(state, one) for one in found]


def _standing(state: State, one: Unfinished) -> Unfinished:
    if _is_at_work(state, one):
        return replace(one, at_work=True)
    return replace(one, queued=True) if _is_queued(state, one) else one


def _is_queued(state: State, one: Unfinished) -> bool:
    """No worker has it; no worker gets anything of a paused run."""
    match one.what:
        case "job":
            return state.jobs[one.id].phase == "scheduled" and not state.paused
        case "loop":
            jobs = (state.jobs.get(job) for job in state.loops[one.id].in_flight)
            return not state.paused and any(
                job is not None and job.phase == "scheduled" for job in jobs
            )
        case "token":
            return state.tokens[int(one.id)].phase == "queued"
        case _:
            return False


def reason_of(net: Net, state: State) -> str:
    """Why the run stands as it does, in one line: what it waits for, its problem, or both."""
    waits = "" if state.finished else _first_wait(net, state)
    return _one_line("; ".join(filter(None, (waits, _first_fault(state)))))


def trouble_of(state: State) -> str:
    """The first thing that did not end as it should, in one line; "" where all did."""
    return _one_line(_first_fault(state))


def _one_line(text: str) -> str:
    shown = "".join(c if c.isprintable() else " " for c in text[: 4 * REASON_LETTERS])
    line = " ".join(shown.split())
    return line if len(line) <= REASON_LETTERS else f"{line[: REASON_LETTERS - 1]}…"


def _first_fault(state: State) -> str:
    """What the run failed of, or the first thing in it that did not end as it should."""
    fault = state.problem or state.unhandled
    if fault is None and state.counts.problems + state.counts.tolerated == 0:
        return ""
    if fault is None and (tolerated := _first_tolerated(state)):
        return tolerated
    if fault is None and state.faults:
        fault = state.faults[0][1]
    if fault is None:
        return ""
    step = next((step for step, one in state.faults if one == fault), "")
    return f"{step}: {fault.message}" if step else fault.message


def _first_tolerated(state: State) -> str:
    """A no or a skip that comes from an error, or a loop of which items failed."""
    for name, tally in state.steps.items():
        if tally.by_error:
            return f"{name}: {tally.by_error}"
    for record in state.looped.values():
        if record.failed:
            return f"{record.step}: {record.failed:,} of {record.total:,} items failed"
    return ""


def _first_wait(net: Net, state: State) -> str:
    """People first, then what comes from outside, then time; nothing while work is being done."""
    for one in _run(state):
        if state.paused or state.ending or state.queued_for_place:
            return f"waits for {one.waits_for}"
    found = _first_gate(net, state) or _first_job(net, state) or _first_token(net, state)
    return f"{found.step} waits for {found.waits_for}" if found is not None else ""


def _first_gate(net: Net, state: State) -> Unfinished | None:
    for gate in islice(state.gates.values(), LOOKED_AT):
        token = state.tokens.get(gate.token)
        if token is not None and token.phase == "deciding":
            return _deciding(net, state, token)
    for name in islice(state.held, 1):
        return _held(net, state, state.tokens[name])
    return None


def _first_job(net: Net, state: State) -> Unfinished | None:
    jobs = list(islice(state.jobs.values(), LOOKED_AT))
    if any(job.phase in ("running", "answered") for job in jobs):
        return None
    for phase in ("parked", "backoff", "scheduled", "cancelling"):
        for job in jobs:
            if job.phase == phase:
                return _job(net, state, job)
    return None


def _first_token(net: Net, state: State) -> Unfinished | None:
    if state.jobs:  # those at work: the others wait for them
        return None
    for phase in ("sleeping", "joining"):
        for token in islice(state.tokens.values(), LOOKED_AT):
            if token.phase != phase:
                continue
            if phase == "joining":
                return _gathering(net, state, token)
            what = "its next try" if token.round else "its wake time"
            return _waiting(token, what, token.wake, ())
    return None


def _is_at_work(state: State, one: Unfinished) -> bool:
    """Those who do it have it, and nobody has to do anything about that."""
    match one.what:
        case "job":
            job = state.jobs[one.id]
            return job.phase in ("running", "answered") and not _asked(state, job)
        case "loop":
            jobs = (state.jobs.get(job) for job in state.loops[one.id].in_flight)
            return any(job is not None and job.phase == "running" for job in jobs)
        case "run":
            # it only has a deadline
            return not (state.paused or state.ending or state.queued_for_place)
        case _:
            return False


def _left_behind(state: State) -> list[Unfinished]:
    """Named here for whoever has to end it: the run does not wait for it."""
    return [
        Unfinished(
            "work", "", step, f"nothing: {why}, and the run went on without it", state.ending_at
        )
        for step, why in state.left_behind
    ]


def _run(state: State) -> Iterator[Unfinished]:
    if state.queued_for_place and not state.ending:
        keys = " and ".join(f"{one.key} ({one.limit} at once)" for one in state.limits)
        why = f"a place under the limit{'s' if len(state.limits) > 1 else ''} of {keys}"
        movers = _named("the end of a run that holds one")
        yield Unfinished("run", state.run, "", why, state.started_at, None, movers)
    if state.paused:
        why = "an operator to resume it"
        why += f" (paused: {state.pause_reason})" if state.pause_reason else " (it is paused)"
        resume = Mover("resume", state.run)
        yield Unfinished("run", state.run, "", why, state.paused_at, None, (resume,))
    if state.ending:
        why = f"its last work to end ({state.ending_reason})"
        yield Unfinished("run", state.run, "", why, state.ending_at, None, _named("the engine"))
    elif state.deadline:
        yield Unfinished(
            "run", state.run, "", "its end, before the deadline", state.started_at, state.deadline,
            _named("time"),
        )  # fmt: skip


def _tokens(net: Net, state: State) -> Iterator[Unfinished]:
    jobs: dict[int, list[Job]] = {}
    for job in state.jobs.values():
        jobs.setdefault(job.token, []).append(job)
    for token in state.tokens.values():
        match token.phase:
            case "held":
                yield _held(net, state, token)
            case "joining":
                yield _gathering(net, state, token)
            case "queued":
                most = net.policy.parallel_max
                movers = _named("the others' end")
                yield _waiting(token, f"room: {most} steps at once", None, movers)
            case "sleeping" if token.round:  # the whole step is tried again
                retry = Mover("retry", state.run, (token.step,))
                yield _waiting(token, "its next try", token.wake, (*_named("time"), retry))
            case "sleeping":
                wake = Mover("wake", state.run, (str(token.id),))
                yield _waiting(token, "its wake time", token.wake, (*_named("time"), wake))
            case "deciding":
                yield _deciding(net, state, token)
            case _:
                mine = jobs.get(token.id, [])
                if token.loop:
                    yield _looping(state, token)
                elif token.gather:
                    yield _fanning(state, token)
                    mine = _few_of(state, mine)
                for job in mine:
                    yield _job(net, state, job)


def _waiting(token: Token, what: str, until: int | None, movers: tuple[Mover, ...]) -> Unfinished:
    return Unfinished("token", str(token.id), token.step, what, token.since, until or None, movers)


def _held(net: Net, state: State, token: Token) -> Unfinished:
    admission = net.steps[token.step].admission
    rules = [r.guard.text for r in admission.rules if r.guard] if admission is not None else []
    wants = f" (rules: {'; '.join(rules)})" if rules else ""
    movers = (Mover("patch", state.run), _decide(state, gate_id(token), "fulfil"))
    return _waiting(token, f"admission{wants}", token.until, movers)


def _decide(state: State, gate: str, *answer: str) -> Mover:
    return Mover("decide", state.run, (gate, *answer))


def _deciding(net: Net, state: State, token: Token) -> Unfinished:
    gate = state.gates[gate_id(token)]
    who = f" by {', '.join(gate.actors)}" if gate.actors else ""
    ask = f": {gate.ask}" if gate.ask else ""
    source = source_of(net, gate)
    if source:
        movers = (
            _decide(state, gate.id, "ask_again"),
            _decide(state, gate.id, "override", "fulfil"),
        )
        what = f"a decision by {source} alone, which did not say yes"
        return _waiting(token, what, token.until, movers)
    movers = (_decide(state, gate.id, "fulfil"), _decide(state, gate.id, "reject"))
    return _waiting(token, f"a decision{who}{ask}", token.until, movers)


def _gathering(net: Net, state: State, token: Token) -> Unfinished:
    gather = state.gathers[token.gather]
    if gather.kind == "barrier":
        return _barrier(net, state, token, gather)
    slots = tuple(_slots(net, state, token, gather))
    have = [slot.node for slot in slots if slot.state == "filled"]
    open_slots = [
        f"{slot.node} ({slot.when})"
        if slot.state == "open"
        else f"{slot.node} (can no longer come)"
        for slot in slots
        if slot.state != "filled"
    ]
    what = (
        f"a join: {len(have)} of {needed(gather)} delivered"
        + (f" ({', '.join(have)})" if have else "")
        + (f"; open: {', '.join(open_slots)}" if open_slots else "")
    )
    missing = {slot.node for slot in slots if slot.state == "open"}
    reach, live = reachability(net).in_scope, state.scopes[token.id].live
    movers = _named(*(f"step {step}" for step in live if missing & reach[step]))
    return replace(_waiting(token, what, None, movers), slots=slots)


def _slots(net: Net, state: State, token: Token, gather: Gather) -> Iterator[SlotState]:
    reach = reachability(net).in_scope
    members = [state.tokens[member] for member in state.scopes[token.id].members]
    for slot, node in enumerate(gather.labels):
        when, delivery = gather.whens[slot], gather.filled.get(slot)
        if delivery is not None:
            yield SlotState(node, when, "filled", (f"{delivery.producer} at {node}",))
            continue
        able = tuple(f"{one.id} at {one.step}" for one in members if node in reach[one.step])
        yield SlotState(node, when, "open" if able else "lost", able)


def _barrier(net: Net, state: State, token: Token, gather: Gather) -> Unfinished:
    reach = reachability(net).in_scope
    live = state.scopes[token.scope].live
    coming = [step for step in live if step != token.step and token.step in reach[step]]
    what = f"the branches that can still reach it: {len(gather.filled)} arrived"
    return _waiting(token, what, None, _named(*(f"step {step}" for step in coming)))


def _looping(state: State, token: Token) -> Unfinished:
    tracker = state.loops[token.loop]
    total = f"{tracker.size:,}" if tracker.size >= 0 else "an unknown number of"
    out = sum(shard.size for shard in tracker.in_flight.values())
    what = (
        f"{total} items: {tracker.succeeded:,} done, {tracker.failed:,} failed, {out:,} out"
        + (f" in {len(tracker.in_flight)} shards" if tracker.in_flight else "")
        + (f"; stopping: {tracker.stopped}" if tracker.stopped else "")
    )
    until, movers = token.until or None, _named("its shards")
    return Unfinished("loop", tracker.id, token.step, what, tracker.opened_at, until, movers)


def _fanning(state: State, token: Token) -> Unfinished:
    """Who has answered, who was lost and why, who is still out."""
    gather = state.gathers[token.gather]
    filled, lost = gather.filled, gather.lost
    out = [slot for slot in range(len(gather.labels)) if slot not in filled and slot not in lost]
    answered = _names(gather, sorted(filled, key=lambda slot: filled[slot].order))
    gone = _names(gather, lost, lost)
    what = (
        f"answers: {len(filled)} of {len(gather.labels)} in{answered}, {needed(gather)} needed, "
        f"{len(lost)} lost{gone}, {len(out)} open{_names(gather, out)}"
    )
    awaited = [gather.labels[slot] for slot in out[:FEW]] if not gather.values else ["its jobs"]
    until, movers = token.until or None, _named(*awaited)
    return Unfinished("gather", gather.id, token.step, what, gather.opened_at, until, movers)


def _names(gather: Gather, slots: Collection[int], why: Mapping[int, str] | None = None) -> str:
    """A few of those by name, where the slots have names, then how many more there are."""
    if gather.values or not slots:
        return ""
    shown = [
        f"{gather.labels[slot]}: {why[slot]}" if why is not None else gather.labels[slot]
        for slot in islice(slots, FEW)
    ]
    more = [f"{len(slots) - FEW} more"] if len(slots) > FEW else []
    return f" ({', '.join([*shown, *more])})"


def _few_of(state: State, jobs: list[Job]) -> list[Job]:
    """Of those who were asked by name the first few, by when they were: the fan counts the rest."""
    gather = state.gathers[jobs[0].gather] if jobs and jobs[0].gather in state.gathers else None
    if gather is None or gather.values:
        return jobs
    return sorted(jobs, key=lambda job: job.since)[: 2 * FEW]


def _job(net: Net, state: State, job: Job) -> Unfinished:
    what, until, movers = _job_words(net, state, job)
    waits = job.phase == "scheduled" and not state.paused
    pool = pool_of_job(net.steps[job.step], job) if waits else ""
    whom = _asked(state, job)
    if whom and job.phase == "running":
        what, movers = f"the answer of {whom} (attempt {job.attempt})", _named(whom)
    elif whom:
        what = f"{what}, for {whom}"
    return Unfinished("job", job.id, job.step, what, job.since, until or None, movers, (), pool)


def _asked(state: State, job: Job) -> str:
    """Whom this job asks, where the slots of its fan have names."""
    gather = state.gathers.get(job.gather)
    if gather is None or gather.values or not 0 <= job.slot < len(gather.labels):
        return ""
    return gather.labels[job.slot]


def _job_words(net: Net, state: State, job: Job) -> tuple[str, int, tuple[Mover, ...]]:
    match job.phase:
        case "scheduled":
            what, mover = _next_worker(net, state, job)
            until = state.timers.due.get(f"queue:{job.id}", 0)
            limit = ", no longer than its queue_ttl_s" if until else ""
            return f"{what} (attempt {job.attempt}){limit}", until, (mover,)
        case "running":
            until = min((limit for limit in (job.until, job.lease) if limit), default=0)
            far = f": {_progress(job.progress)}" if job.progress is not None else ""
            movers = _named(job.worker or "the engine")
            return f"its work (attempt {job.attempt}){far}", until, movers
        case "parked" if job.wait is not None:
            return _wait(net, state, job, job.wait)
        case "parked":
            movers = _named(job.ticket or "the party that was asked")
            return f"an answer from outside ({job.ticket or 'parked'})", job.until, movers
        case "backoff":
            what = f"its next try (attempt {job.attempt + 1}){_put_off(job)}"
            return what, job.due, (*_named("time"), Mover("retry", state.run, (job.step,)))
        case "cancelling":
            movers = _named(job.worker or "the engine")
            return f"its worker to stop: {job.reason}", job.lease, movers
        case "answered":
            return "its answer to be used", 0, ()


def _next_worker(net: Net, state: State, job: Job) -> tuple[str, Mover]:
    """What a scheduled job waits for. No worker gets one of a paused run."""
    if state.paused:
        return "the run to be resumed", Mover("resume", state.run)
    pool = pool_of_job(net.steps[job.step], job)
    if pool:
        return f"a worker of pool {pool}", Mover("worker", pool)
    return "a free worker", Mover("", "the engine")


def _wait(net: Net, state: State, job: Job, wait: Wait) -> tuple[str, int, tuple[Mover, ...]]:
    if not wait.event:
        return "its time", job.due, _named("time")
    rule = waits_of(net).rule(job.step, wait.task)
    fits = f" that fits {rule.filter.text}" if rule is not None and rule.filter is not None else ""
    return f"a signal {wait.event}{fits}", job.due, (Mover("signal", state.run, (wait.event,)),)


def _put_off(job: Job) -> str:
    """Why the last try put it off, where it did."""
    if job.answer is None or not job.answer.later_ms or job.answer.fault is None:
        return ""
    times = "once" if job.postponed == 1 else f"{job.postponed} times"
    return f", put off {times}: {job.answer.fault.message}"


def _progress(progress: Any) -> str:
    """What a worker said of how far it is."""
    match progress:
        case {"done": int(done), "of": int(of)}:
            return f"{done:,} of {of:,} done"
        case str():
            return progress[:PROGRESS_SHOWN]
        case _:
            return msgspec.json.encode(progress).decode()[:PROGRESS_SHOWN]


def _orphans(net: Net, state: State) -> Iterator[Unfinished]:
    """Jobs whose token has gone on without them: they are being stopped."""
    for job in state.jobs.values():
        if job.token not in state.tokens:
            yield _job(net, state, job)
