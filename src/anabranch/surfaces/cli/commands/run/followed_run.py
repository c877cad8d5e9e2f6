"""Following a run to its end: the view, what is printed, the exit code, wherever it runs."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable

from anabranch.net.problems import Problem
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.cli.output import render
from anabranch.surfaces.cli.output.exit_codes import (
    code_of_children,
    exit_code,
    problem_lines,
    unhandled,
)
from anabranch.surfaces.cli.output.live import Screen, until_interrupted

#: What `run --json` prints, of all that is known about a run.
SUMMARY = ("run", "name", "dialect", "status", "result", "steps", "joins", "problem", "problems",
           "tolerated", "handled", "failures", "session", "joins_dropped", "children")  # fmt: skip
LEFT = ("waiting", "paused")
NAMED = 5  # children


class FollowedRun:
    """One command's look at one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.interrupted = asyncio.Event()
        self._screen: Screen | None = None

    # -- what differs ------------------------------------------------------------------------

    async def _settled(self, run: str) -> None:
        """When it has ended, or only somebody can move it."""
        raise NotImplementedError

    async def _shown(self, run: str) -> Row:
        """The fields of the summary, when it began and ended, and what it waits for as `waiting`
        where it is left so."""
        raise NotImplementedError

    async def children(self, run: str) -> list[Row]:
        """The runs that it has begun without waiting for them, and that have not ended well."""
        raise NotImplementedError

    async def _leave(self, run: str) -> int:
        """Interrupted before that."""
        raise NotImplementedError

    def _new_screen(self, run: str) -> Screen:
        raise NotImplementedError

    # -- what is the same --------------------------------------------------------------------

    def say(self, text: str) -> None:
        if self._screen is not None:
            self._screen.clear()
        print(render.clean(text), file=sys.stderr, flush=True)

    async def to_its_end(self, run: str) -> int:
        """Until it has settled or is interrupted; prints it, gives the exit code."""
        ending = asyncio.ensure_future(self._settled_with_children(run))
        if await until_interrupted(ending, self.interrupted, self._view(run)):
            children = {"children": found} if (found := ending.result()) else {}
            return self.report({**await self._shown(run), **children})
        return await self._leave(run)

    async def _settled_with_children(self, run: str) -> list[Row]:
        """Returns the children that did not end well, or are left."""
        await self._settled(run)
        if self.options.no_children:
            return []
        seen: set[str] = set()
        while True:
            found = await self.children(run)
            going = [one for one in found if not one["finished"] and one["run"] not in seen]
            if not going:
                return found
            names = ", ".join(f"{one['run']} ({one['name']})" for one in going[:NAMED])
            more = f" and {len(going) - NAMED} more" if len(going) > NAMED else ""
            self.say(f"run {run} has begun others, which are followed to their end: {names}{more}")
            for one in going:
                await self._settled(one["run"])
                seen.add(one["run"])

    def _view(self, run: str) -> asyncio.Task[None] | None:
        watch = self.options.watch
        if watch is None:
            dumb = os.environ.get("TERM") == "dumb"
            watch = sys.stderr.isatty() and not dumb and not self.options.json
        if not watch:
            return None
        self._screen = self._new_screen(run)
        return asyncio.get_running_loop().create_task(self._screen.run())

    def print_summary(self, shown: Row) -> None:
        if self.options.json:
            print(render.json_line({key: shown[key] for key in SUMMARY if key in shown}))
            return
        lines = render.summary(shown, colour=render.wants_colour())
        if shown["status"] == "completed" and not unhandled(shown):
            lines += render.failure_lines(shown)  # those of others are in the reason, or follow
        print("\n".join(lines))

    def report(self, shown: Row) -> int:
        self.print_summary(shown)
        status = shown["status"]
        for line in problem_lines(shown):
            self.say(line)
        if status in LEFT:
            self.say(f"run {shown['run']} is left {status}:")
            self.say("\n".join(render.waiting_lines(shown["waiting"])))
        children = shown.get("children", [])
        for line in render.child_lines(children):
            self.say(line)
        own = exit_code(status, unhandled(shown), lenient=self.options.lenient)
        return own or code_of_children(one["status"] for one in children)


def given_input(options: argparse.Namespace) -> Row:
    """The input of a run as a server takes it: that of the file, and over it what was typed."""
    texts = values.texts(options.input, "input")
    given: Row = {"input": values.file_input(options.input_file)}
    return {**given, "input_texts": texts} if texts else given


def given_again(options: argparse.Namespace) -> Row:
    """The secret inputs that a redrive is given: those of the file, and over them what was typed.
    They are texts, so that one of digits stays what was typed."""
    return values.file_input(options.input_file) | values.texts(options.input, "input")


def warn(problems: Iterable[Problem]) -> None:
    for problem in problems:
        if problem.severity != "note":  # an error that is here has a meaning at run time
            print(render.clean(str(problem)), file=sys.stderr)
