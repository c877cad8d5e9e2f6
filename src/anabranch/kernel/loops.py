"""Loops: one token works through a collection, shard by shard, inside a sliding window.

The token opens the loop, shards go out as jobs while there is room, each that comes back makes room
for the next, and when nothing is out and nothing is left the loop has its status. Arcs are looked
at once, then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.errors import ExpressionError, InputError, Refused
from anabranch.expressions.budget import pause
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.idempotency import key_work
from anabranch.kernel.jobs import (
    CUT_SLOT,
    HALVED,
    beyond_window,
    cancel,
    find_reusable,
    job_id,
    jobs_of,
)
from anabranch.kernel.reducers import check_fold, preview
from anabranch.kernel.reuse import LOOP
from anabranch.kernel.routing import names_for
from anabranch.kernel.state import Job, Token
from anabranch.kernel.tracker import (
    UNKNOWN,
    ItemFailure,
    Shard,
    ShardReport,
    Tracker,
    first_item,
    held_before,
    loop_id,
    next_shard,
    over,
    tolerated,
    too_many_failed,
    verdict,
    wants_cut,
)
from anabranch.kernel.turn import Conclude, FillLoop, SlotOver, Turn
from anabranch.kernel.value_access import fit_patches
from anabranch.kernel.values import Answer, ContextPatch, Fault
from anabranch.net.net import Loop, Step
from anabranch.net.program import InnerLoop

FIRST_SHARD = {"local": 1, "fanout": 16}
QUEUE_TTL = "queue_ttl"  # the kind of the fault


# -- opening ---------------------------------------------------------------------------------


def open_loop(turn: Turn, token: Token, loop: Loop) -> None:
    names = names_for(turn.state, token, turn.values)
    try:
        source = turn.values.fit(loop.over.evaluate(names))
        window = window_of(loop, names)
        size = _size(source)
    except (ExpressionError, InputError) as error:
        fault = Fault("collection", f"step {token.step}: {error}", retryable=False)
        turn.agenda.append(Conclude(token.id, fault))
        return
    carried, key = _carried(turn, token)
    key_work(turn, token, loop_id(token.id))
    turn.emit(
        e.LoopOpened(
            loop_id(token.id),
            token.id,
            loop.mode,
            source,
            size,
            window,
            loop.shard_size or FIRST_SHARD[loop.mode],
            loop.shard_size is None,
            loop.keep_results,
            dict(loop.reducers),
            carried,
            key,
            loop.queue_ttl_ms or 0,
            _side_by_side(turn.net.steps[token.step], loop, window),
        )
    )
    if carried is not None and carried.get("patches"):
        _write(turn, token, msgspec.convert(carried["patches"], tuple[ContextPatch, ...]))
    turn.agenda.append(FillLoop(token.id))


def _write(turn: Turn, token: Token, patches: Iterable[ContextPatch]) -> None:
    """What the origin of a redriven run had written."""
    written = fit_patches(turn.state.ctx, patches, turn.values)
    turn.emit(e.ContextPatched(written, f"token {token.id}"))
    turn.readmit = True


def _write_held(turn: Turn, token: Token, tracker: Tracker, until: int | None = None) -> None:
    """What items wrote that stand before this one, and behind one that was done again."""
    due = held_before(tracker, until)
    patches = [ContextPatch(*each) for one in due for each in one.patches]
    if patches:
        _write(turn, token, patches)


def _side_by_side(step: Step, loop: Loop, window: int) -> bool:
    """Whether who has a shard works on several of its items at once: the engine itself does, as it
    counts the items of the whole loop; a worker, who sees its own shards only, does not."""
    return loop.mode == "local" and window > 1 and not (step.work and step.work.pool)


def window_of(loop: Loop | InnerLoop, names: Mapping[str, Any]) -> int:
    """How many items are worked on at once."""
    window = 1 if loop.window is None else loop.window.evaluate(names)
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise InputError(f"max_in_flight must be a whole number above zero, not {window!r}")
    return window


def _size(source: Any) -> int:
    """How many items there are, where that can be told without reading anything."""
    if isinstance(source, list | tuple):
        return len(source)
    if isinstance(source, Mapping):
        return UNKNOWN
    kind = "nothing" if source is None else type(source).__name__
    raise InputError(
        f"a loop needs a list or the description of a collection, not {kind}: "
        "check what `in` comes to"
    )


def _carried(turn: Turn, token: Token) -> tuple[Mapping[str, Any] | None, str]:
    """What the origin of a redriven run had finished of this loop."""
    key = find_reusable(turn, token, label=LOOP)
    return (turn.state.reuse[key][0].result, key) if key else (None, "")


# -- the window ------------------------------------------------------------------------------


def fill_loop(turn: Turn, item: FillLoop) -> None:
    """Begin shards while there is room; settle the loop when it is over."""
    token = turn.state.tokens.get(item.token)
    tracker = turn.state.loops.get(token.loop) if token is not None else None
    if token is None or tracker is None or tracker.status != "open" or token.doomed:
        return
    loop = turn.net.steps[token.step].loop
    assert loop is not None, "a token with a tracker stands at a loop"
    while len(tracker.in_flight) < tracker.window:
        shard = next_shard(tracker)
        if shard is None:
            break
        if not tracker.again and tracker.begun >= loop.shards_max:
            stop(turn, token, tracker, f"more than {loop.shards_max:,} shards (max_shards)")
            break
        if tracker.held:
            _write_held(turn, token, tracker, first_item(shard))
        number = tracker.next_shard
        if shard.number != number:
            shard = msgspec.structs.replace(shard, number=number)
        turn.emit(e.ShardScheduled(job_id(token.id, number), token.id, shard))
        pause()
    if tracker.size == UNKNOWN and wants_cut(tracker):
        turn.emit(e.LoopCutting(job_id(token.id, CUT_SLOT), token.id, tracker.cut_attempt + 1))
    if not tracker.in_flight and over(tracker):
        _settle(turn, token, tracker, loop)


def stop(turn: Turn, token: Token, tracker: Tracker, reason: str) -> None:
    """Begin nothing more, and stop what is out."""
    turn.emit(e.LoopStopped(tracker.id, reason))
    for job in jobs_of(turn, token):
        if job.phase != "answered":
            cancel(turn, job, reason)


def tune(turn: Turn, stimulus: s.TuneLoop) -> None:
    """Somebody changes a loop that is under way."""
    tracker = _named(turn, stimulus.loop)
    if stimulus.window < 0 or bool(stimulus.window) == stimulus.stop:
        raise InputError("say a window above zero, or that the loop stops", code="loop_window")
    loop = turn.net.steps[turn.state.tokens[tracker.token].step].loop
    if stimulus.window > 1 and loop is not None and loop.window is None:
        raise Refused("its items go one after the other (sequential)", code="loop_sequential")
    if stimulus.stop:
        if tracker.stopped:
            raise Refused(f"the loop is stopping already: {tracker.stopped}", code="loop_stopped")
        by = f" by {stimulus.actor}" if stimulus.actor else ""
        why = f": {stimulus.reason}" if stimulus.reason else ""
        turn.emit(e.LoopStopped(tracker.id, f"stopped{by}{why}"))
    else:
        turn.emit(e.LoopTuned(tracker.id, stimulus.window, stimulus.actor))
        _put_back(turn, tracker)
    turn.agenda.append(FillLoop(tracker.token))


def _put_back(turn: Turn, tracker: Tracker) -> None:
    """Take back what waits for a worker, the newest first, where the window is too narrow now."""
    for name in reversed(list(tracker.in_flight)):
        job = turn.state.jobs[name]
        if job.phase == "scheduled" and beyond_window(turn, job):
            turn.emit(e.JobDischarged(name, "put_back"))


def _named(turn: Turn, name: str) -> Tracker:
    state = turn.state
    found = [
        tracker
        for tracker in state.loops.values()
        if tracker.status == "open" and name in (tracker.id, state.tokens[tracker.token].step)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(tracker.id for tracker in found)
        raise Refused(f"several loops are open at {name!r}; say which: {ids}", code="loop_which")
    raise Refused(f"there is no open loop at {name!r}", code="no_loop")


def _settle(turn: Turn, token: Token, tracker: Tracker, loop: Loop) -> None:
    _write_held(turn, token, tracker)
    allowed = tolerated(tracker, loop.tolerate, loop.tolerate_percent)
    status = verdict(tracker, loop.allow_partial, allowed)
    reason = tracker.stopped
    if status == "failed" and not reason:
        first = _first_failure(tracker)
        reason = f"{tracker.failed} of {tracker.succeeded + tracker.failed} items failed: {first}"
    turn.emit(e.LoopSettled(tracker.id, status if status != "open" else "failed", reason))
    fault = None
    if status == "failed":
        fault = Fault("loop", reason, "LOOP_FAILED", retryable=False)
    turn.agenda.append(Conclude(token.id, fault))


# -- what comes back -------------------------------------------------------------------------


def job_over(turn: Turn, item: SlotOver) -> None:
    """A job of a loop is over: a shard's, or the reader's."""
    job = turn.state.jobs.get(item.job)
    if job is None:
        return
    tracker = turn.state.loops.get(loop_id(job.token))
    if tracker is None or tracker.status != "open":
        turn.emit(e.JobDischarged(job.id, "reported" if job.answer is not None else "lost"))
    elif job.slot == CUT_SLOT:
        _take_cut(turn, tracker, job, item.fault)
    else:
        _take_shard(turn, tracker, job, item.fault)
    if tracker is not None and tracker.failed and tracker.status == "open":
        _fail_fast(turn, tracker, job.step)
    turn.agenda.append(FillLoop(job.token))


def _fail_fast(turn: Turn, tracker: Tracker, step: str) -> None:
    loop = turn.net.steps[step].loop
    assert loop is not None, "a tracker belongs to a loop"
    if not loop.fail_fast or tracker.stopped:
        return
    if too_many_failed(tracker, loop.tolerate, loop.tolerate_percent):
        stop(turn, turn.state.tokens[tracker.token], tracker, _first_failure(tracker))


def _take_cut(turn: Turn, tracker: Tracker, job: Job, fault: Fault | None) -> None:
    found = job.answer.result if job.answer is not None and fault is None else None
    try:
        found = turn.values.whole(found)
    except ExpressionError as error:
        found, fault = None, Fault(error.code, str(error), retryable=False)
    shards = _found_shards(tracker, found)
    if found is None or shards is None:
        why = fault.message if fault is not None else "what its reader found does not fit"
        turn.emit(e.LoopCut(tracker.id, (), failed=True))
        turn.emit(e.LoopStopped(tracker.id, f"the collection cannot be read: {why}"))
        return
    turn.emit(
        e.LoopCut(
            tracker.id,
            shards,
            found.get("cursor"),
            bool(found.get("end")),
            found.get("size", UNKNOWN),
            found.get("source"),
        )
    )


def _found_shards(tracker: Tracker, found: Any) -> list[Shard] | None:
    """The shards that a reader found: each begins where the one before it ends."""
    if not isinstance(found, Mapping) or not isinstance(found.get("shards"), list | tuple):
        return None
    shards, expected = [], tracker.next_index
    for each in found["shards"]:
        if not isinstance(each, list | tuple) or len(each) != 3:
            return None
        first, count, cursor = each
        if first != expected or type(count) is not int or count < 1:
            return None
        shards.append(Shard(0, expected, count, cursor))
        expected += count
    size = found.get("size", UNKNOWN)
    return shards if type(size) is int and (size == UNKNOWN or size >= expected) else None


def _take_shard(turn: Turn, tracker: Tracker, job: Job, fault: Fault | None) -> None:
    loop = turn.net.steps[job.step].loop
    assert loop is not None, "a shard belongs to a loop"
    answer, shard = job.answer, tracker.in_flight[job.id]
    if fault is None and (answer is None or answer.shard is None):
        fault = (answer.fault if answer is not None else None) or Fault("shard", "no shard report")
    if fault is None and answer is not None:
        fault = _misfit(tracker, shard, answer) or (
            _patch(turn, job, answer) if answer.patches else None
        )
    tries_left = shard.tries < loop.item_retries and not tracker.stopped
    again = _again(answer) if fault is None and tries_left else ()
    halved = fault is not None and fault.code == HALVED
    whole = halved or (fault is not None and fault.kind == QUEUE_TTL and tries_left)
    lost = shard.lost + job.losses if halved else 0
    turn.emit(e.ShardClosed(job.id, tracker.id, again, fault, whole, lost))


def _again(answer: Answer | None) -> tuple[int, ...]:
    """The failed items of a shard for which another try may help."""
    if answer is None or answer.shard is None:
        return ()
    return tuple(failure.index for failure in answer.shard.failed if failure.retryable)


def _misfit(tracker: Tracker, shard: Shard, answer: Answer) -> Fault | None:
    """A report must speak of the shard's items, and what it reduced must fit what others did."""
    report = answer.shard
    assert report is not None, "only asked of a shard that reported"
    size, told = shard.size, report.succeeded + len(report.failed) + len(report.unbegun)
    if told != size or (told != report.succeeded and not _names_its_items(shard, report)):
        message = f"the report speaks of {told} items, the shard has {size}"
        return Fault("shard", message, "SHARD_REPORT", retryable=False)
    if len(report.unbegun) == size:  # it would go out again and again
        return Fault("shard", "no item of the shard was begun", "SHARD_REPORT", retryable=False)
    try:
        for key, value in report.shared.items():
            check_fold(tracker.shared, key, value, tracker.reducers.get(key, "set"))
    except InputError as error:
        return Fault(error.code, str(error), retryable=False)
    return None


