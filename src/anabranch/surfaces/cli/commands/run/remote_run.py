"""`run`, `resume` and `redrive` at a server: it does the work, this process only watches.

Interrupting the watching does not interrupt the run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from anabranch.cancel import cancel_and_wait
from anabranch.errors import AnabranchError, DefinitionError, InputError, Refused
from anabranch.kernel import stimuli as s
from anabranch.kernel.step import deep_merge
from anabranch.net.problems import Problem
from anabranch.operations.definitions.catalog import SUFFIXES, wanted
from anabranch.settings import Settings
from anabranch.surfaces.cli import stop_signals, values
from anabranch.surfaces.cli.backend.http.backend import (
    HttpBackend,
    http_backend,
    posted,
    renamed,
    sendable,
)
from anabranch.surfaces.cli.backend.local.backend import Row, who
from anabranch.surfaces.cli.backend.workflows import HttpWorkflowBackend
from anabranch.surfaces.cli.commands.run.orchestrations import definition, session_labels
from anabranch.surfaces.cli.output import render
from anabranch.surfaces.cli.output.exit_codes import exit_code, problem_lines
from anabranch.surfaces.cli.output.live import Screen, until_interrupted
from anabranch.surfaces.cli.stop_signals import INTERRUPTED
from anabranch.surfaces.client import Client

WAIT_SECONDS = 30
LOOK_SECONDS = 0.5
NO_ROOM = ("too_many_at_once", "too_many_streams")
NO_ROOM_SECONDS = 2.0
#: What `run --json` prints, of all that a server tells about a run.
SUMMARY = ("run", "name", "dialect", "status", "result", "steps", "joins", "problem", "problems",
           "failures", "session", "joins_dropped")  # fmt: skip


class RemoteRun:
    """One command's look at one run."""

    def __init__(self, options: argparse.Namespace, target: HttpBackend) -> None:
        self.options = options
        self.target = target
        self._began = time.monotonic()
        self._view: RemoteView | None = None
        self._interrupted = asyncio.Event()
        stop_signals.on_stop(self._interrupted.set)

    def say(self, text: str) -> None:
        if self._view is not None:
            self._view.clear()
        print(text, file=sys.stderr, flush=True)

    async def to_its_end(self, run: str) -> int:
        """Until it has ended or only somebody can move it; prints it, gives the exit code."""
        waiting = asyncio.ensure_future(self._settled(run))
        if await until_interrupted(waiting, self._interrupted, self._viewing(run)):
            waiting.result()
            return self._report(await self.target.show(run))
        self._report(await self.target.show(run))
        self.say(f"interrupted; the server goes on with it: anabranch events {run} --follow")
        return INTERRUPTED

    async def _settled(self, run: str) -> None:
        await settled(self.target.client, run)

    def _viewing(self, run: str) -> asyncio.Task[None] | None:
        watch = self.options.watch
        if watch is None:
            dumb = os.environ.get("TERM") == "dumb"
            watch = sys.stderr.isatty() and not dumb and not self.options.json
        if not watch:
            return None
        self._view = RemoteView(self.target, run)
        return asyncio.get_running_loop().create_task(self._view.run())

    def _report(self, shown: Row) -> int:
        summary = {key: shown[key] for key in SUMMARY if key in shown}
        if self.options.json:
            print(render.json_line(summary))
        else:
            seconds = time.monotonic() - self._began
            print("\n".join(render.summary(summary, seconds, colour=render.wants_colour())))
        status = shown["status"]
        for line in problem_lines(summary):
            self.say(line)
        if status in ("waiting", "paused"):
            self.say(f"run {shown['run']} is left {status}:")
            self.say("\n".join(render.waiting_lines(shown["waiting"])))
        return exit_code(status, shown["problems"], lenient=self.options.lenient)


async def settled(client: Client, run: str) -> None:
    """When it has ended, or only somebody can move it. A server that has no room for one more who
    waits is asked now and then instead: too many who wait elsewhere end no command."""
    seconds = WAIT_SECONDS
    while True:
        try:
            asked = {"seconds": seconds, "standing": "true"}
            if (await client.get("runs", run, "wait", **asked))["settled"]:
                return
            seconds = WAIT_SECONDS
        except AnabranchError as error:
            if error.code not in NO_ROOM:
                raise
            await asyncio.sleep(NO_ROOM_SECONDS)
            seconds = 0


class RemoteView(Screen):
    """The live view, of what the server tells every half second."""

    def __init__(self, target: HttpBackend, run: str) -> None:
        super().__init__()
        self._target, self._run = target, run
        self._shown: Row | None = None

    async def run(self) -> None:
        looking = asyncio.ensure_future(self._look())
        try:
            await super().run()
        finally:
            await cancel_and_wait(looking)

    async def _look(self) -> None:
        while True:
            self._shown = await self._target.show(self._run)
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
    given = deep_merge(values.file_input(options.input_file), values.pairs(options.input, "input"))
    labels = session_labels(options)
    async with http_backend(options, settings) as target:
        if (kept := _in_catalog(options)) is not None:
            return await _begun(options, target, {**kept, "input": given, "labels": labels}, [])
        text, file = await _definition(options, settings)
        problems = await target.problems(text, file)
        body = {**posted(text, file), "input": given, "labels": labels}
        try:
            return await _begun(options, target, body, problems)
        except DefinitionError as error:
            raise renamed(error, file) from None


async def run_template(
    options: argparse.Namespace, settings: Settings, parameters: dict[str, Any]
) -> int:
    """A run of a template that the server keeps."""
    async with http_backend(options, settings) as target:
        kept = HttpWorkflowBackend(target.client)
        _, problems = await kept.materialise(options.id, parameters, options.kept)
        given = values.file_input(options.input_file)
        body = {
            "template": options.id,
            "version": options.kept,
            "parameters": parameters,
            "input": deep_merge(given, values.pairs(options.input, "input")),
            "labels": session_labels(options),
        }
        return await _begun(options, target, body, problems)


async def _begun(
    options: argparse.Namespace, target: HttpBackend, body: Row, problems: list[Problem]
) -> int:
    """Begin the run, say what is worth a look, and watch it to its end."""
    watch = RemoteRun(options, target)
    if options.start:
        body["start"] = options.start
    if options.run_id:
        body["run"] = options.run_id
    if options.allow_extra_input:
        body["allow_extra_input"] = True
    begun = await target.client.post("runs", body=body, once=True)
    for problem in problems:
        if problem.severity != "note":
            print(problem, file=sys.stderr)
    return await watch.to_its_end(begun["run"])


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
    async with http_backend(options, settings) as target:
        watch = RemoteRun(options, target)
        begun = await target.client.post("runs", options.run, "redrive", body={}, once=True)
        watch.say(f"run {begun['run']} redrives {begun['origin']}")
        return await watch.to_its_end(begun["run"])


async def resume(options: argparse.Namespace, settings: Settings) -> int:
    if options.rpc is not None:
        said = "the server asks its own node: start it with the setting chain_url, leave --rpc out"
        raise InputError(said, code="usage")
    async with http_backend(options, settings) as target:
        watch = RemoteRun(options, target)
        if options.run is None:
            watch.say("the server goes on with its runs by itself (name one to resume it)")
            return 0
        shown = await target.show(options.run)
        if shown["finished_at"] is not None:
            raise Refused(f"run {shown['run']} has ended: {shown['status']}", code="run_finished")
        if shown["status"] == "paused":
            await target.say(shown["run"], s.Resume(who(options)))
        return await watch.to_its_end(shown["run"])
