"""`logs`: what work printed."""

from __future__ import annotations

import argparse
import time

import msgspec

from anabranch.operations.logs.log_lines import LogLine, LogQuery
from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.output import render

_STATUS = {"warning": "waiting", "error": "failed", "critical": "failed", "debug": "skipped"}


async def logs(options: argparse.Namespace, settings: Settings) -> int:
    wanted = LogQuery(
        step=options.step, attempt=options.attempt, level=options.level, search=options.search
    )
    colour = render.wants_colour()
    printed = False
    async with open_backend(options, settings) as at:
        async for line in at.runs.logs(options.run, wanted, follow=options.follow):
            if options.json:
                print(render.json_line(msgspec.to_builtins(line)), flush=True)
            else:
                print(log_line(line, colour=colour), flush=True)
            printed = True
    if not printed and not options.json:
        print("nothing was printed" if wanted == LogQuery() else "nothing fits")
    return 0


def log_line(line: LogLine, *, colour: bool = False) -> str:
    """Time, step with item and attempt, and the text; the level where it says something."""
    clock = time.strftime("%H:%M:%S", time.localtime(line.at / 1000)) + f".{line.at % 1000:03d}"
    where = line.step
    if line.item is not None:
        where += f"[{line.item}]"
    if line.attempt > 1:
        where += f"#{line.attempt}"
    text = line.text.replace("\n", " ")
    if line.stream == "log" and line.level != "info" and not text.startswith(" "):
        text = f"{line.level}: {text}"
    text = render.paint(render.clean(text), _STATUS.get(line.level, ""), colour=colour)
    return f"{clock} {render.clean(where)}  {text}"
