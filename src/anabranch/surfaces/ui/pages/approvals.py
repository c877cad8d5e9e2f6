"""The inbox: what waits for a decision, over all runs, and the two answers to it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web

from anabranch.errors import InputError, Refused
from anabranch.kernel.privacy import public
from anabranch.net.net import Net
from anabranch.operations.runs.approvals import Approval
from anabranch.operations.runs.earlier_decision import TOO_LATE, earlier
from anabranch.operations.runs.verbs import decision
from anabranch.surfaces.http.guard.auth import CALLER
from anabranch.surfaces.ui.context import Ui, actor_of, form_of, see, show, text_of, ui_of
from anabranch.surfaces.ui.guard import understood
from anabranch.surfaces.ui.rendering import as_json
from anabranch.surfaces.ui.views.forms import read_json

SHOWN = 50
NAME_MAX = 100
VERDICTS = {"fulfil": "fulfilled", "reject": "rejected", "ask_again": "asked_again"}


async def inbox(request: web.Request) -> web.StreamResponse:
    """The newest first; older ones on the next page."""
    ui = ui_of(request)
    mine = request.query.get("mine", "") == "yes"
    before = _before(request.query.get("before", ""))
    actor = actor_of(request) if mine else None
    rows = await ui.look(
        lambda by: ui.approvals.page(by.store, before=before, actor=actor, limit=SHOWN + 1)
    )
    last = rows[SHOWN - 1] if len(rows) > SHOWN else None
    return show(
        request,
        "approvals.html",
        gates=[(row, await _around(ui, row, speaker(request))) for row in rows[:SHOWN]],
        speaker=speaker(request),
        older=f"{last.since}.{last.run}.{last.gate}" if last is not None else "",
        first=before is None,
        mine=mine,
    )


def _before(text: str) -> tuple[int, str, str] | None:
    if not text:
        return None
    since, _, rest = text.partition(".")
    run, _, gate = rest.partition(".")
    if not since.isdecimal() or len(since) > 16:
        raise InputError("the address names a page that does not exist; start at /approvals")
    return int(since), run, gate


async def count(request: web.Request) -> web.StreamResponse:
    """How many are open, for the navigation of pages that are looked at."""
    ui = ui_of(request)
    return as_json({"open": await ui.look(lambda by: ui.approvals.count(by.store))})


class Speaker(msgspec.Struct, frozen=True):
    """Who answers: a token speaks for its name alone; at a server that needs none, people say who
    they are, as with `--actor` at a terminal."""

    name: str
    may_name: bool

    def may_answer(self, actors: Sequence[str]) -> bool:
        return self.may_name or not actors or self.name in actors


def speaker(request: web.Request) -> Speaker:
    caller = request.get(CALLER)
    return Speaker(actor_of(request), caller is None or not caller.token)


def _named(request: web.Request, form: Any) -> str:
    """As whom the form answers; the audit trail gets the same name."""
    who, named = speaker(request), text_of(form, "as").strip()
    if not named or named == who.name:
        return who.name
    if not who.may_name:
        raise InputError(f"your token speaks for {who.name}, not for {named[:NAME_MAX]!r}")
    if len(named) > NAME_MAX or not named.isprintable():
        raise InputError(f"a name has at most {NAME_MAX} printable letters")
    if CALLER in request:
        request[CALLER] = msgspec.structs.replace(request[CALLER], actor=named)
    return named


async def _around(ui: Ui, row: Approval, who: Speaker) -> dict[str, Any]:
    """What else there is to look at before somebody decides."""
    head = ui.head(row.run)
    state, net = await ui.state(head), ui.net(head)
    rules = net.steps[row.step].admission if row.step in net.steps else None
    before = {
        name: public(state.results[name], net.private)
        for name in _led_here(net, row.step)
        if name in state.results
    }
    return {
        "before": await ui.look(lambda by: by.read.whole(before)),
        "does": net.steps[row.step].description if row.step in net.steps else "",
        "input": public(dict(state.workload), net.private),
        "context": public(dict(state.ctx), net.private),
        "command": _command(row),
        "asked": who.may_answer(row.actors),
        "rules": [rule.guard.text for rule in rules.rules if rule.guard] if rules else [],
    }


def _led_here(net: Net, step: str) -> list[str]:
    """The steps with an arc to this one: what they came to is what is decided about."""
    return [
        name
        for name, one in net.steps.items()
        if any(arc.target == step for branch in one.branches for arc in branch.arcs)
    ]


def _command(row: Approval) -> str:
    """How somebody who is asked answers at a terminal, where they say who they are."""
    answer = ("--ask-again",) if row.source else ("--fulfil",)
    actor = ("--actor", row.actors[0]) if row.actors else ()
    words = ("anabranch", "decide", row.run, row.gate, *answer, *actor)
    return shlex.join(words)


async def decide(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    verdict = text_of(form, "verdict")
    if verdict not in VERDICTS:
        raise InputError("a question is answered with fulfil or reject")
    reason = text_of(form, "reason").strip()
    if verdict == "reject" and not reason:
        raise InputError("give a reason for the rejection: the requester will read it")
    run, gate = request.match_info["run"], request.match_info["gate"]
    override = text_of(form, "override") == "yes" and verdict != "ask_again"
    actor = _named(request, form)
    evidence = await understood(request, _evidence, form)
    said = decision(gate, verdict, actor, reason, evidence, override=override)
    ui = ui_of(request)
    try:
        await ui.parts.verbs.send(run, said)
    except Refused as error:
        if error.code not in TOO_LATE:
            raise
        head = ui.head(run)
        before = await ui.look(lambda by: earlier(by.store, head.run, gate))
        return show(
            request, "too_late.html", 409, before=before, head=head, verdict=verdict,
            reason=reason, said=error.message,
        )  # fmt: skip
    raise see("/approvals", VERDICTS[verdict])


def _evidence(form: Any) -> Any:
    """Plain words are evidence too; what looks like JSON must be JSON."""
    text = text_of(form, "evidence").strip()
    if not text:
        return None
    if text[0] not in "{[":
        return text
    try:
        return read_json(text, "it")
    except InputError as error:
        said = f"the evidence is neither plain words nor JSON: {error.message}"
        raise InputError(said) from None
