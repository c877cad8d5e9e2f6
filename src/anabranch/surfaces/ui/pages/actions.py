"""The verbs of one run, as the forms of pages say them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from aiohttp import web

from anabranch.errors import InputError, Refused
from anabranch.kernel import stimuli as s
from anabranch.literals import Reducer
from anabranch.operations.runs.signals import signal
from anabranch.operations.runs.verbs import patches
from anabranch.operations.runs.wake import wake_sleepers
from anabranch.surfaces.ui.context import Ui, actor_of, text_of, ui_of
from anabranch.surfaces.ui.guard import understood
from anabranch.surfaces.ui.views.forms import read_json
from anabranch.work.values.json_values import require_json

#: Verb → what the page says afterwards.
VERBS: Mapping[str, str] = {
    "pause": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
    "redrive": "redriven",
    "patch": "patched",
    "wake": "woken",
    "signal": "signalled",
}
LINES_MAX = 2000
SECRET = "secret:"  # how the fields of secrets begin
REDUCERS: tuple[str, ...] = get_args(Reducer)


async def do(request: web.Request, verb: str, run: str, form: Any) -> str:
    """Returns the run to look at next, where that is another one."""
    ui, actor = ui_of(request), actor_of(request)
    verbs, reason = ui.parts.verbs, text_of(form, "reason").strip()
    match verb:
        case "pause":
            await verbs.send(run, s.Pause(actor, reason))
        case "resume":
            await verbs.send(run, s.Resume(actor))
        case "cancel":
            await verbs.send(run, s.Cancel(actor, reason))
        case "redrive":
            return await verbs.redrive(
                run,
                from_step=text_of(form, "from"),
                again=text_of(form, "again") == "yes",
                input=_secrets(form),
            )
        case "patch":
            values = await understood(request, values_of, text_of(form, "values"))
            said = patches(values, reducer_of(form))
            await verbs.send(run, s.PatchContext(said, actor))
        case "signal":
            payload = await understood(request, payload_of, text_of(form, "payload"))
            name, ttl = text_of(form, "name").strip(), text_of(form, "ttl").strip()
            await verbs.send(run, signal(name, payload, actor=actor, ttl=ttl))
        case "wake":
            await _wake(ui, run, text_of(form, "token"), actor)
        case _:
            raise InputError(f"there is no verb {verb!r}: {', '.join(VERBS)}")
    return ""


def _secrets(form: Any) -> dict[str, str]:
    """Inputs of a run that are given again."""
    named = [name for name in form if name.startswith(SECRET)]
    return {name.removeprefix(SECRET): text_of(form, name) for name in named}


async def _wake(ui: Ui, run: str, token: str, actor: str) -> None:
    if not token.isdecimal() or len(token) > 15 or not int(token):
        raise InputError("say which one is to be woken: a token has a number")
    parts, head = ui.parts, ui.head(run)
    if await wake_sleepers(parts.verbs, parts.sessions, head, int(token), actor=actor) == 0:
        raise Refused("it does not sleep any more: nothing was woken", code="not_sleeping")


def reducer_of(form: Any) -> Reducer:
    chosen = text_of(form, "reducer") or "set"
    if chosen not in REDUCERS:
        raise InputError(f"there is no reducer {chosen[:40]!r}: {', '.join(REDUCERS)}")
    return cast(Reducer, chosen)


def values_of(text: str) -> dict[str, Any]:
    """What is to be written to a context: one JSON object, or a KEY=VALUE on each line."""
    text = text.strip()
    if not text:
        raise InputError("say what to write: KEY=VALUE, one on a line, or a JSON object")
    if text.startswith("{"):
        given: dict[str, Any] = read_json(text, "this")
        return given
    lines, values = text.splitlines(), {}
    if len(lines) > LINES_MAX:
        raise InputError(f"write at most {LINES_MAX:,} lines, or a JSON object")
    for line in filter(None, map(str.strip, lines)):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise InputError(f"write KEY=VALUE, not {line[:80]!r}")
        values[key.strip()] = _value(value.strip())
    return values


def payload_of(text: str) -> Any:
    """What a signal says: JSON, or nothing."""
    if not text.strip():
        return None
    return read_json(text, "the payload")


def _value(text: str) -> Any:
    """JSON if it can be read as JSON, the text itself otherwise; as on the command line."""
    try:
        return require_json(read_json(text, "the value"), "the value")
    except InputError:
        return text