def _names_its_items(shard: Shard, report: ShardReport) -> bool:
    """Whether the items that it names are the shard's, each once."""
    items = set(shard.only) or range(shard.first, shard.first + shard.count)
    named = [*[failure.index for failure in report.failed], *report.unbegun]
    return len(set(named)) == len(named) and all(index in items for index in named)


def waited_too_long(turn: Turn, name: str) -> None:
    """No worker took the shard in time: its items fail, or go out once more."""
    job = turn.state.jobs[name]
    tracker = turn.state.loops[loop_id(job.token)]
    message = f"no worker took the shard within {tracker.queue_ttl / 1000:g} s (queue_ttl_s)"
    turn.agenda.append(SlotOver(job.id, Fault(QUEUE_TTL, message, "QUEUE_TTL")))


def _first_failure(tracker: Tracker) -> str:
    first: ItemFailure | None = tracker.failures[0] if tracker.failures else None
    if first is None:
        return "an item failed"
    return f"item {first.index} failed ({first.kind}): {first.message}"


def _patch(turn: Turn, job: Job, answer: Answer) -> Fault | None:
    """Context writes of a shard, taken as they come back."""
    try:
        patches = fit_patches(turn.state.ctx, answer.patches, turn.values)
        preview(turn.state.ctx, patches)
    except (ExpressionError, InputError) as error:
        return Fault(error.code, str(error), retryable=False)
    turn.emit(e.ContextPatched(patches, f"token {job.token}"))
    turn.readmit = True
    return None
