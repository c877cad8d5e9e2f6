"""What a redrive of an ended run would do: what runs again, and what is taken over.

The log of the origin is gone through twice. The first time finds what did not end well. The second
time follows everything that depends on it, by arcs, joins, the context and results, with the same
marks that a redriven run keeps while it runs (`kernel.provenance`). Whatever carries no mark cannot
have changed, and its answer is taken over.

The redriven run looks again when it comes to a step: what is done again there may write where
nobody wrote in the origin. So this is the most that is taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from anabranch.kernel import events as e
from anabranch.kernel.evolve import evolve, mark_with
from anabranch.kernel.idempotency import given_to, idempotency_key
from anabranch.kernel.jobs import PLAIN_SLOT, token_of
from anabranch.kernel.loop_writes import LoopWrites
from anabranch.kernel.provenance import Provenance, writer_of
from anabranch.kernel.reuse import ADMITTED, LOOP, SETTLED, reuse_key, settled_as
from anabranch.kernel.state import State, Token
from anabranch.kernel.tracker import Shard, Tracker, first_item, loop_name, ranges_of
from anabranch.kernel.values import Answer, Cause
from anabranch.net.net import Net
from anabranch.net.reach import reachability
from anabranch.net.reads import access

#: What lets a token in besides people: the rules, a write to the context, room for one more.
LET_IN_BY_ITSELF = frozenset({"rules", "context", "room"})

History = Sequence[tuple[int, e.Event]]


class Fate(msgspec.Struct, frozen=True, gc=False):
    """What becomes of one step run."""

    step: str
    token: int
    cause: Cause | None = None  # why it runs again
    kept: int = 0  # of a loop that runs again: items that are not done again,
    left: int = -1  # and those that are; -1 where it is not known
    answers: int = 0  # of a fan-out that runs again: those that are taken over


class Redrive(msgspec.Struct, gc=False):
    """What a redriven run begins with, and what that means, step run by step run."""

    reuse: dict[str, list[Answer]]
    again: list[Fate]
    reused: list[Fate]
    unreached: list[str]  # steps that may run now and did not in the origin
    first_run: str  # with which the line of redrives begins
    known_keys: dict[str, list[str]]  # see `kernel.idempotency`
    entry: str = ""  # the step at which the origin began, where that is not the entry of the net

    @property
    def start_fields(self) -> dict[str, Any]:
        """What the start of the redriven run is given of it."""
        return {
            "reuse": self.reuse,
            "first_run": self.first_run,
            "known_keys": self.known_keys,
            "step": self.entry or None,
        }

    @property
    def idle(self) -> bool:
        """Nothing is left to do: whatever ran ended well."""
        return not self.again


def plan_redrive(net: Net, history: History, from_step: str = "") -> Redrive:
    """With `from_step` the runs of that step are done again as well, the whole of them, however
    they ended."""
    roots = _roots(history) | _asked(history, from_step)
    if roots:  # otherwise there is nothing to redrive
        roots = _that_name_their_run(net, history) | roots
    survey = _Survey(net, roots)
    for at, event in history:
        survey.see(at, event)
    return survey.redrive()


def reusable(net: Net, history: History) -> dict[str, list[Answer]]:
    """The answers of everything that cannot have changed, by reuse key, in the order they came.

    A plain step or a fan-out counts when its step run ended well (a fulfilled decision included);
    of one that did not, the slots that were filled; a loop with what it had finished, however it
    ended.
    """
    return plan_redrive(net, history).reuse


# -- what did not end well ---------------------------------------------------------------------


def _roots(history: History) -> dict[int, Cause]:
    """The step runs that are done again for their own sake.

    Losers that a join killed are none: whatever they come to stays unseen.
    """
    found: dict[int, Cause] = {}
    open_ones: set[int] = set()
    ending = False
    for _, event in history:
        match event:
            case e.TokenCreated():
                open_ones.add(event.token)
            case e.TaskJudged():
                if event.fulfilled:
                    found.pop(event.token, None)
                else:
                    found[event.token] = Cause("failed")
            case e.LoopSettled() if event.status != "complete":
                found[int(event.loop[1:])] = Cause("items")
            case e.TokenSkipped() if event.answered:
                found.pop(event.token, None)  # somebody gave what it comes to
            case e.TokenFinished():
                open_ones.discard(event.token)
                if event.ending != "done" or event.fault is not None:
                    found.setdefault(event.token, Cause("failed"))
                if event.end == "killed" and not ending:
                    found.pop(event.token, None)
            case e.RunEnding():
                ending = True
            case _:
                pass
    return found | dict.fromkeys(open_ones, Cause("unfinished"))


def _asked(history: History, step: str) -> dict[int, Cause]:
    """The runs of the step from which somebody wants the run to be done again."""
    return {
        event.token: Cause("asked")
        for _, event in history
        if isinstance(event, e.TokenCreated) and event.step == step
    }


def _that_name_their_run(net: Net, history: History) -> dict[int, Cause]:
    """The step runs that told others, or gave, the name of their run: the new one has another."""
    names = {name for name, step in net.steps.items() if step.work and step.work.names_run}
    found: dict[int, Cause] = {}
    for _, event in history if names else ():
        if isinstance(event, e.TokenCreated) and event.step in names:
            found[event.token] = Cause("session")
        elif isinstance(event, e.TokenFinished) and event.end == "killed":
            found.pop(event.token, None)
    return found


# -- what depends on it ------------------------------------------------------------------------


class _Survey:
    """The second way through the log."""

    def __init__(self, net: Net, roots: dict[int, Cause]) -> None:
        self._net = net
        self._access = access(net)
        self._reach = reachability(net).in_scope
        self._roots = roots
        self._state = State()
        self._marks = Provenance(found_before=True)
        self._found: dict[str, list[Answer]] = {}
        self._slots: dict[int, list[tuple[str, Answer]]] = {}  # of fans that are open
        self._failed: dict[str, list[Shard]] = {}  # loop → items that failed for good
        self._written: dict[str, LoopWrites] = {}  # of loops: what their items wrote so far
        self._ended: dict[int, dict[str, Cause]] = {}  # scope → steps whose end was not well
        self._again: list[Fate] = []
        self._reused: list[Fate] = []
        self._by_hand: dict[int, str] = {}  # token → who let it in
        self._stars: dict[int, int] = {}  # of loops: places with stars for a secret
        self._final: Fate | None = None
        self._keyed: set[str] = set()  # jobs and loops whose keys are noted
        self._known_keys: dict[str, list[str]] = {}
        self._entry = ""
        self._answered: set[int] = set()  # tokens whose result somebody gave

    def see(self, at: int, event: e.Event) -> None:
        state = self._state
        self._look(event)
        self._note_key(event)
        if isinstance(event, e.ShardClosed):
            self._note_shard(event)
        elif isinstance(event, e.TokenFinished):
            self._take(state.tokens[event.token], event)
        elif isinstance(event, e.TokenAdmitted) and event.by not in LET_IN_BY_ITSELF:
            self._by_hand[event.token] = event.by
        elif isinstance(event, e.TokenSkipped) and event.answered:
            self._answered.add(event.token)
        elif isinstance(event, e.Delivered):
            self._note_slot(event)
        elif isinstance(event, e.JobReported) and event.answer.redacted:
            self._note_stars(token_of(event.job), event.answer.redacted)
        elif isinstance(event, e.LoopOpened):
            self._note_opened(event)
        evolve(state, event, at)
        if isinstance(event, e.RunStarted):
            mark_with(state, self._marks)
            self._known_keys = {given: list(keys) for given, keys in event.known_keys.items()}
        elif isinstance(event, e.TokenCreated):
            if event.via == "entry" and event.step != self._net.entry:
                self._entry = event.step
            if event.token in self._roots:
                self._marks.redone[event.token] = self._roots[event.token]

    def redrive(self) -> Redrive:
        ran = self._state.steps
        if self._final is not None and self._again:  # what it is told is never twice the same
            self._again.append(self._final)
        causes = {fate.step for fate in self._again}
        next_steps = {s for step in causes for s in reachability(self._net).anywhere[step]}
        unreached = [name for name in self._net.steps if name in next_steps and name not in ran]
        return Redrive(
            self._found,
            self._again,
            self._reused,
            unreached,
            self._state.root_run,
            self._known_keys,
            self._entry,
        )

    # -- under which keys ------------------------------------------------------------------

    def _note_key(self, event: e.Event) -> None:
        """What its jobs and loops are given, and their keys: a redrive has recorded them."""
        state = self._state
        match event:
            case e.WorkKeyed():
                known = self._known_keys.setdefault(event.given, [])
                if event.key not in known:
                    known.append(event.key)
            case e.JobScheduled() if event.slot >= PLAIN_SLOT and not state.first_run:
                token = state.tokens[event.token]
                if not token.loop:  # shards are of their loop
                    self._give(event.job, token, event.slot)
            case e.LoopOpened() if not state.first_run:
                self._give(event.loop, state.tokens[event.token])
            case _:
                pass

    def _give(self, work: str, token: Token, slot: int = PLAIN_SLOT) -> None:
        if work not in self._keyed:
            self._keyed.add(work)
            given = given_to(self._net, self._state, token, slot)
            key = idempotency_key(self._state.run, work)
            self._known_keys.setdefault(given, []).append(key)

    # -- who reads what --------------------------------------------------------------------

    def _look(self, event: e.Event) -> None:
        """Whoever reads something that is not as it was is marked before its next act."""
        match event:
            case e.GateOpened() | e.JobScheduled() | e.JobReused() | e.ShardScheduled():
                self._reads(event.token, routes=False)
            case e.LoopOpened() | e.GatherOpened(kind="fan") | e.TokenAdmitted():
                self._reads(event.token, routes=False)
            case e.JobStarted() | e.JobContinued():
                self._reads(token_of(event.job), routes=False)
            case e.GateDecided() if event.actor != "engine":
                self._reads(int(event.gate.removeprefix("gate-")), routes=False)
            case e.ContextPatched():
                self._reads(writer_of(event.by), routes=True)
            case e.TokenCreated():
                self._reads(event.parent, routes=True)
            case e.Delivered() if event.producer.isdecimal():
                self._reads(int(event.producer), routes=True)
            case e.TokenFinished():
                self._reads(event.token, routes=True)
            case e.GatherSettled():
                self._settled(event)
            case _:
                pass

    def _reads(self, token: int, *, routes: bool) -> None:
        at = self._state.tokens.get(token)
        if at is None:
            return
        known = self._access.steps[at.step]
        cause = self._marks.cause_for(token, known.routes if routes else known.work)
        if cause is not None:
            marked = self._marks.rerouted if routes else self._marks.stale
            marked[token] = cause

    def _settled(self, event: e.GatherSettled) -> None:
        """Somebody who might have come did not end well: with them it may be another verdict."""
        gather = self._state.gathers[event.gather]
        if gather.kind == "fan" or gather.rule.mode not in ("all", "best_of"):
            return
        token = self._state.tokens[gather.token]
        scope = gather.token if gather.kind == "join" else token.scope
        for step in self._ended.get(scope, ()):
            labels = gather.labels if gather.kind == "join" else (gather.target,)
            if any(label in self._reach[step] for label in labels):
                self._marks.gathers.setdefault(gather.id, Cause("join", step))

    # -- what is kept ----------------------------------------------------------------------

    def _take(self, token: Token, event: e.TokenFinished) -> None:
        marks = self._marks
        slots = self._slots.pop(token.id, [])
        by_hand = self._by_hand.pop(token.id, "")
        cause = marks.changed(token.id)
        if event.end != "killed" and cause is not None:
            self._ended.setdefault(token.scope, {})[token.step] = cause
            self._miss(token.step)
        if token.via == "final" and token.id not in marks.redone:
            self._final = Fate(token.step, token.id, Cause("again"))
            return
        if token.id in marks.stale or token.via == "final":
            self._note(token, event, cause)
            return
        if by_hand:
            let_in = Answer(status="ok", result=by_hand)
            self._keep(reuse_key(self._state, token, label=ADMITTED), let_in)
        cause = marks.redone.get(token.id)
        if token.loop and token.id not in self._answered:
            self._take_loop(token, event, cause)
        elif cause is None and event.ending == "done" and event.end != "killed":
            if token.answer is not None and token.answer.status == "ok":
                self._keep(reuse_key(self._state, token), token.answer)
                self._keep_settled(token)
            self._note(token, event, None)
        else:
            asked = cause is not None and cause.how == "asked"
            kept = [] if asked or self._rejected(token) else slots
            for key, answer in kept:
                self._keep(key, answer)
            self._note(token, event, cause, len(kept))
        self._written.pop(token.loop, None)

    def _keep(self, key: str, answer: Answer) -> None:
        self._found.setdefault(key, []).append(answer)

    def _rejected(self, token: Token) -> bool:
        """What all of them said was not good enough: with the same answers it never will be."""
        said = self._state.judged.get(token.step)
        return said is not None and said.token == token.id and not said.fulfilled

    def _keep_settled(self, token: Token) -> None:
        step = self._net.steps[token.step]
        if step.fan is not None or step.decision is not None:
            key = reuse_key(self._state, token, label=SETTLED)
            self._keep(key, settled_as(self._state, token))

    def _note(
        self, token: Token, event: e.TokenFinished, cause: Cause | None, answers: int = 0
    ) -> None:
        if event.end == "killed" and cause is None:
            return
        if cause is not None:
            self._again.append(Fate(token.step, token.id, cause, answers=answers))
        elif token.answer is not None:
            self._reused.append(Fate(token.step, token.id))

    def _miss(self, step: str) -> None:
        """What it and those after it would have left, had it ended well."""
        steps, keys = self._access.may_follow(step)
        for key in keys:
            self._marks.missing_ctx.setdefault(key, Cause("context", key, step))
        for name in steps:
            self._marks.missing_results.setdefault(name, Cause("result", name))

    def _note_slot(self, event: e.Delivered) -> None:
        """Only an answer that was of use: whoever failed or said no is asked again."""
        gather = self._state.gathers[event.gather]
        answer = self._state.jobs[event.producer].answer if gather.kind == "fan" else None
        if answer is not None and answer.outcome != "negative":
            token = self._state.tokens[gather.token]
            kept = (reuse_key(self._state, token, event.slot), answer)
            self._slots.setdefault(token.id, []).append(kept)

    # -- loops -----------------------------------------------------------------------------

    def _note_stars(self, token: int, places: int) -> None:
        self._stars[token] = self._stars.get(token, 0) + places

    def _note_opened(self, event: e.LoopOpened) -> None:
        loop = self._net.steps[self._state.tokens[event.token].step].loop
        ordered = loop is not None and loop.window is None
        self._written[event.loop] = written = LoopWrites(event.reducers, ordered=ordered)
        if event.carried is not None:
            self._note_stars(event.token, event.carried.get("redacted", 0))
            written.carry(event.carried)

    def _note_shard(self, event: e.ShardClosed) -> None:
        """What its items wrote, and which of them failed for good."""
        shard = self._state.loops[event.loop].in_flight[event.job]
        failed = _failed_for_good(self._state, event, shard)
        if failed is not None:
            self._failed.setdefault(event.loop, []).append(failed)
        answer = self._state.jobs[event.job].answer
        if event.fault is None and answer is not None and answer.shard is not None:
            self._written[event.loop].take(
                first_item(shard), answer.patches, answer.shard.shared, failed=failed is not None
            )

    def _take_loop(self, token: Token, event: e.TokenFinished, cause: Cause | None) -> None:
        tracker = self._state.loops[token.loop]
        left = self._failed.get(tracker.id, [])
        if cause is not None and cause.how == "asked":
            self._note(token, event, cause)  # all of it is wanted again
            return
        complete = tracker.status == "complete" and cause is None
        if not complete and self._access.steps[token.step].feeds_itself:
            # What later items came to may rest on those that are done again.
            self._note(token, event, cause or Cause("items"))
            return
        carried = _carried(self._state, tracker, left, self._written[tracker.id])
        carried["redacted"] = self._stars.get(token.id, 0)
        self._keep(reuse_key(self._state, token, label=LOOP), Answer(status="ok", result=carried))
        if complete:
            self._note(token, event, None)
            return
        size = tracker.size - tracker.succeeded if tracker.size >= 0 else -1
        why = cause or Cause("items")
        self._again.append(Fate(token.step, token.id, why, tracker.succeeded, size))


def _failed_for_good(state: State, event: e.ShardClosed, shard: Shard) -> Shard | None:
    """The items of a shard that ended in failure and are not tried again."""
    if event.whole:
        return None
    answer = state.jobs[event.job].answer
    only = shard.only
    if event.fault is None and answer is not None and answer.shard is not None:
        only = tuple(f.index for f in answer.shard.failed if f.index not in event.again)
        if not only:
            return None
    return Shard(0, shard.first, shard.count, shard.cursor, only)


def _carried(
    state: State, tracker: Tracker, failed: list[Shard], written: LoopWrites
) -> dict[str, Any]:
    unbegun = [*tracker.given_up, *tracker.in_flight.values(), *tracker.ready, *tracker.again]
    again = [Shard(0, s.first, s.count, s.cursor, s.only) for s in (*failed, *unbegun)]
    return {
        "size": tracker.size,
        "next_index": tracker.next_index,
        "cursor": tracker.cursor,
        "exhausted": tracker.exhausted,
        "succeeded": tracker.succeeded,
        "parts": tracker.parts,
        "source": tracker.source,
        "done": _without(tracker.done, failed),
        "again": msgspec.to_builtins(again),
        "loop": loop_name(state.run, tracker.id),
        **written.to_carry(min(map(first_item, again), default=None)),
    }


def _without(done: list[tuple[int, int]], failed: list[Shard]) -> list[tuple[int, int]]:
    """The finished ranges less the items that failed; both are gone through once, in order."""
    gone = sorted(pair for shard in failed for pair in ranges_of(shard))
    kept: list[tuple[int, int]] = []
    at = 0
    for start, stop in done:
        while at < len(gone) and gone[at][0] < stop:
            if start < gone[at][0]:
                kept.append((start, gone[at][0]))
            start = gone[at][1]
            at += 1
        if start < stop:
            kept.append((start, stop))
    return kept
