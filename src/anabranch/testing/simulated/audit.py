"""The audit: reads what was committed, event by event, and believes nothing.

It keeps a state of its own, built only from the bytes in the log. After every event the laws of the
kernel must hold on it; whenever an engine comes up, and at the end, what that engine has in memory
must be the same to the byte.
"""

from __future__ import annotations

from collections import deque

from anabranch.errors import LawBroken
from anabranch.kernel import events as e
from anabranch.kernel import laws
from anabranch.kernel.evolve import evolve
from anabranch.kernel.explain import Unfinished, explain
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State, encode_state
from anabranch.kernel.timing import next_wake
from anabranch.net.net import Net
from anabranch.runtime.live_run import history
from anabranch.store.ports import Commit, Head, Record

Recent = deque[tuple[str, int, int, e.Event]]  # run, number, instant, event


class Audit:
    """Follows one run. What it has seen last is also kept in `recent`, for whoever has to tell."""

    def __init__(self, net: Net, recent: Recent) -> None:
        self.net = net
        self.state = State()  # what the committed events add up to
        self._recent = recent
        self._witness = laws.Witness()
        self._started: dict[str, int] = {}  # job → its latest attempt that began
        self._executed: set[tuple[str, int]] = set()

    # -- every event -------------------------------------------------------------------------

    def committed(self, commit: Commit) -> list[e.Event]:
        """Check one row of the log; returns its events."""
        if commit.head.seq - commit.count != self.state.seq:
            raise LawBroken(f"the log ends at {self.state.seq}, the commit at {commit.head.seq}")
        events = e.decode_events(commit.events)
        for event in events:
            self._recent.append((commit.head.run, self.state.seq + 1, commit.at, event))
            self._attempts(event)
            evolve(self.state, event, commit.at)
            self._witness.see(event)
            laws.check(self.state)
        laws.check_rest(self.state)
        self._witness.agrees(self.state)
        self._head(commit.head)
        return events

    def _attempts(self, event: e.Event) -> None:
        """An attempt begins once, and what is said of it is said of the one that began last."""
        match event:
            case e.JobStarted():
                _demand(
                    event.attempt > self._started.get(event.job, 0),
                    f"attempt {event.attempt} of job {event.job} was started twice",
                )
                self._started[event.job] = event.attempt
            case e.JobReported() | e.JobParked() | e.JobTimedOut() | e.JobLost():
                _demand(
                    event.attempt == self._started.get(event.job),
                    f"{e.kind_of(event)} for attempt {event.attempt} of job {event.job}, "
                    f"which began {self._started.get(event.job)}",
                )
            case _:
                pass

    def _head(self, head: Head) -> None:
        state = self.state
        said = (head.seq, head.status, head.next_wake, head.finished)
        wake = None if state.finished else next_wake(state)
        is_so = (state.seq, status_of(state), wake, state.finished)
        _demand(said == is_so, f"the head says {said}, the log says {is_so}")

    # -- effects -----------------------------------------------------------------------------

    def executed(self, job: str, attempt: int) -> None:
        """An execution left the engine: its start is on disk, and it leaves only once."""
        _demand(
            self._started.get(job, 0) >= attempt,
            f"attempt {attempt} of job {job} was sent out before its start was durable",
        )
        _demand((job, attempt) not in self._executed, f"{job}#{attempt} was sent out twice")
        self._executed.add((job, attempt))

    # -- now and then ------------------------------------------------------------------------

    def same(self, state: State, where: str) -> None:
        _demand(
            encode_state(state) == encode_state(self.state),
            f"{where} differs from what the log adds up to",
        )

    def whole_log(self, records: list[Record]) -> None:
        """Gapless, every token made once, and it replays to the state at its end."""
        expected = 1
        for record in records:
            _demand(record.first_seq == expected, f"the log has a gap before {record.first_seq}")
            expected += record.count
        pairs = history(records)
        tokens = [event.token for _, event in pairs if isinstance(event, e.TokenCreated)]
        _demand(len(set(tokens)) == len(tokens), "a token was created twice")
        laws.check_replay(pairs, self.state)

    def rests_rightly(self) -> list[Unfinished]:
        """A run that stands still says for what, and who can move it."""
        waits = explain(self.net, self.state)
        _demand(
            bool(waits), f"the run stands still as {status_of(self.state)} and waits for nothing"
        )
        for wait in waits:
            movable = bool(wait.movers) or wait.until is not None
            _demand(
                movable or wait.what in ("run", "gather"),
                f"no actor can move {wait.what} {wait.id} at {wait.step}: it waits for "
                f"{wait.waits_for}",
            )
        return waits


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LawBroken(otherwise)
