"""`run`, `resume` and `redrive` at a store: an engine in this process, until the run ends."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from anabranch.errors import AnabranchError, MissingRequirements, Refused, StoreInUse
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.operations.definitions.input_check import read_typed
from anabranch.operations.definitions.prepare import Prepared
from anabranch.parts import Parts
from anabranch.runtime.recovery import unfinished
from anabranch.settings import Settings
from anabranch.store.access_ports import RequestRecord
from anabranch.store.ports import Head, HeadFilter
from anabranch.surfaces.cli import stop_signals, values
from anabranch.surfaces.cli.backend.identity import who
from anabranch.surfaces.cli.backend.local.audit import ACTIONS, AuditLine
from anabranch.surfaces.cli.backend.local.store import LocalStore
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.cli.commands.control import control
from anabranch.surfaces.cli.commands.run.followed_run import LEFT, FollowedRun, given_again, warn
from anabranch.surfaces.cli.commands.run.orchestrations import definition, session_labels
from anabranch.surfaces.cli.output import logs
from anabranch.surfaces.cli.output.exit_codes import EXIT
from anabranch.surfaces.cli.output.live import SHOW_CURSOR, LiveView
from anabranch.surfaces.cli.stop_signals import INTERRUPTED

QUEUED_SECONDS = 2.0  # a run that waits longer for a place says so


@asynccontextmanager
async def local_run(
    options: argparse.Namespace, settings: Settings, *, new: bool = False
) -> AsyncIterator[LocalRun]:
    """With `new` a store that is not there is made."""
    if settings.participants:
        values.look_here()  # for the functions that it names
    local = LocalStore(settings, who(options))
    async with local.parts(new=new, workers=False, grace=options.grace) as parts:
        session = LocalRun(options, parts)
        if settings.pools:
            logs.tell_of_clusters(session.say)
        cursor = SHOW_CURSOR if sys.stderr.isatty() else ""
        stop_signals.on_stop(session.interrupt, last_words=f"{cursor}stopped at once")
        yield session


class LocalRun(FollowedRun):
    """One command's engine, with its signals and its screen."""

    def __init__(self, options: argparse.Namespace, parts: Parts) -> None:
        super().__init__(options)
        self.parts = parts
        self.store = parts.store
        self._end: State | None = None

    @property
    def at_servers(self) -> bool:
        """Whether servers that share the store have its runs, and this process none."""
        member = self.parts.engine.member
        return member is not None and self.store.owner() is not None and member.owns_nothing

    def audit_line(self, action: str, subject: str) -> AuditLine:
        return AuditLine(self.store, who(self.options), action, subject)

    def interrupt(self) -> None:
        self.say("stopping: running jobs finish or are released (again to stop at once)")
        self.interrupted.set()

    async def open(self, only: Collection[str] | None) -> None:
        try:
            await self.parts.open(only=only)
        except StoreInUse as error:
            raise StoreInUse(
                f"{error.message}. Verbs that look at runs, and decide, signal, patch, pause and "
                "cancel, work beside it"
            ) from None

    async def _settled(self, run: str) -> None:
        ending = asyncio.ensure_future(self.parts.verbs.wait(run, standing=True))
        try:
            await asyncio.wait([ending], timeout=QUEUED_SECONDS)
            if not ending.done() and (said := self.parts.verbs.read.queue_place(run)):
                self.say(f"run {run} waits for a place: {said}")
            self._end = await ending
        finally:
            ending.cancel()

    async def _shown(self, run: str) -> Row:
        shown = self._summary(run)
        if shown["status"] in LEFT:
            shown["waiting"] = self.parts.verbs.read.explain(run)["waiting"]
        return shown

    async def children(self, run: str) -> list[Row]:
        return self.parts.verbs.read.begun(run)

    def _summary(self, run: str) -> Row:
        """With when it began and ended, as `show` has it."""
        read = self.parts.verbs.read
        known = self._end is not None and self._end.run == run
        state = self._end if known and self._end is not None else read.state_of(read.find(run))
        ended = state.finished_at or None
        return {**read.summary(run, state), "created_at": state.started_at, "finished_at": ended}

    async def _leave(self, run: str) -> int:
        await self.parts.engine.close(self.options.grace)
        read = self.parts.verbs.read
        self.print_summary(self._summary(run))
        if read.find(run).finished:
            left = "the run has ended"
        elif self.at_servers:
            left = f"the run goes on at {self.store.owner()}"
        else:
            left = f"go on with: anabranch resume {run}"
        self.say(f"interrupted; {left}")
        return INTERRUPTED

    def _new_screen(self, run: str) -> LiveView:
        clusters = self.parts.verbs.read.clusters
        return LiveView(self.net(run), lambda: self.parts.engine.state(run), clusters)

    def net(self, run: str) -> Net:
        return self.parts.verbs.read.net(self.parts.verbs.read.find(run))

    async def missing(self, heads: Collection[Head]) -> dict[str, MissingRequirements]:
        """Which of the runs need what is not here: they would only fail, so they stay untouched."""
        await self.parts.verbs.read.look_at_files(heads)
        found: dict[str, MissingRequirements] = {}
        for head in heads:
            try:
                state = self.parts.verbs.read.state_of(head)
                self.parts.preflight.require_for(self.net(head.run), state)
            except MissingRequirements as missing:
                found[head.run] = missing
            except AnabranchError:
                continue  # it cannot be read; the engine will say so
        return found


