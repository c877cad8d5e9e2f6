"""`story 006`, `story 009` and `story stop`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from pathlib import Path

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.surfaces.cli import stop_signals
from anabranch.surfaces.cli.output import render
from anabranch.surfaces.stories.narration import Narrator
from anabranch.surfaces.stories.play import Verdict, play
from anabranch.surfaces.stories.story import Story


async def story(options: argparse.Namespace, settings: Settings) -> int:
    if options.action == "stop":
        return await _stop(options)
    chosen = _chosen(options)
    folder = _folder(options)
    narrator = Narrator(quiet=options.json)
    playing = asyncio.ensure_future(
        play(chosen, folder, narrator, kill=options.kill, seed=options.seed, keep=options.keep)
    )
    stopping = asyncio.Event()
    stop_signals.on_stop(stopping.set)
    told = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({playing, told}, return_when=asyncio.FIRST_COMPLETED)
        if not playing.done():
            narrator.line("stopping the nodes (again to stop at once)")
            await cancel_and_wait(playing)
            return stop_signals.INTERRUPTED
        return _tell(options, playing.result(), folder)
    finally:
        await cancel_and_wait(told)
        if not options.dir and not (options.keep and _went_well(playing)):
            shutil.rmtree(folder, ignore_errors=True)


def _went_well(playing: asyncio.Future[Verdict]) -> bool:
    return playing.done() and not playing.cancelled() and playing.exception() is None


def _chosen(options: argparse.Namespace) -> Story:
    variant = options.variant or ""
    if options.action == "006":
        from anabranch.surfaces.stories.story006 import Story006

        return Story006(variant, options.providers)
    from anabranch.surfaces.stories.story009 import Story009

    return Story009(variant)


def _folder(options: argparse.Namespace) -> Path:
    if not options.dir:
        return Path(tempfile.mkdtemp(prefix=f"anabranch-story-{options.action}-"))
    folder = Path(options.dir).absolute()
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"--dir: there is something in {folder} already", code="usage")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _tell(options: argparse.Namespace, verdict: Verdict, folder: Path) -> int:
    if options.json:
        told = {"ok": verdict.ok, **msgspec.to_builtins(verdict), "folder": str(folder)}
        print(render.json_line(told))
    else:
        for missed in verdict.missed:
            print(f"  no run came to {missed}")
        held = sum(one.holds for one in verdict.laws)
        said = "all laws hold" if verdict.ok else f"{len(verdict.laws) - held} laws are broken"
        print(f"\n{said}, after {render.duration(verdict.seconds)}")
        if not verdict.kept:
            print("to look at its nodes in a browser: add --keep")
    return 0 if verdict.ok else 1


async def _stop(options: argparse.Namespace) -> int:
    from anabranch.surfaces.stories.kept import stop_kept

    stopped = await stop_kept(Path(options.folder).absolute())
    text = f"stopped {', '.join(stopped)}" if stopped else "none of its nodes ran"
    return render.tell(options, {"stopped": stopped}, text)
