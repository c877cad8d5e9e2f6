"""Runs that modules of this node carry out: what each step asked, bought and got, and what people
say about it."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from anabranch.surfaces.ui.node import run_facts
from anabranch.surfaces.ui.node.arca import ask_arca
from anabranch.surfaces.ui.node.frame import (
    Refusal,
    Trouble,
    ask,
    form_of,
    number_in,
    older,
    page_query,
    part,
    see,
    show,
    trouble,
)
from anabranch.surfaces.ui.node.run_reader import RUNS, STEPS_SHOWN, read_run

#: The parts of the list that can be asked for.
STATES = ("active", "paused", "completed", "failed")


async def page(request: web.Request) -> web.StreamResponse:
    found = await ask(request, "GET", RUNS, query=page_query(request, "status"))
    return show(
        request,
        "node/runs.html",
        runs=[(run, run_facts.progress(run), run_facts.current(run)) for run in found["items"]],
        status=request.query.get("status", ""),
        states=STATES,
        older=older(request, found),
    )


async def one(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    name = request.match_info["run"]
    begins = number_in(request.query.get("from") or "0", "`from`")
    view = await read_run(request, name, begins, request.match_info.get("step", ""))
    total, deciding = len(view.run["steps"]), run_facts.awaiting_decision(view.run)
    return show(
        request,
        "node/run.html",
        wrong,
        view=view,
        run=view.run,
        verbs=run_facts.VERBS.get(view.run["status"], ()),
        deciding=deciding,
        closed=run_facts.CLOSED_STEPS,
        places=[
            f"step-{one.step['step_id']}" for one in view.steps if one.step["step_id"] in deciding
        ],  # where a form is
        total=total,
        shown=STEPS_SHOWN,
        most=run_facts.DISPATCHES_SHOWN,
        before=max(view.begins - STEPS_SHOWN, 0) if view.begins else None,
        after=view.begins + STEPS_SHOWN if view.begins + STEPS_SHOWN < total else None,
    )


async def act(request: web.Request) -> web.StreamResponse:
    form, name = await form_of(request), request.match_info["run"]
    verb = form.get("verb", "")
    try:
        if not any(verb in verbs for verbs in run_facts.VERBS.values()):
            raise Refusal(400, "verb", "choose one of the buttons of this page")
        said = {"reason": form.get("reason", ""), "actor": "operator"}
        await ask_arca(request, "POST", f"/runs/{part(name)}/{verb}", said)
    except Refusal as refusal:
        return await one(request, trouble(refusal, "act", form))
    raise see(f"/runs/{part(name)}", f"run_{verb}")


async def decide(request: web.Request) -> web.StreamResponse:
    """Whether the task of a step is fulfilled, in the name of the operator."""
    form, run, step = await form_of(request), request.match_info["run"], request.match_info["step"]
    said = form.get("fulfilled", "")
    try:
        if said not in ("yes", "no"):
            raise Refusal(400, "fulfilled", "choose one of the buttons of this page")
        if said == "no" and not form.get("reason"):
            raise Refusal(400, "reason", "say why the task is not fulfilled")
        body: dict[str, Any] = {
            "fulfilled": said == "yes",
            "reason": form.get("reason", ""),
            "actor": "operator",
        }
        await ask_arca(request, "POST", f"/runs/{part(run)}/steps/{part(step)}/confirm", body)
    except Refusal as refusal:
        return await one(request, trouble(refusal, f"step-{step}", form))
    raise see(f"/runs/{part(run)}", "fulfilled" if said == "yes" else "not_fulfilled")
