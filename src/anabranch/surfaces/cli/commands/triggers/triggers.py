"""`trigger`: what fires, what it starts or signals, and what became of it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, get_args

from anabranch import files
from anabranch.dialects.source import SourceLimits
from anabranch.errors import InputError
from anabranch.operations.triggers.trigger import Ending
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import Row, TriggerBackend
from anabranch.surfaces.cli.output import render
from anabranch.surfaces.cli.output.idle import tell_if_idle

HEAD = ("NAME", "STATE", "FIRED BY", "DOES", "PENDING", "REFUSED")
SUFFIXES = (".yaml", ".yml", ".json")
ANY = "any"
BODY_BYTES = 1024 * 1024


async def trigger(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        code = await ACTIONS[options.action](options, at.triggers)
        if options.action == "add" and not options.paused:
            await tell_if_idle(options, at, "calls are taken" if options.hook else "it acts")
        return code


# -- looking -------------------------------------------------------------------------------------


async def _list(options: argparse.Namespace, triggers: TriggerBackend) -> int:
    found = await triggers.all()
    rows = [
        (one["name"], one["state"], render.clean(_fired_by(one)), render.clean(_does(one)),
         str(one["pending"]), str(one["refused"]))
        for one in found
    ]  # fmt: skip
    return render.tell_rows(options, found, rows, HEAD, "no triggers")


async def _show(options: argparse.Namespace, triggers: TriggerBackend) -> int:
    card = await triggers.show(options.name)
    return render.tell(options, card, "\n".join(_lines(card)))


def _lines(card: Row) -> list[str]:
    hook, after = card["hook"] or {}, card["after"] or {}
    facts = {
        "fired by": _fired_by(card),
        "who calls": _callers(hook) if hook else "",
        "statuses": ", ".join(after.get("statuses", ["completed"])) if card["after"] else "",
        "labels of the run": _pairs(after.get("labels", {})),
        "when": card["when"],
        "does": _does(card),
        "input": json.dumps(card["input"]) if card["input"] is not None else "",
        "labels": _pairs(card["labels"]),
        "paused": render.instant(card["paused_at"]) if card["paused_at"] is not None else "",
        "pending": f"{card['pending']:,}" if card["pending"] else "",
        "refused": f"{card['refused']:,}" if card["refused"] else "",
    }
    clean = {name: render.clean(text) for name, text in facts.items()}
    lines = [f"trigger {card['name']} ({card['state']})", *render.fact_lines(clean)]
    for one in card["last"]:
        lines.append(f"  {render.instant(one['at'])}  {render.clean(_outcome(one))}")
    return lines


def _callers(hook: Row) -> str:
    if hook["auth"] == "token":
        senders = ", ".join(hook.get("senders", [])) or "every token with the scope hook"
        return f"by token: {senders}"
    secret = f"{hook['credential']}.{hook['field']}" if hook.get("field") else hook["credential"]
    return f"signed ({hook.get('scheme', 'anabranch')}) with the credential {secret}"


def _outcome(one: Row) -> str:
    after = f" after {one['after']}" if one["after"] else ""
    if one["outcome"] == "started":
        return f"began {one['run']}{after}"
    why = f": {one['why']}" if one["why"] else ""
    return f"{one['outcome'].replace('_', ' ')}{after}{why}"


def _fired_by(card: Row) -> str:
    if card["kind"] == "hook":
        return f"POST {card['url']}"
    after = card["after"]
    name, statuses = after.get("definition") or "any run", after.get("statuses", ["completed"])
    where = f" ({_pairs(after['labels'])})" if after.get("labels") else ""
    return f"{name} {'/'.join(statuses)}{where}"


def _does(card: Row) -> str:
    signal = card["signal"]
    if signal is not None:
        meant = signal.get("run") or _pairs(signal.get("labels", {}))
        return f"signals {signal['name']} to {meant}"
    target = card["target"]
    if "fingerprint" in target:
        return f"starts {target.get('name', '')} {target['fingerprint'][:12]}"
    numbered = f"@{target['version']}" if target.get("version") is not None else ""
    return f"starts {target['path']}{numbered}"


def _pairs(given: Row) -> str:
    return ", ".join(f"{key}={text}" for key, text in given.items())


# -- doing ---------------------------------------------------------------------------------------


async def _add(options: argparse.Namespace, triggers: TriggerBackend) -> int:
    values.import_tools(options.tools)
    draft: Row = {
        "name": options.name,
        **_kind(options),
        **_deed(options),
        "labels": values.labels(options.label),
        "when": options.when,
        "paused": options.paused,
        "replace": options.replace,
    }
    if options.input or options.input_file is not None:
        given = values.file_input(options.input_file)
        draft["input"] = {**given, **values.pairs(options.input, "input")}
    card = await triggers.add(draft)
    said = f"trigger {card['name']}: {_fired_by(card)}, {_does(card)}"
    return render.tell(options, card, render.clean(said))


def _kind(options: argparse.Namespace) -> Row:
    if not options.hook:
        if options.credential or options.token or options.key is not None:
            raise InputError("--credential, --token and --key belong to --hook", code="usage")
        statuses = list(get_args(Ending)) if ANY in options.status else options.status
        name = "" if options.after == ANY else options.after
        after: Row = {"definition": name, "labels": values.labels(options.where)}
        return {"after": {**after, **({"statuses": statuses} if statuses else {})}}
    if options.status or options.where:
        raise InputError("--status and --where belong to --after", code="usage")
    credential, _, field = options.credential.partition(".")
    hook: Row = {"auth": "token" if options.token else "signature", "senders": options.senders}
    given = {
        "credential": credential,
        "field": field,
        "scheme": options.scheme,
        "header": options.header,
        "window": options.window,
        "remember": options.remember,
        "key": options.key,
    }
    return {"hook": {**hook, **{name: text for name, text in given.items() if text}}}


def _deed(options: argparse.Namespace) -> Row:
    if options.signal is None:
        if options.to_run or options.to_label or options.ttl:
            raise InputError("--to-run, --to-label and --ttl belong to --signal", code="usage")
        if options.target is None:
            raise InputError("say what to start: a file, a path or an alias", code="usage")
        return _target_of(options.target)
    if options.target is not None:
        raise InputError("a trigger starts a run or sends a signal, not both", code="usage")
    signal = {"name": options.signal, "run": options.to_run or "", "ttl": options.ttl}
    return {"signal": {**signal, "labels": values.labels(options.to_label)}}


def _target_of(target: str) -> Row:
    """A file is sent as it is now; everything else is a path of the catalog."""
    if not target.endswith(SUFFIXES) and not Path(target).is_file():
        return {"path": target}
    data = files.read_limited(Path(target), SourceLimits().bytes_max)
    try:
        return {"definition": data.decode("utf-8"), "file": target}
    except UnicodeDecodeError:
        raise InputError(f"{target} is not UTF-8", code="no_file") from None


async def _test(options: argparse.Namespace, triggers: TriggerBackend) -> int:
    call: Row = {"body": _body(options.body), "headers": values.labels(options.header)}
    found = await triggers.test(options.name, {**call, "run": options.run})
    return render.tell(options, found, "\n".join(_test_lines(found)))


def _body(given: str | None) -> Any:
    if given is None:
        return None
    text = files.read_text(Path(given[1:]), BODY_BYTES) if given.startswith("@") else given
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"--body is not JSON: {error}", code="usage") from None


def _test_lines(found: Row) -> list[str]:
    if not found["fires"]:
        return [f"it would do nothing: {found['why']}"]
    facts = {
        "input": json.dumps(found["input"]),
        "labels": render.clean(_pairs(found["labels"])),
        "runs": ", ".join(found["runs"]),
        "key": render.clean(found["key"]),
    }
    does = f"signal {found['signal']}" if found["signal"] else f"start {found['fingerprint'][:12]}"
    return [f"it would {does}", *render.fact_lines(facts)]


async def _pause(options: argparse.Namespace, triggers: TriggerBackend) -> int:
    card = await triggers.pause(options.name)
    return render.tell(options, card, f"paused: {card['name']}")


async def _resume(options: argparse.Namespace, triggers: TriggerBackend) -> int:
    card = await triggers.resume(options.name)
    return render.tell(options, card, f"goes on: {card['name']}")


async def _retry(options: argparse.Namespace, triggers: TriggerBackend) -> int:
    found = await triggers.retry(options.name)
    return render.tell(options, found, f"tried again: {found['count']:,}")


async def _remove(options: argparse.Namespace, triggers: TriggerBackend) -> int:
    card = await triggers.remove(options.name)
    return render.tell(options, card, f"removed: {card['name']}")


ACTIONS = {
    "add": _add,
    "list": _list,
    "show": _show,
    "test": _test,
    "pause": _pause,
    "resume": _resume,
    "retry": _retry,
    "remove": _remove,
}
