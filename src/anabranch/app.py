"""The composition root: settings → store → runtime → operations. Only here are parts chosen.

`Engine` is what programs embed; `run` is the one-liner for scripts and notebooks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal
from warnings import warn
from weakref import finalize

import msgspec

from anabranch import settings as config
from anabranch.anywhere import run_anywhere
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.literals import Reducer
from anabranch.operations.access.credentials import Credentials
from anabranch.operations.definitions.prepare import (
    Prepared,
    Rules,
    Source,
    path_in,
    prepare,
)
from anabranch.operations.read.event_view import EventRecord
from anabranch.operations.read.reader import Reader
from anabranch.operations.runs.signals import SignalSent, send_signal, signal
from anabranch.operations.runs.verbs import decision, patches, skipping
from anabranch.parts import Parts
from anabranch.pools.given import Pools, options_of
from anabranch.run_result import RunResult as RunResult
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.work.kinds.callables import Toolbox, default_toolbox

if TYPE_CHECKING:
    from anabranch.operations.definitions.aliases import Aliases
    from anabranch.operations.definitions.catalog import Catalog
    from anabranch.operations.participants import Participants
    from anabranch.operations.runs.redrive_plan import RedrivePlan
    from anabranch.operations.schedules.schedules import Schedules
    from anabranch.operations.sessions.sessions import Sessions
    from anabranch.operations.triggers.triggers import Triggers

#: The tools registered with `@anabranch.tool`.
tool = default_toolbox.tool


class Engine:
    """A durable engine inside your program.

    Open it with `async with`. It owns its store: one engine per file. Unfinished runs that it finds
    there go on by themselves. Several thousand runs at once are fine. On PostgreSQL it is one
    server among others: it owns a share of the runs, and answers for all of them.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        toolbox: Toolbox | None = None,
        participants: Participants | None = None,
        pools: Pools | None = None,
        schedules: bool = True,
    ) -> None:
        """`pools` names those that a compute cluster does: `{"heavy": "dask://host:8786"}`. Without
        `schedules` those of the store, and its triggers, begin no runs here."""
        chosen = settings or config.from_environment()
        self._settings = replace(chosen, store=os.fspath(store)) if store is not None else chosen
        self._toolbox = toolbox if toolbox is not None else default_toolbox
        self._participants = participants
        self._pools = options_of(pools, self._settings)
        self._with_schedules = schedules
        self._parts: Parts | None = None
        self._drop: finalize[[Parts, asyncio.AbstractEventLoop], Engine] | None = None

    async def __aenter__(self) -> Engine:
        store = open_store(self._settings)
        try:
            parts = self._parts = Parts(
                store,
                self._settings,
                self._toolbox,
                self._participants,
                workers=False,
                pools=self._pools,
            )
            await parts.open()
            if self._with_schedules:
                parts.scheduling.begin()
                parts.triggering.begin()
        except BaseException:
            store.close()
            raise
        self._drop = finalize(self, _abandon, parts, asyncio.get_running_loop())
        self._drop.atexit = False
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._drop is not None:
            self._drop.detach()
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.close()
            parts.store.close()

    @property
    def _open(self) -> Parts:
        if self._parts is None:
            raise RuntimeError("the engine is not open: use it as `async with Engine(...)`")
        return self._parts

    @property
    def read(self) -> Reader:
        """Listing, showing and explaining runs."""
        return self._open.verbs.read

    @property
    def catalog(self) -> Catalog:
        """Definitions by path, in versions."""
        return self._open.catalog

    @property
    def schedules(self) -> Schedules:
        """Runs that begin by the clock."""
        return self._open.scheduling.schedules

    @property
    def triggers(self) -> Triggers:
        """Runs that begin because something happened elsewhere."""
        return self._open.triggering.triggers

    @property
    def aliases(self) -> Aliases:
        """Names that lead to a version of the catalog."""
        return self._open.triggering.aliases

    @property
    def credentials(self) -> Credentials:
        """What definitions ask for by name: kept encrypted, and never shown."""
        return self._open.credentials

    @property
    def sessions(self) -> Sessions:
        """The runs of orchestrations as sessions: processes, receipts, wake-ups, kill."""
        return self._open.sessions

    async def start(
        self,
        definition: Source | Prepared,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word users know
        *,
        run: str | None = None,
        step: str | None = None,
        labels: Mapping[str, str] | None = None,
        rules: Rules | None = None,
        allow_extra_input: bool = False,
        priority: int | None = None,
    ) -> str:
        """Begin a run; returns its id once it is durable.

        `rules` are those of an orchestration: a folder, a bundle, or a mapping by alias or address.
        Its labels `owner` and `max_gas` say whose session it is and what it may use up.
        Input that the definition has no use for is refused unless `allow_extra_input` is set.
        A text that is no definition names a file, or a path of the catalog.
        """
        if isinstance(definition, str) and path_in(definition) is not None and rules is None:
            definition = await self._open.find_definition(definition)
        return await self._open.verbs.start(
            definition, input, run=run, step=step, labels=labels, rules=rules,
            allow_extra_input=allow_extra_input, priority=priority,
        )  # fmt: skip

    async def wait(self, run: str, *, standing: bool = False) -> RunResult:
        """The run when it has finished; with `standing` also when only somebody can move it."""
        state = await self._open.verbs.wait(run, standing=standing)
        return self._result(run, state)

    def _result(self, run: str, state: State) -> RunResult:
        return RunResult(**self.read.summary(run, state))

    async def decide(
        self,
        run: str,
        gate: str,
        verdict: Literal["fulfil", "reject", "ask_again"],
        *,
        actor: str = "",
        reason: str = "",
        evidence: Any = None,
        override: bool = False,
    ) -> None:
        """Answer an open gate, by its id or its step.

        Where a declared source decides, `ask_again` asks it once more and `override` answers in its
        place.
        """
        said = decision(gate, verdict, actor, reason, evidence, override=override)
        await self._open.verbs.send(run, said)

    async def patch(
        self, run: str, values: Mapping[str, Any], *, reducer: Reducer = "set", actor: str = ""
    ) -> None:
        """Write to the context of the run; tokens held by admission are looked at again."""
        await self._open.verbs.send(run, s.PatchContext(patches(values, reducer), actor))

    async def signal(
        self,
        run: str,
        name: str,
        payload: Any = None,
        *,
        actor: str = "",
        ttl: float | str | None = None,
        id: str = "",  # noqa: A002 - the word users know
    ) -> SignalSent:
        """Send a signal to the run: a wait for this name takes it, or the run keeps it for one.

        `ttl` is how long it is kept: seconds, or text such as "1h"; without it, until the run ends.
        Sent again with the same `id` it is the same signal.
        """
        said = signal(name, payload, actor=actor, ttl=ttl, id=id)
        return await send_signal(self._open.verbs, run, said)

    async def pause(self, run: str, *, actor: str = "", reason: str = "") -> None:
        """Begin no further work of the run; what is out may finish."""
        await self._open.verbs.send(run, s.Pause(actor, reason))

    async def resume(self, run: str, *, actor: str = "") -> None:
        """Go on with a paused run."""
        await self._open.verbs.send(run, s.Resume(actor))

    async def cancel(self, run: str, *, actor: str = "", reason: str = "") -> None:
        """End the run: work that is out is told to stop, and nothing else begins."""
        await self._open.verbs.send(run, s.Cancel(actor, reason))

    async def retry(
        self, run: str, step: str, *, token: int = 0, actor: str = "", reason: str = ""
    ) -> None:
        """Try a step now that waits for its next try; `token` picks one of several runs of it."""
        await self._open.verbs.send(run, s.RetryNow(step, token, actor, reason))

    async def skip(
        self,
        run: str,
        step: str,
        *,
        token: int = 0,
        result: Any = msgspec.UNSET,
        actor: str = "",
        reason: str = "",
    ) -> None:
        """End a run of a step without its work: as skipped, or with a result as done."""
        await self._open.verbs.send(run, skipping(step, token, actor, reason, result))

    async def redrive(
        self,
        run: str,
        *,
        from_step: str = "",
        again: bool = False,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word users know
    ) -> str:
        """A linked run that redoes what failed and what depends on it, and keeps the rest.

        With `from_step` that step and what depends on it as well, however they ended. A run that
        another redrives already is refused without `again`. `input` are the secret inputs of the
        run once more, which no store keeps.
        """
        return await self._open.verbs.redrive(run, from_step=from_step, again=again, input=input)

    async def plan_redrive(self, run: str, *, from_step: str = "") -> RedrivePlan:
        """What `redrive` would run again, why, and what it would reuse; nothing is begun."""
        return await self._open.verbs.plan_redrive(run, from_step)

    def events(
        self, run: str, after: int = 0, *, tasks: bool = False
    ) -> AsyncIterator[EventRecord]:
        """Every event of the run, from the log and then live, until it has finished. With `tasks`
        also `task.started` and `task.processed`, before the report of their job."""
        return self._open.verbs.events(run, after, tasks=tasks)


