"""Parents and children: what one run has to say to another within the same turn.

The end of a child run and the answer of the job that its parent has parked for it become durable in
one batch; so does the end of a parent's interest and the cancelling of its child. A crash can lose
neither without the other, and there is nothing to send again. A parent that is set aside takes no
answer: the batch of the child's end marks it (`Batch.to_recover`), and the next recovery asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from typing import Any

import msgspec

from anabranch.errors import AnabranchError
from anabranch.ids import can_name_run
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.kernel.summary import child_answer
from anabranch.runtime.live_run import LiveRun, load_state
from anabranch.runtime.messages.codec import RunElsewhere
from anabranch.store.access_ports import RequestRecord
from anabranch.store.ports import Batch, Store

CHILDREN_KEPT = 256
DIGITS_MAX = 18  # of the number of a session: no store has a larger one
PREFIX = 32  # of the id of a run, in those of its children; longer ones are cut


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A stimulus that waits for its turn."""

    run: str
    stimulus: s.Stimulus
    ticket: int = 0  # who wants a reply; 0 is nobody
    message: int = 0  # the message it came in, if it came from another process
    request: RequestRecord | None = None  # what it leaves, written with its effect


class ChildRuns:
    def __init__(
        self,
        store: Store,
        live: Container[str],
        find: Callable[[str], LiveRun],
        actor: str,
    ) -> None:
        self.said: deque[Arrival] = deque()  # for this very turn
        self._store = store
        self._live = live
        self._find = find  # a run, from memory or from the store; raises where there is none
        self._actor = actor  # who ends children that nobody wants any more
        self._ended: dict[str, State] = {}
        #: Parent → child, of the answers of this turn: those that are set aside do not take them.
        self.told: dict[str, str] = {}
        #: Told of every answer of a child to its parent: child, parent, result.
        self.passed_on: Callable[[str, str, Any], None] = lambda _child, _parent, _result: None

    def forget_turn(self) -> None:
        """What was said and which children ended was perhaps never recorded; the store knows."""
        self.said.clear()
        self._ended.clear()
        self.told.clear()

    def say(self, run: str, stimulus: s.Stimulus) -> None:
        self.said.append(Arrival(run, stimulus))

    def wake(self, named: str, wake: s.Wake) -> None:
        """A session is named by its id, or by its number among those of its owner. Any other text
        is what a rule has made: it names nothing, and no store is asked for it."""
        runner = wake.runner or ""
        if not can_name_run(named) or not runner.isprintable():
            return
        run = named
        numeral = named.isdecimal() and len(named) <= DIGITS_MAX
        if numeral and runner and named not in self._live:
            numbered = self._store.session_run(runner.lower(), int(named))
            if numbered is not None and self._store.head(named) is None:
                run = numbered
        self.say(run, wake)

    def tell_parent(self, child: State) -> None:
        """The parked job of the parent has its answer, in the batch that holds the child's end."""
        run, _, job_name = (child.parent or "").partition("/")
        job_id = job_name.partition("#")[0]
        self._ended[child.run] = child
        if len(self._ended) > CHILDREN_KEPT:
            del self._ended[next(iter(self._ended))]
        try:
            job = self._find(run).state.jobs.get(job_id)
        except AnabranchError:  # the parent is gone, or set aside
            self.told[run] = child.run
            return
        if job is not None and job.ticket == child.run:
            self.told[run] = child.run
            self._answer(run, job_id, job.attempt, child)
        # Otherwise it is not parked for it yet, and asks when it is; or no longer wants to know.

    def find_unheard(self, batch: Batch) -> list[str]:
        """Runs that are set aside while what they wait for has ended in this batch: nobody tells
        them again, so the next engine has to ask for them."""
        told, self.told = self.told, {}
        written = {commit.head.run for commit in batch.commits}
        return [
            run
            for run, child in told.items()
            if child in written and run not in written and run not in self._live
        ]

    def ask_child(self, run: str, job: str, attempt: int, ticket: str) -> None:
        """What the job is parked for may have ended without its parent having heard of it."""
        child = self._ended_child(ticket) if can_name_run(ticket) else None
        if child is not None and is_child_of(child, run, job):
            self._answer(run, job, attempt, child)

    def _answer(self, run: str, job: str, attempt: int, child: State) -> None:
        answer = child_answer(child)
        self.passed_on(child.run, run, answer.result)
        self.say(run, s.JobReport(job, attempt, answer))

    def _ended_child(self, run: str) -> State | None:
        if run in self._ended:
            return self._ended[run]
        if run in self._live:
            return None
        head = self._store.head(run)
        if head is None or not head.finished:
            return None
        return load_state(*self._store.read_many([run])[run], run)

    def cancel_child(self, run: str, job: str, ticket: str, reason: str) -> None:
        """Whoever no longer wants the answer ends the child run that was to give it."""
        try:
            child = self._find(ticket).state
        except AnabranchError:
            return  # not a run, or over
        if is_child_of(child, run, job):
            self.say(child.run, s.Cancel(self._actor, reason))


def is_child_of(child: State, run: str, job: str) -> bool:
    return child.parent is not None and child.parent.startswith(f"{run}/{job}#")


def may_be_begun_by_task(run: str) -> bool:
    """By its id alone: those of all others are drawn, without such a letter, or chosen."""
    return "-" in run


def may_be_child(ticket: str, run: str) -> bool:
    """Without a look at the store, which most tickets are not worth: the id of a child is made from
    the key of the job that starts it, and that begins with its run."""
    return bool(ticket) and ticket.startswith(run[:PREFIX])


def require_root(begin: s.Start) -> None:
    """A child begins where its parent is. Its own id does not say which server that is, so it
    cannot be asked for by message."""
    if begin.parent is not None:
        raise RunElsewhere(begin.parent.partition("/")[0])