async def run(options: argparse.Namespace, settings: Settings) -> int:
    values.import_tools(options.tools)
    prepared = await definition(options, settings)
    return await _start(prepared, options, settings)


async def run_template(
    options: argparse.Namespace, settings: Settings, parameters: Mapping[str, Any]
) -> int:
    from anabranch.surfaces.cli.backend.local.definitions import LocalTemplateBackend

    values.import_tools(options.tools)
    kept = LocalTemplateBackend(LocalStore(settings))
    prepared, _ = kept.prepared(options.id, parameters, options.kept)
    return await _start(prepared, options, settings)


async def _start(prepared: Prepared, options: argparse.Namespace, settings: Settings) -> int:
    """Run a compiled definition to its end."""
    given = read_typed(
        prepared.net,
        values.file_input(options.input_file),
        values.texts(options.input, "input"),
    )
    warn(prepared.problems)
    async with local_run(options, settings, new=True) as session:
        session.parts.preflight.require(prepared.net)
        await session.open(only=())
        run_id = await _begin(session, prepared, given)
        _tell_of_others(session, run_id)
        return await session.to_its_end(run_id)


async def _begin(session: LocalRun, prepared: Prepared, given: Mapping[str, Any]) -> str:
    verbs, options = session.parts.verbs, session.options
    run = session.parts.engine.new_run_id() if options.run_id is None else options.run_id
    line = session.audit_line("runs.create", run)
    with line.follow():
        return await line.send(
            lambda audit: verbs.start(
                prepared,
                given,
                run=run,
                step=options.start,
                labels=session_labels(options),
                allow_extra_input=options.allow_extra_input,
                priority=options.priority,
                request=RequestRecord(audit=audit),
            )
        )


def _tell_of_others(session: LocalRun, run_id: str) -> None:
    """Runs that were left unfinished here are not touched, but not forgotten either."""
    if session.at_servers:
        return  # they are being worked on
    others = [
        head
        for head in session.store.heads(HeadFilter(statuses=("running",), limit=5))
        if head.run != run_id
    ]
    if others and not session.options.json:
        names = ", ".join(f"{head.run} ({head.name})" for head in others)
        session.say(f"unfinished in this store: {names}; `anabranch resume` goes on with them")


async def redrive(options: argparse.Namespace, settings: Settings) -> int:
    values.require_store(settings)
    values.import_tools(options.tools)
    secrets = given_again(options)
    async with local_run(options, settings) as session:
        await session.open(only=())
        origin = session.parts.verbs.read.find(options.run).run
        run_id = await _begin_redrive(session, origin, secrets)
        session.say(f"run {run_id} redrives {origin}")
        return await session.to_its_end(run_id)


async def _begin_redrive(session: LocalRun, origin: str, secrets: Row) -> str:
    verbs, options = session.parts.verbs, session.options
    line = session.audit_line("runs.redrive", origin)
    with line.follow():
        return await line.send(
            lambda audit: verbs.redrive(
                origin,
                from_step=options.from_step,
                again=options.again,
                input=secrets,
                request=RequestRecord(audit=audit),
            )
        )


async def resume(options: argparse.Namespace, settings: Settings) -> int:
    values.require_store(settings)
    values.import_tools(options.tools)
    if options.run is None:
        return await _resume_all(options, settings)
    async with local_run(options, settings) as session:
        head = session.parts.verbs.read.find(options.run)
        if head.finished:
            raise Refused(f"run {head.run} has ended: {head.status}", code="run_finished")
        if head.status == "paused" and session.store.owner() is not None:
            return await control.resume(options, settings)
        family = session.parts.verbs.read.unfinished_family(head.run)
        awaited = [one.head for one in family if one.awaited]
        for missing in (await session.missing([head, *awaited])).values():
            raise missing
        await session.open(only=[head.run, *(one.head.run for one in family)])
        if head.status == "paused":
            await _begin_again(session, head.run)
        return await session.to_its_end(head.run)


async def _begin_again(session: LocalRun, run: str) -> None:
    """With a run that is paused."""
    verbs, said = session.parts.verbs, s.Resume(session.options.actor)
    line = session.audit_line(ACTIONS[s.Resume], run)
    with line.follow():
        await line.send(lambda audit: verbs.send(run, said, RequestRecord(audit=audit)))


async def _resume_all(options: argparse.Namespace, settings: Settings) -> int:
    async with local_run(options, settings) as session:
        heads = list(unfinished(session.store))
        paused = [head.run for head in heads if head.status == "paused"]
        going = [head for head in heads if head.status != "paused"]
        lacking = await session.missing(going)
        runs = [head.run for head in going if head.run not in lacking]
        await session.open(only=runs)
        if paused:
            session.say(f"left paused: {', '.join(paused)} (name one to resume it)")
        for missing in lacking.values():
            session.say(missing.message)
        if not runs:
            session.say("there is nothing to resume")
        codes = [await _resumed(session, run) for run in runs]
        return max([*codes, EXIT["waiting"] if lacking else 0])


async def _resumed(session: LocalRun, run: str) -> int:
    """One run that cannot go on does not keep the others from it."""
    try:
        return await session.to_its_end(run)
    except AnabranchError as error:
        if error.code == "engine_stopped":
            raise
        session.say(f"anabranch: {error.message}")
        return EXIT["failed"]
