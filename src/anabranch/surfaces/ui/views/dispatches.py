"""What a run asked of whom, and what its steps left behind: dispatches, receipts, the snapshot.

Answers are not on these pages: each has an address of its own, and a page only says how large it
is. They may be large, and they are somebody else's words.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from aiohttp import web

from anabranch.errors import AnabranchError, NotFound
from anabranch.kernel.privacy import public
from anabranch.kernel.routing import names_of_run
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.operations.read.dispatches import Dispatch, by_step
from anabranch.runtime.values.payloads import resolve
from anabranch.store.ports import Head
from anabranch.surfaces.http.io.readers import ReadHandle
from anabranch.surfaces.ui.context import Ui, run_of, show
from anabranch.surfaces.ui.pages.run import frame, run_path
from anabranch.surfaces.ui.rendering import as_json, html, rendered
from anabranch.work.participants.port import is_negative
from anabranch.work.values.payloads import REF, is_ref

ROWS_SHOWN = 200
_LOOKS = {"pending": "active", "responded": "done", "timeout": "failed", "cancelled": "quiet"}


class DispatchRow(msgspec.Struct, frozen=True):
    """One request, as a row."""

    id: str
    target: str
    status: str
    look: str
    became: str
    score: str
    attempt: int
    asked_at: int
    until: int  # 0: no limit
    took: int | None
    size: int | None  # of the answer; None where there is none
    chosen: bool


class DispatchView(msgspec.Struct, frozen=True):
    """All requests of one step."""

    step: str
    service: str
    filter: Any
    sent: Any  # what each of them was sent
    sent_problem: str
    rows: list[DispatchRow]
    more: int
    counts: list[tuple[str, str, int]]


async def page(request: web.Request) -> web.StreamResponse:
    ui, head = run_of(request)
    steps = await ui.look(lambda by: _askings(by, head, ui.net(head)))
    given = await frame(ui, head, "dispatches")
    return show(request, "dispatches.html", askings=steps, **given)


async def panel(request: web.Request) -> web.StreamResponse:
    """Only the tables, for a page that follows the run."""
    ui, head = run_of(request)
    steps = await ui.look(lambda by: _askings(by, head, ui.net(head)))
    values = {"askings": steps, "base": run_path(head.run), "finished": head.finished}
    return html(rendered("dispatches_panel.html", values))


async def answer(request: web.Request) -> web.StreamResponse:
    """What one participant answered, in full."""
    ui, head = run_of(request)
    wanted = request.match_info["dispatch"]

    def found(by: ReadHandle) -> Any:
        for one in by.read.dispatches(head.run):
            if one.record.dispatch_id == wanted and one.record.status == "responded":
                return resolve(one.record.response, by.store.payload)
        raise NotFound(f"run {head.run} has no answer to {wanted[:100]!r}")

    return as_json(await ui.look(found), indent=2)


async def snapshot(request: web.Request) -> web.StreamResponse:
    """The run as a `WorkflowRunSnapshot`."""
    ui, head = _of_dialect(request, "arca", "a workflow definition")
    return as_json(await ui.look(lambda by: by.read.snapshot(head.run)), indent=2)


async def receipts(request: web.Request) -> web.StreamResponse:
    ui, head = _of_dialect(request, "xrc729", "an orchestration")
    found = await ui.look(lambda by: by.sessions.receipts(head.run))
    given = await frame(ui, head, "receipts")
    shown = found[-ROWS_SHOWN:][::-1]
    return show(request, "receipts.html", receipts=shown, total=len(found), **given)


async def receipts_panel(request: web.Request) -> web.StreamResponse:
    ui, head = _of_dialect(request, "xrc729", "an orchestration")
    found = await ui.look(lambda by: by.sessions.receipts(head.run))
    values = {"receipts": found[-ROWS_SHOWN:][::-1], "total": len(found), "finished": head.finished}
    return html(rendered("receipts_panel.html", values))


def _of_dialect(request: web.Request, dialect: str, what: str) -> tuple[Ui, Head]:
    ui, head = run_of(request)
    if head.dialect != dialect:
        raise NotFound(f"run {head.run} is not of {what}")
    return ui, head


# -- rows ------------------------------------------------------------------------------------------


def _askings(by: ReadHandle, head: Head, net: Net) -> list[DispatchView]:
    """By step, the last one that asked first."""
    found = by_step(by.read.dispatches(head.run))
    state = by.read.state(head.run)
    return [_asking(by, net, state, name, asked) for name, asked in reversed(list(found.items()))]


def _asking(
    by: ReadHandle, net: Net, state: State, step: str, asked: Sequence[Dispatch]
) -> DispatchView:
    facts, problem = _sent(by, net, state, step)
    limit = facts.get("timeout_ms")
    rows = sorted((_request(one, limit) for one in asked), key=lambda row: -row.attempt)
    counts = Counter(row.status for row in rows)
    return DispatchView(
        step=step,
        service=str(facts.get("service_type") or ""),
        filter=facts.get("filter"),
        sent=public(facts.get("input"), net.private),
        sent_problem=problem,
        rows=rows[:ROWS_SHOWN],
        more=max(0, len(rows) - ROWS_SHOWN),
        counts=[(word, _LOOKS[word], count) for word, count in counts.items()],
    )


def _sent(by: ReadHandle, net: Net, state: State, step: str) -> tuple[Mapping[str, Any], str]:
    """What every participant of the step was sent: worked out again from what the run knows.

    It comes to the same: the input of a run does not change, and neither do the outputs of steps
    that had ended before this one asked.
    """
    work = net.steps[step].work
    if work is None or work.inputs is None:
        return {}, ""
    names = names_of_run(state) | {"args": {}, "payload": {}, "slot": ""}
    try:
        results = {name: resolve(value, by.store.payload) for name, value in state.results.items()}
        facts = work.inputs.evaluate({**names, "results": results})
    except AnabranchError as error:
        return {}, error.message
    return (facts, "") if isinstance(facts, Mapping) else ({}, "")


def _request(one: Dispatch, limit_ms: int | None) -> DispatchRow:
    record = one.record
    asked_at = _milliseconds(record.dispatched_at)
    answered = record.responded_at
    return DispatchRow(
        id=record.dispatch_id,
        target=record.target,
        status=record.status,
        look=_LOOKS[record.status],
        became=_became(one),
        score="" if one.score is None else f"{one.score:g}",
        attempt=one.attempt,
        asked_at=asked_at,
        until=asked_at + limit_ms if limit_ms else 0,
        took=_milliseconds(answered) - asked_at if answered else None,
        size=_size(record.response) if record.status == "responded" else None,
        chosen=one.selected,
    )


def _became(one: Dispatch) -> str:
    if one.selected:
        return "chosen"
    if one.late_at:
        return "answered too late: recorded, and nothing else"
    match one.outcome:
        case "unreachable":
            return "could not be reached"
        case "negative":
            return _no(one.record.response, one.reason)
        case "usable":
            return "usable"
    match one.record.status:
        case "pending":
            return "no answer yet"
        case "timeout":
            return "did not answer in time"
        case "cancelled":
            return "the step went on without it"
        case _:
            return ""


def _no(said: Any, reason: str) -> str:
    if not is_negative(said):
        return "no number to compare" if reason in ("", "no score") else reason
    error = said.get("error") if isinstance(said, Mapping) else None
    code = error.get("code") if isinstance(error, Mapping) else None
    status = said.get("status") if isinstance(said, Mapping) else None
    word = str(code or status or "")[:60]
    return f"said no: {word}" if word else "said no"


def _size(answer: Any) -> int:
    if is_ref(answer):
        return int(answer[REF].get("bytes", 0))
    return len(json.dumps(answer, ensure_ascii=False, default=str).encode())


def _milliseconds(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)