def _abandon(parts: Parts, loop: asyncio.AbstractEventLoop) -> None:
    """An engine was dropped while it was open: it does not keep its threads and its store."""
    warn("an Engine was dropped without being closed: use `async with`", ResourceWarning, 2)
    if not loop.is_running():
        parts.abandon()
        return

    async def close() -> None:
        await parts.close(grace_seconds=0)
        parts.store.close()

    def end(closing: asyncio.Task[None]) -> None:
        if closing.cancelled() or closing.exception() is not None:  # the loop ends as well
            parts.abandon()

    def begin() -> None:
        loop.create_task(close()).add_done_callback(end)

    if asyncio._get_running_loop() is loop:
        begin()  # now: it is cancelled with the others if the loop is about to end
    else:
        loop.call_soon_threadsafe(begin)


def run(
    definition: Source,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the word users know
    *,
    store: str | os.PathLike[str] = ":memory:",
    settings: Settings | None = None,
    toolbox: Toolbox | None = None,
    rules: Rules | None = None,
    step: str | None = None,
    participants: Participants | None = None,
    pools: Pools | None = None,
    allow_extra_input: bool = False,
) -> RunResult:
    """Run a definition to its end (or until only somebody can move it) and return the result.

    Without `store` nothing is kept. `rules` are those of an orchestration, `step` is where to start
    instead of the entry, `pools` are those of a cluster. Input without a use is refused by default.
    """
    tools = toolbox if toolbox is not None else default_toolbox
    made = prepare(definition, tools.signatures(), rules)

    async def whole() -> RunResult:
        engine = Engine(
            store, settings=settings, toolbox=toolbox, participants=participants, pools=pools,
            schedules=False,
        )  # fmt: skip
        async with engine:
            begun = await engine.start(made, input, step=step, allow_extra_input=allow_extra_input)
            return await engine.wait(begun, standing=True)

    return run_anywhere(whole())
