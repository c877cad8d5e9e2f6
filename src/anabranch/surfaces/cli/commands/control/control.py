"""What people say to a run, said to the engine on the store, or recorded where none runs."""

from __future__ import annotations

import argparse

import msgspec

from anabranch.errors import Refused
from anabranch.kernel import stimuli as s
from anabranch.operations.definitions.input_check import read_text
from anabranch.operations.runs.signals import signal as signal_of
from anabranch.operations.runs.verbs import decision, patches, skipping
from anabranch.runtime.messages.codec import Sayable
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.identity import who
from anabranch.surfaces.cli.backend.port import Told
from anabranch.surfaces.cli.output import render


async def pause(options: argparse.Namespace, settings: Settings) -> int:
    return await _say(options, settings, s.Pause(who(options), options.reason))


async def cancel(options: argparse.Namespace, settings: Settings) -> int:
    return await _say(options, settings, s.Cancel(who(options), options.reason))


async def patch(options: argparse.Namespace, settings: Settings) -> int:
    given = values.flat_pairs(options.values)
    said = s.PatchContext(patches(given, options.reduce), who(options))
    return await _say(options, settings, said)


async def loop(options: argparse.Namespace, settings: Settings) -> int:
    window = 0 if options.stop else options.window
    said = s.TuneLoop(options.step, window, options.stop, who(options), options.reason)
    return await _say(options, settings, said)


async def retry(options: argparse.Namespace, settings: Settings) -> int:
    said = s.RetryNow(options.step, options.token or 0, who(options), options.reason)
    return await _say(options, settings, said)


async def skip(options: argparse.Namespace, settings: Settings) -> int:
    result = msgspec.UNSET if options.result is None else read_text(options.result)
    said = skipping(options.step, options.token or 0, who(options), options.reason, result)
    return await _say(options, settings, said)


async def decide(options: argparse.Namespace, settings: Settings) -> int:
    given = values.evidence(options.evidence)
    said = decision(
        options.gate,
        options.verdict,
        who(options),
        options.reason,
        given,
        override=options.override,
    )
    async with open_backend(options, settings) as at:
        try:
            told = await at.runs.say(options.run, said)
        except Refused as refusal:
            if refusal.code != "not_allowed" or (options.actor and not at.by_token):
                raise
            hint = "--actor NAME says who you are"
            if at.by_token:  # it speaks for nobody else
                hint = "a token of one of these names can (ANABRANCH_TOKEN or --token-file)"
            raise Refused(f"{refusal.message}; {hint}", code=refusal.code) from None
    return _report(options, told)


async def signal(options: argparse.Namespace, settings: Settings) -> int:
    given = values.payload(options.payload)
    said = signal_of(
        options.name, given, actor=who(options), ttl=options.ttl, id=options.id.strip()
    )
    async with open_backend(options, settings) as at:
        sent, how = await at.runs.signal(options.run, said)
    fields = msgspec.to_builtins(sent)
    fields |= {"verb": options.verb, "taken": how, "status": fields.pop("status")}
    became = {
        "taken": "a wait has taken it",
        "kept": "no wait takes it yet: the run keeps it for one",
        "expired": "it was sent before, and has expired",
        "dropped": "it was sent before, and the run ended without it",
    }[sent.signal]
    lines = [f"signal {sent.name}: {became}; run {sent.run} is {sent.status}"]
    if how == "recorded" and sent.status == "running":
        lines.append(f"no engine is running: `anabranch resume {sent.run}` goes on with it")
    return render.tell(options, fields, "\n".join(lines))


async def resume(options: argparse.Namespace, settings: Settings) -> int:
    """For a run that is paused in an engine elsewhere; `run.resume` is the verb itself."""
    return await _say(options, settings, s.Resume(who(options)))


async def _say(options: argparse.Namespace, settings: Settings, said: Sayable) -> int:
    async with open_backend(options, settings) as at:
        told = await at.runs.say(options.run, said)
    return _report(options, told)


def _report(options: argparse.Namespace, told: Told) -> int:
    run, how, status = told
    fields = {"run": run, "verb": options.verb, "taken": how, "status": status}
    by = "taken by the running engine" if how == "engine" else "recorded"
    lines = [f"{options.verb}: {by}; run {run} is {status}"]
    if how == "recorded" and status == "running":
        lines.append(f"no engine is running: `anabranch resume {run}` goes on with it")
    return render.tell(options, fields, "\n".join(lines))
