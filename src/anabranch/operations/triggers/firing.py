"""Begins or signals runs for a trigger, through the engine.

Who fires chooses the id of the run, or of the signal: the same for the same call or finished run,
so that firing twice does it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, InputError, NotFound, Refused
from anabranch.operations.definitions.prepare import Prepared
from anabranch.operations.runs.signals import send_signal, signal
from anabranch.operations.runs.verbs import Verbs
from anabranch.operations.schedules.schedule import Target
from anabranch.operations.triggers.rendering import Rendered, rendered
from anabranch.operations.triggers.trigger import LABEL, LABEL_RUN, Trigger
from anabranch.store.ports import HeadFilter, Store
from anabranch.work.evaluations import evaluate

RUNS_MAX = 100  # that one firing signals
UNFINISHED = ("queued", "running", "waiting", "paused")


class TriggerResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    trigger: str
    fired: bool = True  # False: `when` said no, and nothing was done
    run: str | None = None  # that was begun
    signalled: list[str] = []  # runs that were sent the signal
    signal: str | None = None  # its id


class TriggerSource(msgspec.Struct, frozen=True, kw_only=True):
    """What fires: `id` is that of the run or the signal, `run` the one that has finished."""

    id: str | None = None
    run: str = ""
    depth: int = 0
    trace: str = ""


class TriggerFirer:
    def __init__(self, verbs: Verbs, find: Callable[[Target], Prepared]) -> None:
        self._verbs = verbs
        self._find = find

    async def fire(
        self, trigger: Trigger, names: Mapping[str, Any], cause: TriggerSource
    ) -> TriggerResult:
        """Returns once it is durable; what is refused has changed nothing."""
        made = await evaluate(partial(rendered, trigger, names))
        if not made.fires:
            return TriggerResult(trigger=trigger.name, fired=False)
        if trigger.signal is not None:
            return await self._signal(trigger, made, cause)
        return await self._start(trigger, made, cause)

    async def _start(self, trigger: Trigger, made: Rendered, cause: TriggerSource) -> TriggerResult:
        assert trigger.target is not None
        prepared = await asyncio.to_thread(self._find, trigger.target)
        labels = {**made.labels, LABEL: trigger.name}
        if cause.run:
            labels[LABEL_RUN] = cause.run
        try:
            run = await self._verbs.start(
                prepared,
                made.input,
                run=cause.id,
                labels=labels,
                begun_by=cause.run,
                depth=cause.depth,
                trace=cause.trace,
            )
        except InputError as error:
            if error.code != "run_exists" or cause.id is None:
                raise
            run = cause.id  # begun before a crash, or by another server
        return TriggerResult(trigger=trigger.name, run=run)

    async def _signal(
        self, trigger: Trigger, made: Rendered, cause: TriggerSource
    ) -> TriggerResult:
        rules = trigger.signal
        assert rules is not None
        said = signal(
            rules.name,
            made.input,
            actor=f"trigger:{trigger.name}",
            ttl=rules.ttl or None,
            id=cause.id or "",
        )
        runs = await asyncio.to_thread(runs_meant, self._verbs.engine.store, trigger, made)
        for run in runs:
            try:
                await send_signal(self._verbs, run, said)
            except Refused as error:
                if made.run or error.code != "run_finished":  # of several one may end meanwhile
                    raise
        return TriggerResult(trigger=trigger.name, signalled=runs, signal=said.id)


def runs_meant(store: Store, trigger: Trigger, made: Rendered) -> list[str]:
    """The runs that a signal goes to; raises where there is none."""
    if made.run:
        if store.head(made.run) is None:
            raise NotFound(f"there is no run {made.run[:100]!r} to signal", code="no_run")
        return [made.run]
    wanted = HeadFilter(statuses=UNFINISHED, labels=made.run_labels, limit=RUNS_MAX + 1)
    found = [head.run for head in store.heads(wanted)]
    listed = ", ".join(f"{key}={value}" for key, value in made.run_labels.items())
    if not found:
        raise NotFound(f"no unfinished run has the labels {listed[:200]}", code="no_run")
    if len(found) > RUNS_MAX:
        raise InputError(
            f"more than {RUNS_MAX} unfinished runs have the labels {listed[:200]}: the trigger "
            f"{trigger.name} needs labels that mean fewer",
            code="too_many_runs",
        )
    return found


def chain_depth(above: int, most: int) -> int:
    """How many runs began one another; refused where that are too many."""
    if above + 1 > most:
        raise InputError(
            f"it would be run {above + 1:,} in a row that began one another, and child_depth_max "
            f"is {most:,}: a chain that leads back to itself needs an end",
            code="too_deep",
        )
    return above + 1


def refusal_text(error: AnabranchError) -> str:
    return error.message[:300]
