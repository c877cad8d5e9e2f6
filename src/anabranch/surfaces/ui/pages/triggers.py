"""Triggers: what fires them, what they start, how it went last; paused and retried with a click.
Below them the aliases, with the way back."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from anabranch.errors import InputError
from anabranch.operations.triggers.triggers import TriggerCard
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.http.routes import actor_of
from anabranch.surfaces.ui import guard
from anabranch.surfaces.ui.context import form_of, may, see, show, ui_of
from anabranch.surfaces.ui.rendering import html, rendered

PAGE = "/triggers"
SHOWN = 100  # triggers, and aliases, of one page
LAST_SHOWN = 3
VERBS = {"pause": "trigger_paused", "resume": "trigger_resumed", "retry": "trigger_retried"}
ROLLED_BACK = "alias_rolled_back"


class TriggerRow(msgspec.Struct, frozen=True):
    card: TriggerCard
    calls: str  # who may call a hook


async def overview(request: web.Request) -> web.StreamResponse:
    return show(request, "triggers.html", **await _values(request))


async def panel(request: web.Request) -> web.StreamResponse:
    """Only the tables, for a page that is looked at."""
    more = {"csrf": guard.form_secret(request), "may": may(request), "now": ui_of(request).now()}
    return html(rendered("triggers_panel.html", {**await _values(request), **more}))


async def do(request: web.Request) -> web.StreamResponse:
    await form_of(request)
    name, verb = request.match_info["trigger"], request.match_info["verb"]
    if verb not in VERBS:
        raise InputError(f"there is no {verb[:40]!r} for a trigger: {', '.join(VERBS)}")
    triggers = ui_of(request).parts.triggering.triggers
    if verb == "pause":
        await in_thread(triggers.pause, name, actor_of(request))
    elif verb == "resume":
        await in_thread(triggers.resume, name)
    else:
        await in_thread(triggers.retry, name)
    raise see(PAGE, VERBS[verb])


async def roll_back(request: web.Request) -> web.StreamResponse:
    await form_of(request)
    aliases = ui_of(request).parts.triggering.aliases
    await in_thread(aliases.rollback, request.match_info["alias"], actor_of(request))
    raise see(PAGE, ROLLED_BACK)


async def _values(request: web.Request) -> dict[str, Any]:
    triggering, after = ui_of(request).parts.triggering, request.query.get("after", "")
    triggers = triggering.triggers
    found = await in_thread(triggers.page, after, SHOWN + 1)
    cards = [await in_thread(triggers.show, card.name, LAST_SHOWN) for card in found[:SHOWN]]
    aliases = await in_thread(triggering.aliases.page, "", SHOWN)
    return {
        "rows": [TriggerRow(card, _calls(card)) for card in cards],
        "aliases": aliases,
        "after": after,
        "following": cards[-1].name if len(found) > SHOWN else "",
    }


def _calls(card: TriggerCard) -> str:
    rules = card.hook
    if rules is None:
        return ""
    if rules.auth == "token":
        return f"by token: {', '.join(rules.senders) or 'any with the scope hook'}"
    return f"signed with {rules.credential}"
