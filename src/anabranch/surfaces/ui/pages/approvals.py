"""The inbox: what waits for a decision, over all runs, and the two answers to it."""

from __future__ import annotations

import json
import shlex
from typing import Any

from aiohttp import web

from anabranch.errors import InputError, Refused
from anabranch.kernel.privacy import public
from anabranch.operations.runs.approvals import Approval
from anabranch.operations.runs.earlier_decision import TOO_LATE, earlier
from anabranch.operations.runs.verbs import decision
from anabranch.surfaces.ui.context import Ui, actor_of, form_of, see, show, text_of, ui_of

SHOWN = 50
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
        gates=[(row, _around(ui, row, actor_of(request))) for row in rows[:SHOWN]],
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


def _around(ui: Ui, row: Approval, actor: str) -> dict[str, Any]:
    """What else there is to look at before somebody decides."""
    head = ui.head(row.run)
    state, net = ui.state(head), ui.net(head)
    rules = net.steps[row.step].admission if row.step in net.steps else None
    return {
        "input": public(dict(state.workload), net.private),
        "context": public(dict(state.ctx), net.private),
        "command": _command(row),
        "asked": not row.actors or actor in row.actors,
        "rules": [rule.guard.text for rule in rules.rules if rule.guard] if rules else [],
    }


def _command(row: Approval) -> str:
    """How somebody who is asked answers at a terminal, where they say who they are."""
    answer = ("--ask-again",) if row.source else ("--fulfil",)
    words = ("anabranch", "decide", row.run, row.gate, *answer, "--actor", *row.actors[:1])
    return shlex.join(words)


async def decide(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    verdict = text_of(form, "verdict")
    if verdict not in VERDICTS:
        raise InputError("a gate is answered with fulfil or reject")
    reason = text_of(form, "reason").strip()
    if verdict == "reject" and not reason:
        raise InputError("give a reason for the rejection: the requester will read it")
    run, gate = request.match_info["run"], request.match_info["gate"]
    override = text_of(form, "override") == "yes" and verdict != "ask_again"
    said = decision(gate, verdict, actor_of(request), reason, _evidence(form), override=override)
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
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"the evidence is neither plain words nor JSON: {error}") from None
