"""`run`, `resume` and `redrive`: an engine in this process, until the run has its end."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Collection
from types import ModuleType
from typing import Any

import msgspec

from anabranch import app
from anabranch.errors import AnabranchError, MissingRequirements, Refused, StoreInUse
from anabranch.kernel import stimuli as s
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State
from anabranch.kernel.step import deep_merge
from anabranch.net.net import Net
from anabranch.operations.definitions.prepare import Prepared
from anabranch.runtime.recovery import unfinished
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.ports import Head, HeadFilter
from anabranch.surfaces.cli import stop_signals, values
from anabranch.surfaces.cli.backend.local.audit import note
from anabranch.surfaces.cli.backend.local.backend import backend, who
from anabranch.surfaces.cli.commands.control import control
from anabranch.surfaces.cli.commands.run.orchestrations import definition, session_labels
from anabranch.surfaces.cli.output import render
from anabranch.surfaces.cli.output.exit_codes import EXIT, exit_code, problem_lines
from anabranch.surfaces.cli.output.live import SHOW_CURSOR, LiveView, until_interrupted
from anabranch.surfaces.cli.stop_signals import INTERRUPTED
from anabranch.work.kinds.callables import default_toolbox


class LocalRun:
    """One command's engine, with its signals and its screen."""

    def __init__(self, options: argparse.Namespace, settings: Settings) -> None:
        self.options = options
        if settings.participants:
            values.look_here()  # for the functions that it names
        self.store = open_store(settings)
        try:
            self.parts = app.Parts(self.store, settings, default_toolbox, workers=False)
        except BaseException:
            self.store.close()
            raise
        self.interrupted = asyncio.Event()
        self._began = time.monotonic()
        self._live: LiveView | None = None

    async def __aenter__(self) -> LocalRun:
        cursor = SHOW_CURSOR if sys.stderr.isatty() else ""
        stop_signals.on_stop(self._interrupt, last_words=f"{cursor}stopped at once")
        return self

    def _interrupt(self) -> None:
        self.say("stopping: running jobs are finished or handed back (again to stop at once)")
        self.interrupted.set()

    async def __aexit__(self, *_exc: object) -> None:
        await self.parts.close(self.options.grace)
        self.store.close()

    async def open(self, only: Collection[str] | None) -> None:
        try:
            await self.parts.open(only=only)
        except StoreInUse as error:
            raise StoreInUse(
                f"{error.message}. Reading verbs and decide, patch, pause and cancel work beside it"
            ) from None

    def say(self, text: str) -> None:
        if self._live is not None:
            self._live.clear()
        print(text, file=sys.stderr, flush=True)

    async def follow(self, run: str) -> State | None:
        """Watch the run until it ends or stands still; None when interrupted."""
        ending = asyncio.ensure_future(self.parts.verbs.wait(run, standing=True))
        if await until_interrupted(ending, self.interrupted, self._view(run)):
            return ending.result()
        await self.parts.engine.close(self.options.grace)
        return None

    def _view(self, run: str) -> asyncio.Task[None] | None:
        watch = self.options.watch
        if watch is None:
            dumb = os.environ.get("TERM") == "dumb"
            watch = sys.stderr.isatty() and not dumb and not self.options.json
        if not watch:
            return None
        net = self.net(run)
        self._live = LiveView(net, lambda: self.parts.engine.state(run))
        return asyncio.get_running_loop().create_task(self._live.run())

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

    def report(self, run: str, state: State | None) -> int:
        """Print the end and give the exit code."""
        summary = self.parts.verbs.read.summary(run, state)
        if self.options.json:
            print(render.json_line(summary))
        else:
            seconds = time.monotonic() - self._began
            colour = render.wants_colour()
            print("\n".join(render.summary(summary, seconds, colour=colour)))
        if state is None:
            ended = self.parts.verbs.read.find(run).finished
            self.say(f"interrupted; {'the run has ended' if ended else _go_on(run)}")
            return INTERRUPTED
        return self._left(run, summary, status_of(state))

    def _left(self, run: str, summary: dict[str, Any], status: str) -> int:
        for line in problem_lines(summary):
            self.say(line)
        if status in ("waiting", "paused"):
            waiting = self.parts.verbs.read.explain(run)["waiting"]
            self.say(f"run {run} is left {status}:")
            self.say("\n".join(render.waiting_lines(waiting)))
        return exit_code(status, summary["problems"], lenient=self.options.lenient)


