"""`run`, `resume` and `redrive` at a server: it does the work, this process only watches.

Interrupting the watching does not interrupt the run.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch.cancel import cancel_and_wait
from anabranch.errors import DefinitionError, InputError, Refused
from anabranch.kernel import stimuli as s
from anabranch.net.problems import Problem
from anabranch.operations.definitions.catalog import SUFFIXES, wanted
from anabranch.settings import Settings
from anabranch.surfaces.cli import stop_signals
from anabranch.surfaces.cli.backend.http.backend import http_backend
from anabranch.surfaces.cli.backend.http.definitions import posted, renamed, sendable
from anabranch.surfaces.cli.backend.http.runs import HttpRunBackend
from anabranch.surfaces.cli.backend.identity import who
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.cli.commands.run.followed_run import (
    FollowedRun,
    given_again,
    given_input,
    warn,
)
from anabranch.surfaces.cli.commands.run.orchestrations import definition, session_labels
from anabranch.surfaces.cli.output import render
from anabranch.surfaces.cli.output.live import Screen
from anabranch.surfaces.cli.stop_signals import INTERRUPTED
from anabranch.surfaces.client import ServerError

LOOK_SECONDS = 0.5


class RemoteRun(FollowedRun):
    """One command's look at a run of a server."""

    def __init__(self, options: argparse.Namespace, runs: HttpRunBackend) -> None:
        super().__init__(options)
        self._runs = runs
        stop_signals.on_stop(self.interrupted.set)

    async def to_its_end(self, run: str) -> int:
        try:
            return await super().to_its_end(run)
        except ServerError:
            self.say(f"run {run} goes on when the server is back: anabranch events {run} --follow")
            raise

    async def _settled(self, run: str) -> None:
        await self._runs.settled(run)

    async def _shown(self, run: str) -> Row:
        return await self._runs.show(run)

    async def children(self, run: str) -> list[Row]:
        children: list[Row] = (await self._runs.explain(run))["children"]
        return children

    async def _leave(self, run: str) -> int:
        self.report(await self._runs.show(run))
        self.say(f"interrupted; the server goes on with it: anabranch events {run} --follow")
        return INTERRUPTED

    def _new_screen(self, run: str) -> Screen:
        return RemoteView(self._runs, run)


class RemoteView(Screen):
    """The live view, of what the server tells every half second."""

    def __init__(self, runs: HttpRunBackend, run: str) -> None:
        super().__init__()
        self._runs, self._run = runs, run
        self._shown: Row | None = None

    async def run(self) -> None:
        looking = asyncio.ensure_future(self._look())
        try:
            await super().run()
        finally:
            await cancel_and_wait(looking)

    async def _look(self) -> None:
        while True:
            self._shown = await self._runs.show(self._run)
            await asyncio.sleep(LOOK_SECONDS)

    def _lines(self, height: int) -> list[str]:
        shown, now = self._shown, int(time.time() * 1000)
        if shown is None:
            return []
        going = sum(one["status"] == "running" for one in shown["steps"].values())
        lasted = render.duration(max(0, now - shown["created_at"]) / 1000)
        head = f"{self._spin()} {shown['name']} ({shown['run']})  {shown['status']}  {lasted}"
        head += f"  {shown['events']} events, {going} steps at work"
        lines = render.step_lines(shown["steps"], colour=render.wants_colour(self._out))
        lines += render.loop_lines([one for one in shown["loops"] if one["status"] == "open"])
        below = render.waiting_lines(shown["waiting"][:6], now)
        room = max(1, height - 1 - len(below))
        return [head, *lines[-room:], *below]


async def run(options: argparse.Namespace, settings: Settings) -> int:
    given, labels = given_input(options), session_labels(options)
    async with http_backend(options, settings) as target:
        if (kept := _in_catalog(options)) is not None:
            return await _begun(options, target.runs, {**kept, **given, "labels": labels}, [])
        text, file = await _definition(options, settings)
        problems = await target.definitions.problems(text, file)
        body = {**posted(text, file), **given, "labels": labels}
        try:
            return await _begun(options, target.runs, body, problems)
        except DefinitionError as error:
            raise renamed(error, file) from None


async def run_template(
    options: argparse.Namespace, settings: Settings, parameters: Mapping[str, Any]
) -> int:
    """A run of a template that the server keeps."""
    async with http_backend(options, settings) as target:
        _, problems = await target.templates.materialise(options.id, parameters, options.kept)
        body = {
            "template": options.id,
            "version": options.kept,
            "parameters": parameters,
            **given_input(options),
            "labels": session_labels(options),
        }
        return await _begun(options, target.runs, body, problems)


async def _begun(
    options: argparse.Namespace, runs: HttpRunBackend, body: Row, problems: list[Problem]
) -> int:
    """Begin the run, say what is worth a look, and watch it to its end."""
    watch = RemoteRun(options, runs)
    if options.start:
        body["start"] = options.start
    if options.run_id:
        body["run"] = options.run_id
    if options.priority is not None:
        body["priority"] = options.priority
    if options.allow_extra_input:
        body["allow_extra_input"] = True
    begun = await runs.start(body)
    warn(problems)
    return await watch.to_its_end(begun)


def _in_catalog(options: argparse.Namespace) -> dict[str, Any] | None:
    """What to ask the server for by its path; None where a file of this machine is meant."""
    if options.catalog is not None:
        said = "the server has a catalog of its own: give --catalog to `anabranch serve`"
        raise InputError(said, code="usage")
    if options.registry or options.file in (None, "-") or Path(options.file).exists():
        return None
    asked = wanted(options.file)
    if not asked.only_here and asked.path.endswith(SUFFIXES):
        return None  # it is said that there is no such file
    if asked.id is not None:
        return {"catalog_id": asked.id}
    return {"path": asked.path, **({"version": asked.version} if asked.version else {})}


async def _definition(options: argparse.Namespace, settings: Settings) -> tuple[str, str]:
    """What to send, and what its file is called here."""
    if options.registry or options.ostc or options.file is None:
        prepared = await definition(options, settings)  # or it says what is missing
        return prepared.definition.source, "-"  # what was chosen or loaded has no file
    text = sendable(options.file, options.rules)
    if text is None:
        await definition(options, settings)  # raises, and says what is wrong with the file
        raise InputError(f"{options.file} is not text", code="no_file")
    return text, options.file


async def redrive(options: argparse.Namespace, settings: Settings) -> int:
    secrets = given_again(options)
    async with http_backend(options, settings) as target:
        watch = RemoteRun(options, target.runs)
        begun = await target.runs.redrive(
            options.run, options.from_step, again=options.again, secrets=secrets
        )
        watch.say(f"run {begun['run']} redrives {begun['origin']}")
        return await watch.to_its_end(begun["run"])


async def resume(options: argparse.Namespace, settings: Settings) -> int:
    if options.rpc is not None:
        said = "the server asks its own node: start it with the setting chain_url, leave --rpc out"
        raise InputError(said, code="usage")
    async with http_backend(options, settings) as target:
        watch = RemoteRun(options, target.runs)
        if options.run is None:
            watch.say("the server goes on with its runs by itself (name one to resume it)")
            return 0
        shown = await target.runs.show(options.run)
        if shown["finished_at"] is not None:
            raise Refused(f"run {shown['run']} has ended: {shown['status']}", code="run_finished")
        if shown["status"] == "paused":
            await target.runs.say(shown["run"], s.Resume(who(options)))
        return await watch.to_its_end(shown["run"])
