"""The live view: steps, counts, elapsed time and what the run waits for, redrawn in place."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

import msgspec

from anabranch.kernel.explain import explain
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.surfaces.cli import render

FRAME_SECONDS = 0.1
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class LiveView:
    """Draws one run on a terminal until told to stop; leaves nothing behind."""

    def __init__(self, net: Net, state: Callable[[], State], stream: TextIO | None = None) -> None:
        self._net = net
        self._state = state
        self._out = stream or sys.stderr
        self._drawn = 0
        self._frame = 0

    async def run(self) -> None:
        self._out.write(_HIDE)
        try:
            while True:
                self._draw()
                await asyncio.sleep(FRAME_SECONDS)
        finally:
            self._clear()
            self._out.write(_SHOW)
            self._out.flush()

    def _draw(self) -> None:
        size = shutil.get_terminal_size((100, 30))
        lines = [_cut(line, size.columns - 1) for line in self._lines(size.lines - 2)]
        self._clear()
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()
        self._drawn = len(lines)

    def _clear(self) -> None:
        if self._drawn:
            self._out.write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0

    def _lines(self, height: int) -> list[str]:
        state = self._state()
        self._frame += 1
        now = int(time.time() * 1000)
        head = f"{_SPINNER[self._frame % len(_SPINNER)]} {self._net.name}  {status_of(state)}"
        head += f"  {render.duration(max(0, now - state.started_at) / 1000)}"
        head += f"  {state.counts.finished} done, {len(state.tokens)} live"
        head += f", {state.counts.failed} failed" if state.counts.failed else ""
        steps = self._steps(state)
        waits = [msgspec.to_builtins(one) for one in explain(self._net, state)]
        below = render.waiting_lines(waits[:6], now)[: max(0, height // 2)]
        room = max(3, height - 2 - len(below))
        if len(steps) > room:
            steps = [f"  … {len(steps) - room + 1} more above", *steps[-room + 1 :]]
        return [head, *steps, *([""] if below else []), *below]

    def _steps(self, state: State) -> list[str]:
        steps = {
            name: {
                "runs": tally.runs,
                "status": tally.statuses[-1],
                "statuses": tally.statuses,
                "result": state.results.get(name),
            }
            for name in self._net.steps
            if (tally := state.steps.get(name)) is not None
        }
        return render.step_lines(steps, colour=render.wants_colour(self._out))


def _cut(line: str, width: int) -> str:
    """Cut by what is seen; colour codes take no room."""
    seen, out, index = 0, [], 0
    while index < len(line) and seen < width:
        if line[index] == "\x1b":
            end = line.index("m", index) + 1
            out.append(line[index:end])
            index = end
            continue
        out.append(line[index])
        seen += 1
        index += 1
    return "".join(out) + ("\x1b[0m" if "\x1b" in line else "")
