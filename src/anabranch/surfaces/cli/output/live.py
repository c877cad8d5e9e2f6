"""The live view: steps, counts, elapsed time and what the run waits for, redrawn in place."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable
from typing import Any

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.kernel.explain import Unfinished, explain
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State
from anabranch.kernel.step_status import step_statuses
from anabranch.kernel.summary import loops_of
from anabranch.net.net import Net
from anabranch.operations.read.on_clusters import Clusters, placed
from anabranch.operations.read.waiting import Waiting, worded
from anabranch.surfaces.cli.output import render

FRAME_SECONDS = 0.1
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
WHOLE_SCREEN = "\x1b[H\x1b[2J"  # from its first line on, everything away
_PIECES = re.compile(r"\x1b\[[0-9;]*m|.", re.S)
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


async def until_interrupted(
    ending: asyncio.Future[Any], interrupted: asyncio.Event, view: asyncio.Task[None] | None
) -> bool:
    """Wait for the ending while the view shows how it goes; False when interrupted before it."""
    stopped = asyncio.ensure_future(interrupted.wait())
    try:
        await asyncio.wait({ending, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(stopped, *([] if view is None else [view]))
    if not ending.done():
        ending.cancel()
        return False
    return True


class Screen:
    """Draws lines in place on a terminal until told to stop; leaves nothing behind."""

    def __init__(self) -> None:
        self._out = sys.stderr
        self._drawn = 0
        self._drawn_for = (0, 0)  # the size of the terminal then
        self._frame = 0

    def _lines(self, height: int) -> list[str]:
        raise NotImplementedError

    def _spin(self) -> str:
        self._frame += 1
        return _SPINNER[self._frame % len(_SPINNER)]

    async def run(self) -> None:
        self._out.write(HIDE_CURSOR)
        try:
            while True:
                self._draw()
                await asyncio.sleep(FRAME_SECONDS)
        finally:
            self.clear()
            self._out.write(SHOW_CURSOR)
            self._out.flush()

    def _draw(self) -> None:
        columns, height = size = self._size()
        if self._drawn and size != self._drawn_for:
            self._out.write(WHOLE_SCREEN)  # where the last frame went nobody knows after that
            self._drawn = 0
        self._drawn_for = size
        lines = [_cut(line, columns - 1) for line in self._lines(height - 1)[: height - 1]]
        self.clear()
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()
        self._drawn = len(lines)

    def _size(self) -> tuple[int, int]:
        """Of the terminal we draw on, which need not be where standard output goes."""
        try:
            size = os.get_terminal_size(self._out.fileno())
        except (OSError, ValueError):
            return 100, 30
        return size.columns or 100, size.lines or 30

    def clear(self) -> None:
        """Take the frame away, so that something else can be said; the next one follows below."""
        if self._drawn:
            self._out.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0


class LiveView(Screen):
    """One run of an engine in this process."""

    def __init__(
        self, net: Net, state: Callable[[], State], clusters: Clusters | None = None
    ) -> None:
        super().__init__()
        self._net = net
        self._state = state
        self._clusters = clusters

    def _lines(self, height: int) -> list[str]:
        state = self._state()
        now = int(time.time() * 1000)
        head = f"{self._spin()} {render.one_line(self._net.name)} ({state.run})"
        head += f"  {status_of(state)}"
        head += f"  {render.duration(max(0, now - state.started_at) / 1000)}"
        head += f"  {state.counts.finished} done, {len(state.tokens)} live"
        head += f", {state.counts.failed} failed" if state.counts.failed else ""
        steps = self._steps(state)
        running = [loop for loop in loops_of(state, now) if loop["status"] == "open"]
        steps += render.loop_lines(running)
        waits = explain(self._net, state)
        shown = [msgspec.to_builtins(self._told(state, one, now)) for one in waits[:6]]
        below = render.waiting_lines(shown, now)
        if len(waits) > 6:
            below.append(f"  … and {len(waits) - 6} more")
        below = ["", *below][: height // 2] if below else []
        room = height - 1 - len(below)
        if len(steps) > room:
            hidden = len(steps) - room + 1
            steps = [f"  … {hidden} more above", *steps[hidden:]][: max(room, 0)]
        return [head, *steps, *below]

    def _told(self, state: State, one: Unfinished, now: int) -> Waiting:
        return worded(*placed(state, one, self._clusters, now)) if self._clusters else worded(one)

    def _steps(self, state: State) -> list[str]:
        stand = step_statuses(state)
        steps = {
            name: {
                "runs": tally.runs,
                "status": tally.statuses[-1],
                "state": stand[name].status,
                "statuses": tally.statuses,
                "earlier": tally.earlier,
                "result": state.results.get(name),
            }
            for name in self._net.steps
            if (tally := state.steps.get(name)) is not None
        }
        return render.step_lines(steps, colour=render.wants_colour(self._out))


def _cut(line: str, width: int) -> str:
    """Cut by what is seen: colour codes take no room, wide letters two places."""
    seen, out = 0, []
    for piece in _PIECES.findall(line.replace("\n", " ").replace("\t", " ")):
        seen += 0 if piece[0] == "\x1b" else _places(piece)
        if seen > width:
            break
        out.append(piece)
    return "".join(out) + ("\x1b[0m" if "\x1b" in line else "")


def _places(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
