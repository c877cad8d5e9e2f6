"""What came of a play: everything a test may want to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import InputError
from anabranch.kernel import events as e
from anabranch.kernel.state import State
from anabranch.net.problems import did_you_mean
from anabranch.operations.read.event_view import SHOWN_KINDS
from anabranch.operations.read.waiting import Waiting


@dataclass(frozen=True, slots=True)
class PlayedEvent:
    """One recorded event. `event["step"]` is short for `event.fields["step"]`."""

    seq: int
    at: float  # virtual seconds since the run started
    kind: str  # such as "job.started"
    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __str__(self) -> str:
        fields = " ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"#{self.seq} {self.at:.3f}s {self.kind} {fields}".rstrip()


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One step over the whole run."""

    name: str
    runs: int = 0
    status: str | None = None  # of the last run; None when it never ran
    statuses: Sequence[str] = ()  # of each run, in creation order
    result: Any = None  # the last one
    state: str | None = None  # the status of the last run in a word for people: queued, retrying …
    outcome: str = ""  # of a rule: valid or invalid
    by_error: str = ""  # the error that made the rule say no, where one did


@dataclass(frozen=True, slots=True, repr=False)
class Played:
    """A run in virtual time, as it stood when nothing could move it any more."""

    run: str
    status: str  # a terminal status, or "waiting", or "paused"
    result: Any
    steps: dict[str, dict[str, Any]]  # those that ran, as `run --json` prints them
    joins: list[dict[str, Any]]
    events: list[PlayedEvent]
    seconds: float  # virtual
    problem: dict[str, Any] | None
    waiting: list[Waiting]  # what an unfinished run waits for
    unscripted: list[str]  # steps that would have reached outside and were given `None`
    state: State
    session: dict[str, Any] | None = None  # of an orchestration: its processes by state
    _known: Sequence[str] = field(default=())

    def step(self, name: str) -> PlayedStep:
        """One step, also if it never ran; InputError for a name the definition does not have."""
        if name not in self._known:
            hint = did_you_mean(name, self._known)
            raise InputError(f"there is no step {name!r}" + (f": {hint}" if hint else ""))
        return PlayedStep(name, **self.steps.get(name, {}))

    def events_of(self, kind: str) -> list[PlayedEvent]:
        """The events of one kind, such as `token.finished`."""
        if kind not in _KINDS:
            hint = did_you_mean(kind, _KINDS)
            raise InputError(f"there is no kind of event {kind!r}" + (f": {hint}" if hint else ""))
        return [event for event in self.events if event.kind == kind]

    def __repr__(self) -> str:
        parts = [self.status, f"{self.seconds:g}s"]
        parts += [
            name + (f"×{step['runs']}" if step["runs"] > 1 else "") + f":{step['status']}"
            for name, step in self.steps.items()
        ]
        if self.problem is not None:
            parts.append(f"problem={self.problem['message']!r}")
        parts += [f"waits({wait.step or wait.what}: {wait.waits_for})" for wait in self.waiting]
        return f"<Played {' '.join(parts)}>"


_KINDS = frozenset((*(str(kind.__struct_config__.tag) for kind in e.Event.__args__), *SHOWN_KINDS))