def _remote_run() -> ModuleType:
    """The same verbs at a server; few need it."""
    from anabranch.surfaces.cli.commands.run import remote_run

    return remote_run


def _go_on(run: str) -> str:
    return f"go on with: anabranch resume {run}"


async def run(options: argparse.Namespace, settings: Settings) -> int:
    if settings.server:
        return int(await _remote_run().run(options, settings))
    values.import_tools(options.tools)
    prepared = await definition(options, settings)
    return await start(prepared, options, settings)


async def start(prepared: Prepared, options: argparse.Namespace, settings: Settings) -> int:
    """Run a compiled definition to its end."""
    given = deep_merge(values.file_input(options.input_file), values.pairs(options.input, "input"))
    _warn(prepared.problems)
    async with LocalRun(options, settings) as session:
        session.parts.preflight.require(prepared.net)
        await session.open(only=())
        run_id = await session.parts.verbs.start(
            prepared,
            given,
            run=options.run_id,
            step=options.start,
            labels=session_labels(options),
            allow_extra_input=options.allow_extra_input,
        )
        note(session.store, who(options), "runs.create", run_id)
        _tell_of_others(session, run_id)
        return session.report(run_id, await session.follow(run_id))


def _warn(problems: Collection[Any]) -> None:
    for problem in problems:
        if problem.severity != "note":  # an error that is here has a meaning at run time
            print(problem, file=sys.stderr)


def _tell_of_others(session: LocalRun, run_id: str) -> None:
    """Runs that were left unfinished here are not touched, but not forgotten either."""
    others = [
        head
        for head in session.store.heads(HeadFilter(statuses=("running",), limit=5))
        if head.run != run_id
    ]
    if others and not session.options.json:
        names = ", ".join(f"{head.run} ({head.name})" for head in others)
        session.say(f"unfinished in this store: {names}; `anabranch resume` goes on with them")


async def redrive(options: argparse.Namespace, settings: Settings) -> int:
    if options.dry_run:
        values.import_tools(options.tools)
        async with backend(options, settings) as at:
            plan = await at.plan_redrive(options.run)
        shown = msgspec.to_builtins(plan)
        print(render.json_line(shown) if options.json else "\n".join(render.redrive_lines(plan)))
        return 0
    if settings.server:
        return int(await _remote_run().redrive(options, settings))
    values.require_store(settings)
    values.import_tools(options.tools)
    async with LocalRun(options, settings) as session:
        await session.open(only=())
        origin = session.parts.verbs.read.find(options.run).run
        run_id = await session.parts.verbs.redrive(origin)
        note(session.store, who(options), "runs.redrive", origin)
        session.say(f"run {run_id} redrives {origin}")
        return session.report(run_id, await session.follow(run_id))


async def resume(options: argparse.Namespace, settings: Settings) -> int:
    if settings.server:
        return int(await _remote_run().resume(options, settings))
    values.require_store(settings)
    values.import_tools(options.tools)
    if options.run is None:
        return await _resume_all(options, settings)
    async with LocalRun(options, settings) as session:
        head = session.parts.verbs.read.find(options.run)
        if head.finished:
            raise Refused(f"run {head.run} has ended: {head.status}", code="run_finished")
        if head.status == "paused" and session.store.owner() is not None:
            return await control.resume(options, settings)
        for missing in (await session.missing([head])).values():
            raise missing
        await session.open(only=[head.run])
        if head.status == "paused":
            await session.parts.verbs.send(head.run, s.Resume(options.actor))
        return session.report(head.run, await session.follow(head.run))


async def _resume_all(options: argparse.Namespace, settings: Settings) -> int:
    async with LocalRun(options, settings) as session:
        heads = unfinished(session.store)
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
        return session.report(run, await session.follow(run))
    except AnabranchError as error:
        if error.code == "engine_stopped":
            raise
        session.say(f"anabranch: {error.message}")
        return EXIT["failed"]
