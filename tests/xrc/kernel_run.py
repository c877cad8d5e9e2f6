"""The kernel, driven by the oracle's actions, and seen in the oracle's words."""

from __future__ import annotations

from typing import Any

from anabranch.errors import Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State, Token
from anabranch.kernel.step import step
from anabranch.kernel.values import Answer, aborted, cancels_run, failed, succeeded
from anabranch.net.net import Net

from .oracle import Action

START = 1_000
_STATES = {"joining": "open", "running": "running"}


class KernelRun:
    """One session in the kernel. An action that does not fit changes nothing here either."""

    def __init__(
        self, net: Net, start: str, payload: dict[str, Any] | None = None, **more: Any
    ) -> None:
        self.net = net
        self.at = START
        self.state = State()
        self.rows: list[tuple[int, list[e.Event]]] = []
        self.ended: dict[int, str] = {}
        self.selected: dict[int, list[int]] = {}
        self.late: dict[int, list[int]] = {}
        self._delivered: dict[tuple[str, int], int] = {}
        self.send(s.Start(run="7", step=start, input=payload or {}, **more))

    def send(self, stimulus: s.Stimulus) -> None:
        try:
            events = self.decide(stimulus)
        except Refused:
            return
        self.rows.append((self.at, events))
        for event in events:
            self._note(event)

    def decide(self, stimulus: s.Stimulus) -> list[e.Event]:
        return step(self.net, self.state, stimulus, self.at)

    def _note(self, event: e.Event) -> None:
        match event:
            case e.TokenFinished():
                self.ended[event.token] = event.ending
            case e.Delivered():
                self._delivered[event.gather, event.slot] = int(event.producer)
            case e.GatherSettled() if event.verdict == "closed":
                chosen = [self._delivered[event.gather, slot] for slot in event.selected]
                self.selected[int(event.gather[1:])] = chosen
            case e.DeliveryLate():
                self.late.setdefault(int(event.gather[1:]), []).append(int(event.producer))
            case _:
                pass

    # -- the actions -----------------------------------------------------------------------------

    def act(self, action: Action) -> None:
        match action:
            case ("start", pid):
                self._job(pid, s.JobStart)
            case ("tick", ms):
                self.at += ms
                self.send(s.Tick())
            case ("wake", int() as pid, payload):
                self.send(s.Wake(token=pid, payload=payload))
            case ("wake", where, payload):
                self.send(s.Wake(step=where, payload=payload))
            case ("kill",):
                self.send(s.Cancel(actor="owner"))
            case (_, pid, *_):
                self._job(pid, s.JobReport, _answer(action))

    def _job(self, pid: int, stimulus: Any, *more: Any) -> None:
        job = self.state.jobs.get(f"{pid}.0")
        if job is not None:
            self.send(stimulus(job.id, job.attempt, *more))

    # -- what is compared ------------------------------------------------------------------------

    def seen(self, pid: int) -> tuple[Any, ...]:
        """Step, group, state and payload while it lives; the way it ended afterwards."""
        token = self.state.tokens.get(pid)
        if token is None:
            return (self.ended.get(pid, "unknown"),)
        return (token.step, token.scope, _state(token), self.whole(token.payload))

    def whole(self, payload: Any) -> Any:
        """The payload as a rule reads it."""
        return payload

    def verdict(self) -> str:
        if not self.state.finished:
            return "alive"
        if status_of(self.state) == "cancelled":
            return "killed"
        return "finished_with_aborts" if self.state.counts.aborted else "done"


def _state(token: Token) -> str:
    return _STATES.get(token.phase, "waiting")


def _answer(action: Action) -> Answer:
    match action:
        case ("finish", _, outcome, result, wait_ms):
            return succeeded(result, outcome=outcome, wait_ms=wait_ms)
        case ("error", _):
            return failed("cel", "a hard error", retryable=False)
        case ("abort", _):
            return aborted("abort_step", "abortStep")
        case ("cancel", _):
            return cancels_run("cancel_session", "cancelSession")
    raise AssertionError(action)
