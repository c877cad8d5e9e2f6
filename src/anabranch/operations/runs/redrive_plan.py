"""What a redrive of a run begins with, and what it would do, for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, InputError, Refused
from anabranch.kernel.redrive import Fate, Redrive, plan_redrive
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.net.problems import did_you_mean
from anabranch.operations.definitions.inputs import secrets_of_rules
from anabranch.operations.read.reader import Reader
from anabranch.runtime.live_run import history
from anabranch.runtime.values.payloads import resolve
from anabranch.runtime.values.sealing import marks_of
from anabranch.store.ports import Definition, Store


class RunAgain(msgspec.Struct, frozen=True, kw_only=True):
    """A step that runs again. `how` is one of failed, unfinished, items, asked, session, arc, join,
    context, result and again (the final step); `of` is the step or the context key it is about."""

    step: str
    runs: int
    how: str
    of: str = ""
    why: str  # the same as a sentence
    items_kept: int | None = None  # of a loop whose other items are kept
    items_left: int | None = None
    answers_kept: int | None = None  # of a fan-out: whoever gave them is not asked again


class Reused(msgspec.Struct, frozen=True, kw_only=True):
    step: str
    runs: int


class RedrivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a redrive would do. What runs again may change more than this: a step that reads it
    by then runs again as well. `unreached` may run for the first time."""

    run: str
    name: str
    status: str
    again: list[RunAgain]
    reused: list[Reused]
    unreached: list[str]
    redriven_by: list[str] = []  # runs that redrive it already, newest first
    secrets: list[str] = []  # inputs that were secrets, which are not stored: they are given again


class PreparedRedrive(msgspec.Struct, frozen=True):
    run: str
    definition: Definition
    net: Net
    state: State  # as it ended
    redrive: Redrive
    redriven_by: list[str]
    secrets: dict[str, str]  # the marks in its input that stand for secrets, by their names
    sealed: list[str] = []  # the secrets that its rules need, of which its input says nothing

    def plan(self) -> RedrivePlan:
        return RedrivePlan(
            run=self.run,
            name=self.definition.name,
            status=self.state.status,
            again=list(_again(self.redrive.again)),
            reused=[
                Reused(step=step, runs=runs)
                for step, runs in Counter(fate.step for fate in self.redrive.reused).items()
            ],
            unreached=self.redrive.unreached,
            redriven_by=self.redriven_by,
            secrets=sorted([*self.secrets, *self.sealed]),
        )

    def marks(self, given: Mapping[str, Any]) -> dict[str, str]:
        """What the marks of the run stand for, in the words of who gives its secrets again. The
        marks stay: work that reads them keeps its idempotency keys."""
        prefix = self.net.sealed
        odd = [
            name
            for name in given
            if name not in self.secrets and not (prefix and name.startswith(prefix))
        ]
        if odd:
            raise InputError(
                f"run {self.run} is redriven with the input that it had, but for its secrets: "
                f"{odd[0]!r} is none of them",
                code="unknown_input",
            )
        if missing := [name for name in (*self.secrets, *self.sealed) if name not in given]:
            names = ", ".join(map(repr, missing))
            raise InputError(
                f"run {self.run} needs the secrets {names}, which are not stored: give them "
                f"again (`anabranch redrive {self.run} --input {missing[0]}=…`)",
                code="missing_input",
            )
        found: dict[str, str] = {}
        for name, mark in self.secrets.items():
            found |= marks_of(name, mark, given[name])
        return found


def prepare_redrive(read: Reader, run: str, from_step: str = "") -> PreparedRedrive:
    """Reads the whole log: not in the event loop. Refused where there is nothing to do again."""
    store, head = read.store, read.find(run)
    state = read.state(head.run)
    if not state.finished:
        raise Refused(
            f"run {head.run} has not ended; `anabranch resume {head.run}` goes on with it",
            code="not_finished",
        )
    definition = store.definition(head.definition)
    if definition is None:
        raise AnabranchError(f"the definition of run {head.run} is not in the store")
    net = read.net(head)
    if from_step:
        _require_ran(net, state, from_step)
    redrive = plan_redrive(net, history(store.read(head.run), run=head.run), from_step)
    if state.status == "completed" and redrive.idle:
        raise Refused(
            f"nothing in run {head.run} failed, so there is nothing to do again; "
            "`anabranch run` starts its definition again",
            code="nothing_failed",
        )
    before = read.redriven_by([head])[head.run]
    hidden = sorted(net.secret_inputs.intersection(state.sealed))
    secrets = {name: resolve(state.workload[name], store.payload) for name in hidden}
    sealed = secrets_of_rules(net)
    return PreparedRedrive(head.run, definition, net, state, redrive, before, secrets, sealed)


def require_first(store: Store, run: str, new: str | None = None) -> None:
    """Refused where another run than the new one redrives it already: what that did would be done
    twice."""
    redrives = [head for head in store.redrives([run]) if head.run != new]
    if redrives:
        newest = redrives[0]
        raise Refused(
            f"run {run} was redriven already: by {newest.run}, which is {newest.status}. Redrive "
            f"{newest.run} if that failed too, or say that you want it `again`",
            code="redriven",
        )


def _require_ran(net: Net, state: State, step: str) -> None:
    if step not in net.steps:
        hint = did_you_mean(step, net.steps)
        message = f"there is no step {step!r}" + (f"; {hint}" if hint else "")
        raise InputError(message, code="unknown_step")
    if step not in state.steps:
        message = f"step {step} did not run in run {state.run}: there is nothing to begin from"
        raise Refused(message, code="step_not_run")


def _again(fates: Iterable[Fate]) -> Iterable[RunAgain]:
    """One for each step and cause; every loop stands for itself."""
    found: dict[tuple[Any, ...], list[Fate]] = {}
    for fate in fates:
        alone = fate.token if fate.kept or fate.answers else 0
        found.setdefault((fate.step, fate.cause, alone), []).append(fate)
    for (step, cause, _), runs in found.items():
        one = runs[0]
        yield RunAgain(
            step=step,
            runs=len(runs),
            how=cause.how,
            of=cause.of,
            why=cause.text,
            items_kept=one.kept or None,
            items_left=one.left if one.kept and one.left >= 0 else None,
            answers_kept=one.answers or None,
        )
