"""Signals and the waits that take them; waits for time end here, too.

A signal is kept until a wait takes it, at most once: of several waits the one that has waited
longest, of several signals the one that came first. Whether a signal matches is asked when one
arrives, when a wait begins and when the context has changed, so that between two turns no kept
signal matches a wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec

from anabranch.errors import ExpressionError, InputError, Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.jobs import heard
from anabranch.kernel.jobs import park as park_job
from anabranch.kernel.routing import names_for
from anabranch.kernel.state import Job, KeptSignal, State
from anabranch.kernel.turn import Turn
from anabranch.kernel.values import Wait, failed, succeeded
from anabranch.net.problems import did_you_mean
from anabranch.net.waits import waits_of

SIGNALS_MAX = 1_000  # that a run keeps at once,
SIGNAL_BYTES_MAX = 1024 * 1024  # and what their payloads come to in its log
REASON_MAX = 300  # letters of why a filter could not be evaluated
_encoder = msgspec.json.Encoder(order="sorted")


# -- signals ---------------------------------------------------------------------------------


def receive(turn: Turn, stimulus: s.Signal) -> None:
    state = turn.state
    if sent_before(state, stimulus):
        return
    if state.ending:
        raise Refused(f"the run is ending: {state.ending}", code="ending")
    _require_name(turn, stimulus.name)
    payload = turn.values.fit(stimulus.payload)
    size = len(_encoder.encode(payload))
    expires = turn.at + stimulus.ttl_ms if stimulus.ttl_ms else 0
    shown = _shown(stimulus.id, stimulus.name, stimulus.payload, stimulus.actor, turn.at)
    taker, problem = _taker(turn, stimulus.name, shown)
    if taker is None:
        _require_room(state, size)
    turn.emit(
        e.SignalReceived(
            stimulus.id, stimulus.name, payload, stimulus.actor, expires, digest_of(stimulus), size
        )
    )
    _follow(turn, state.signals[stimulus.id], taker, problem)


def sent_before(state: State, stimulus: s.Signal) -> bool:
    """The same signal once more; refused where another one had this id."""
    before = state.signals.get(stimulus.id) or state.past_signals.get(stimulus.id)
    if before is None:
        return False
    if before.digest != digest_of(stimulus):
        message = f"signal {stimulus.id} was sent before, with another name or payload"
        raise Refused(message, code="signal_id_used")
    return True


def digest_of(stimulus: s.Signal) -> str:
    """Tells signals apart that were sent under one id."""
    return sha256(_encoder.encode([stimulus.name, stimulus.payload])).hexdigest()[:32]


def _require_name(turn: Turn, name: str) -> None:
    known = waits_of(turn.net).events
    if name in known:
        return
    if not known:
        message = f"nothing in {turn.net.name} waits for a signal"
        raise InputError(message, code="unknown_signal")
    message = f"nothing in {turn.net.name} waits for a signal {name[:100]!r}"
    message += f"; {did_you_mean(name, known)}"
    raise InputError(message, code="unknown_signal")


def _require_room(state: State, size: int) -> None:
    if len(state.signals) >= SIGNALS_MAX:
        message = f"the run keeps {SIGNALS_MAX:,} signals that no wait has taken, and takes no more"
        raise Refused(message, code="signals_full")
    if sum(kept.size for kept in state.signals.values()) + size > SIGNAL_BYTES_MAX:
        message = (
            f"the payloads of the signals that the run keeps would come to more than "
            f"{SIGNAL_BYTES_MAX:,} bytes"
        )
        raise Refused(message, code="signals_full")


def expire(turn: Turn, signal: str) -> None:
    turn.emit(e.SignalExpired(signal))


# -- waits -----------------------------------------------------------------------------------


def park(turn: Turn, stimulus: s.JobPark) -> None:
    """A job parks; one that waits for nothing that is still to come goes on at once."""
    wait = stimulus.wait
    job = turn.state.jobs.get(stimulus.job)
    if wait is not None and wait.event and job is not None:
        _require_rule(turn, job, wait)
    park_job(turn, stimulus)
    if wait is None:
        return
    job = turn.state.jobs[stimulus.job]
    if not wait.event:
        if job.due <= turn.at:
            end_wait(turn, job)
        return
    for kept in list(turn.state.signals.values()):
        if kept.name != wait.event:
            continue
        matches, problem = _matches(turn, job, wait, _shown_kept(turn, kept))
        _follow(turn, kept, job if matches else None, problem)
        if matches:
            return


def _require_rule(turn: Turn, job: Job, wait: Wait) -> None:
    rule = waits_of(turn.net).rule(job.step, wait.task)
    if rule is None or rule.event != wait.event:
        message = f"task {wait.task!r} of step {job.step} does not wait for {wait.event!r}"
        raise Refused(message, code="unknown_wait")


def end_wait(turn: Turn, job: Job) -> None:
    """Its time is over: what it waited for has come, unless that was a signal."""
    wait = job.wait
    assert wait is not None, "only waits end so"
    seconds = max(0, job.due - job.since) / 1000
    if wait.event:
        message = f"no signal {wait.event} within {seconds:g} s"
        heard(turn, job, failed("timeout", message, code="TIMEOUT"))
        return
    heard(turn, job, succeeded({"until": instant(job.due), "waited_seconds": seconds}))


def rematch(turn: Turn) -> None:
    """The context has changed: filters may say something else."""
    state = turn.state
    if not state.signals or not state.waits:
        return
    for kept in list(state.signals.values()):
        if kept.name in state.waits:
            taker, problem = _taker(turn, kept.name, _shown_kept(turn, kept))
            _follow(turn, kept, taker, problem)


def _follow(turn: Turn, kept: KeptSignal, taker: Job | None, problem: tuple[str, str]) -> None:
    if problem[0] and not kept.problem:
        turn.emit(e.SignalUnmatched(kept.id, *problem))
    if taker is None:
        return
    result = {
        "event": kept.name,
        "payload": kept.payload,
        "id": kept.id,
        "actor": kept.actor,
        "received_at": instant(kept.at),
    }
    turn.emit(e.SignalTaken(kept.id, taker.id))
    heard(turn, taker, succeeded(result))


def _taker(turn: Turn, name: str, shown: Mapping[str, Any]) -> tuple[Job | None, tuple[str, str]]:
    """The wait that takes the signal, and the first filter that failed for it: job and reason."""
    problem = ("", "")
    for waiting in turn.state.waits.get(name, ()):
        job = turn.state.jobs[waiting]
        assert job.wait is not None, "it is listed as waiting"
        matches, failed_here = _matches(turn, job, job.wait, shown)
        if matches:
            return job, problem
        problem = problem if problem[0] else failed_here
    return None, problem


def _matches(
    turn: Turn, job: Job, wait: Wait, shown: Mapping[str, Any]
) -> tuple[bool, tuple[str, str]]:
    rule = waits_of(turn.net).rule(job.step, wait.task)
    token = turn.state.tokens.get(job.token)
    if rule is None or token is None:  # one that only drains takes nothing from others
        return False, ("", "")
    if rule.filter is None:
        return True, ("", "")
    names = names_for(turn.state, token, turn.values)
    names["signal"] = shown
    names["local"] = wait.seen
    try:
        return bool(rule.filter.evaluate(names)), ("", "")
    except ExpressionError as error:
        return False, (job.id, str(error)[:REASON_MAX])


def _shown_kept(turn: Turn, kept: KeptSignal) -> Mapping[str, Any]:
    """Its payload is loaded where a filter looks at it, which fails if that cannot be done."""
    shown = _shown(kept.id, kept.name, kept.payload, kept.actor, kept.at)
    return turn.values.view(shown) if turn.values.lazy else shown


def _shown(signal: str, name: str, payload: Any, actor: str, at: int) -> dict[str, Any]:
    """What a filter sees of a signal."""
    return {
        "id": signal,
        "name": name,
        "payload": payload,
        "actor": actor,
        "received_at": instant(at),
    }


def instant(at: int) -> str:
    """ISO 8601 in UTC. The calendar of Python ends with the year 9999."""
    try:
        return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{at} ms after 1970"
