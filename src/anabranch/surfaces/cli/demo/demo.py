"""`demo`: a showcase in half a minute, with real processes and a real `kill -9`.

Every scene runs the same commands a person would type, in a temporary folder, and shows them.
No scene depends on how quick the machine is: each waits for what the one before it has done.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anabranch.settings import Settings
from anabranch.surfaces.cli.output import render

SCENES = Path(__file__).parent / "scenes"
TIDE_AT = 20  # the leg at which the voyage of the third scene waits
LONG_SECONDS = 5.0  # what takes longer is told, and told again
LIVE = ("run", "resume", "simulate")  # they show on a terminal how far they are


class Presenter:
    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.pause = 0.0 if options.fast or options.json else 1.2
        self.quiet = bool(options.json)
        self.facts: dict[str, Any] = {}

    def title(self, text: str) -> None:
        if not self.quiet:
            bold, plain = ("\x1b[1m", "\x1b[0m") if render.wants_colour() else ("", "")
            print(f"\n{bold}── {text}{plain}", flush=True)

    def tell(self, text: str) -> None:
        if not self.quiet:
            print(text, flush=True)

    async def rest(self) -> None:
        await asyncio.sleep(self.pause)

    async def anabranch(self, *arguments: str, show: bool = True) -> tuple[int, str]:
        """Run a command as a person would; on a terminal its live view shows through."""
        process = await self.spawn(*arguments, show=show)
        async with self.waiting(f"`anabranch {arguments[0]}`", live=arguments[0] in LIVE and show):
            output, _ = await process.communicate()
        text = output.decode()
        if show:
            self.tell(text.rstrip())
        return process.returncode or 0, text

    @asynccontextmanager
    async def waiting(self, what: str, *, live: bool = False) -> AsyncIterator[None]:
        """Says what it waits for while that takes long. A `live` view says so itself."""
        if live and sys.stderr.isatty():
            yield
            return
        telling = asyncio.create_task(self._tell_wait(what))
        try:
            yield
        finally:
            telling.cancel()

    async def _tell_wait(self, what: str) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(LONG_SECONDS)
            seconds = render.duration(round(time.monotonic() - began))
            self.tell(f"  … waiting for {what}, {seconds} so far{_other_work()}")

    async def spawn(self, *arguments: str, show: bool = True) -> asyncio.subprocess.Process:
        if show:
            self.tell(f"$ anabranch {shlex.join(arguments)}")
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "anabranch",
            *arguments,
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if show and not self.quiet else asyncio.subprocess.DEVNULL,
            env={**os.environ, "ANABRANCH_STORE": "demo.db"},
        )


async def demo(options: argparse.Namespace, settings: Settings) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as folder:
        stage = Presenter(Path(folder), options)
        for scene in SCENES.glob("*.yaml"):
            (stage.folder / scene.name).write_text(scene.read_text())
        for play_scene in (_pilots, _offers, _crash, _broken, _simulated):
            await play_scene(stage)
            await stage.rest()
    seconds = time.monotonic() - began
    if options.json:
        print(render.json_line({**stage.facts, "seconds": round(seconds, 1)}))
    stage.tell(f"\nThat was {render.duration(seconds)}. Next: README.md, examples/, docs/.")
    return 0 if stage.facts["ok"] else 1


async def _pilots(stage: Presenter) -> None:
    stage.title("1. Fan-out, retry, timeout, join")
    stage.tell((stage.folder / "pilots.yaml").read_text().split("apiVersion")[0].rstrip())
    code, output = await stage.anabranch("run", "pilots.yaml", *_json(stage))
    stage.facts["pilots"] = json.loads(output) if stage.quiet else None
    stage.facts["ok"] = code == 0
    stage.tell("bo needed three tries, chen was stopped after 2 s, and choose ran once.")


async def _offers(stage: Presenter) -> None:
    """Real servers, one a provider; `demo_providers` says what each of them is like."""
    from anabranch.surfaces.cli.demo.providers import providers  # brings a server along

    stage.title("2. Eight providers compete for an order")
    stage.tell((stage.folder / "offers.yaml").read_text().split("workflow_id")[0].rstrip())
    async with providers() as book:
        (stage.folder / "providers.json").write_text(json.dumps(book))
        words = ("run", "offers.yaml", "--participants", "providers.json", "--run-id", "offers1")
        code, output = await stage.anabranch(*words, *_json(stage))
        stage.facts["offers"] = json.loads(output) if stage.quiet else None
    await stage.anabranch("dispatches", "offers1", show=not stage.quiet)
    stage.facts["ok"] = stage.facts["ok"] and code == 0 and "bora-1" in output
    stage.tell(
        "bora was the cheapest of those who answered: the order went there, and nowhere else."
    )


async def _crash(stage: Presenter) -> None:
    stage.title("3. kill -9 in the middle, then resume")
    stage.tell((stage.folder / "voyage.yaml").read_text().split("apiVersion")[0].rstrip())
    process = await stage.spawn("run", "voyage.yaml", "--run-id", "voyage1", "--no-watch")
    async with stage.waiting(f"leg {TIDE_AT} of the voyage"):
        under_way = await _reaches_the_tide(stage, process)
    if under_way:
        process.kill()
        stage.tell(f"kill -9 {process.pid}: the engine is gone, at leg {TIDE_AT}.")
    await process.communicate()
    await stage.anabranch("explain", "voyage1")
    await stage.rest()
    (stage.folder / "tide").touch()
    code, _ = await stage.anabranch("resume", "voyage1")
    exact = await _exactly_once(stage)
    stage.facts["ok"] = stage.facts["ok"] and under_way and code == 0 and exact


async def _reaches_the_tide(stage: Presenter, process: asyncio.subprocess.Process) -> bool:
    """Whether the voyage waits at that leg; false if its process ended before."""
    log = stage.folder / "ship.log"
    ended = asyncio.create_task(process.wait())
    while not (log.exists() and f"leg {TIDE_AT}\n" in log.read_text()):
        await asyncio.wait({ended}, timeout=0.05)
        if ended.done():
            return False
    ended.cancel()
    return True


async def _exactly_once(stage: Presenter) -> bool:
    """Count the transitions in the log."""
    _, text = await stage.anabranch("events", "voyage1", "--json", show=False)
    records = [json.loads(line) for line in text.splitlines()]
    kinds = Counter(record["kind"] for record in records)
    gapless = [record["seq"] for record in records] == list(range(1, len(records) + 1))
    stage.facts["voyage"] = dict(kinds)
    stage.tell(
        f"the log: {len(records)} events without a gap, {kinds['token.created']} step runs "
        f"started, {kinds['token.finished']} ended, {kinds['job.lost']} job lost with the engine "
        "and repeated."
    )
    whole = kinds["token.created"] == kinds["token.finished"] == 41
    return gapless and whole and kinds["job.lost"] == 1


async def _broken(stage: Presenter) -> None:
    stage.title("4. Every problem at once, with the change that fixes it")
    code, _ = await stage.anabranch("check", "broken.yaml")
    stage.facts["ok"] = stage.facts["ok"] and code == 2


async def _simulated(stage: Presenter) -> None:
    stage.title("5. The same voyage under 50 random schedules with crashes, in virtual time")
    code, _ = await stage.anabranch(
        "simulate", "voyage.yaml", "--seeds", "50", "--input", "legs=10"
    )
    stage.tell(
        "Most voyages end as failed, as they should: the simulation makes steps fail at random,\n"
        "and redrives some runs. It shows that every law held after every event, whatever came."
    )
    stage.facts["ok"] = stage.facts["ok"] and code == 0


def _other_work() -> str:
    """Why it may take long: more that wants to run than cores."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f" (this machine has {load:.0f} at work on {cores} cores)" if load > 2 * cores else ""


def _json(stage: Presenter) -> tuple[str, ...]:
    return ("--json",) if stage.quiet else ()
