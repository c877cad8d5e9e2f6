"""`pause`, `cancel`, `patch`, `loop`, `decide`: said to the engine on the store, or recorded."""

from __future__ import annotations

import argparse
import getpass

from anabranch import app
from anabranch.errors import Refused
from anabranch.kernel import stimuli as s
from anabranch.operations.verbs import decision, patches, say
from anabranch.runtime.messages import Sayable
from anabranch.settings import Settings
from anabranch.surfaces.cli import render, values


async def pause(options: argparse.Namespace, settings: Settings) -> int:
    return await _say(options, settings, s.Pause(_actor(options), options.reason))


async def cancel(options: argparse.Namespace, settings: Settings) -> int:
    return await _say(options, settings, s.Cancel(_actor(options), options.reason))


async def patch(options: argparse.Namespace, settings: Settings) -> int:
    given = values.flat_pairs(options.values, "value")
    said = s.PatchContext(patches(given, options.reduce), _actor(options))
    return await _say(options, settings, said)


async def loop(options: argparse.Namespace, settings: Settings) -> int:
    window = 0 if options.stop else options.window
    said = s.TuneLoop(options.step, window, options.stop, _actor(options), options.reason)
    return await _say(options, settings, said)


async def decide(options: argparse.Namespace, settings: Settings) -> int:
    given = values.evidence(options.evidence)
    said = decision(options.gate, options.verdict, _actor(options), options.reason, given)
    try:
        return await _say(options, settings, said)
    except Refused as refusal:
        if refusal.code != "not_allowed" or options.actor:
            raise
        hint = "--actor NAME says who you are"
        raise Refused(f"{refusal.message}; {hint}", code=refusal.code) from None


async def resume(options: argparse.Namespace, settings: Settings) -> int:
    """For a run that is paused in an engine elsewhere; `running.resume` is the verb itself."""
    return await _say(options, settings, s.Resume(_actor(options)))


def _actor(options: argparse.Namespace) -> str:
    if options.actor:
        return str(options.actor)
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in a bare container
        return "somebody"


async def _say(options: argparse.Namespace, settings: Settings, said: Sayable) -> int:
    values.require_store(settings)
    store = app.open_store(settings)
    parts = app.Parts(store, settings, app.default_toolbox)
    try:
        run = parts.verbs.read.find(options.run).run
        how = await say(store, lambda: parts.engine, run, said)
        status = parts.verbs.read.find(run).status
    finally:
        await parts.close()
        store.close()
    if options.json:
        told = {"run": run, "verb": options.verb, "taken": how, "status": status}
        print(render.json_line(told))
        return 0
    by = "taken by the running engine" if how == "engine" else "recorded"
    print(f"{options.verb}: {by}; run {run} is {status}")
    if how == "recorded" and status == "running":
        print(f"no engine is running: `anabranch resume {run}` goes on with it")
    return 0
