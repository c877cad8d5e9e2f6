"""Orders of this node: how each execution stands, its documents, and what the operator decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from aiohttp import web

from anabranch.surfaces.ui.node.frame import (
    Refusal,
    Trouble,
    ask,
    form_of,
    maybe,
    older,
    page_query,
    part,
    see,
    show,
    trouble,
)
from anabranch.surfaces.ui.node.views import look as look_of

EXECUTIONS, RUNS = "/v1/executions", "/v1/module/workflow/runs"
WORKING = ("opened", "dispatch_prepared", "dispatched")
#: What can be said to an execution in a state; the node refuses the rest.
VERBS: dict[str, tuple[str, ...]] = {
    "opened": ("dispatch",),
    "dispatch_prepared": ("dispatch",),
    "awaiting_acceptance": ("accept", "release", "dispute"),
    "awaiting_manual_release": ("accept", "release"),
    "disputed": ("resolve-payer", "resolve-payee"),
}
DEADLINES = {
    "work_by": "The provider has to answer; later the order expires",
    "accept_by": "The payer should have accepted",
    "dispute_by": "A dispute is possible until then",
    "auto_release": "Without a word the money is released",
}


#: Which of them can still pass, by the state.
DUE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(WORKING, ("work_by",)),
    "awaiting_acceptance": ("accept_by", "dispute_by", "auto_release"),
}


class Moment(NamedTuple):
    """Something that happened to an execution, or will."""

    at: str
    what: str
    look: str
    detail: str = ""
    is_ahead: bool = False


async def page(request: web.Request) -> web.StreamResponse:
    found = await ask(request, "GET", EXECUTIONS, query=page_query(request, "open"))
    return show(
        request,
        "node/orders.html",
        orders=found["items"],
        is_open=request.query.get("open") == "true",
        older=older(request, found),
    )


async def one(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    name = request.match_info["execution"]
    found = await ask(request, "GET", f"{EXECUTIONS}/{part(name)}")
    delivery = await maybe(request, "/v1/artifact-delivery/deliveries", found["delivery_id"])
    return show(
        request,
        "node/order.html",
        wrong,
        execution=found,
        verbs=VERBS.get(found["state"], ()),
        moments=[*_past(found, delivery), *_ahead(found)],
        delivery=delivery,
        run=await maybe(request, RUNS, found["workflow"]["run_id"]),
        contract=await maybe(request, "/v1/contracts", found["contract_id"]),
        hold=await maybe(request, "/v1/ledger/holds", found["hold_id"]),
        receipt=await maybe(request, "/v1/receipts", found["receipt_id"]),
        result=await _result(request, found),
    )


async def act(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    name, said = request.match_info["execution"], form.get("verb", "")
    verb, _, party = said.partition("-")
    body: dict[str, Any] | None = {"reason": form.get("reason", "")}
    if verb == "resolve":
        body = {"reason": form.get("reason", ""), "for": party}
    elif verb == "dispatch":
        body = None
    try:
        if not any(said in verbs for verbs in VERBS.values()):
            raise Refusal(400, "verb", "choose one of the buttons of this page")
        await ask(request, "POST", f"{EXECUTIONS}/{part(name)}/{verb}", body)
    except Refusal as refusal:
        return await one(request, trouble(refusal, "act", form))
    raise see(f"/orders/{part(name)}", verb)


async def _result(request: web.Request, found: Any) -> Any:
    if not found["result"]:
        return None
    try:
        return await ask(request, "GET", f"{EXECUTIONS}/{part(found['execution_id'])}/result")
    except Refusal as refusal:
        if refusal.status != 404:
            raise
        return None


def _past(found: Any, delivery: Any) -> Iterator[Moment]:
    amount = f"{found['payment']['amount']:,} {found['payment']['currency']}"
    held = f"{amount} on hold" if found["hold_id"] else amount
    yield Moment(found["opened_at"], "opened", "done", held)
    if delivery is not None:
        yield Moment(delivery["submitted-at"], "sent to the provider", "done")
        if delivery["status"] == "succeeded":
            yield Moment(delivery["updated-at"], "delivered", "done")
        elif delivery.get("diagnostic"):
            yield Moment(
                delivery["updated-at"], "delivery failed", "failed", delivery["diagnostic"]
            )
    taken = found["result"]
    if taken:
        error = taken.get("error") or {}
        look = "done" if taken["status"] == "completed" else "failed"
        yield Moment(taken["received_at"], f"result: {taken['status']}", look,
                     error.get("message", ""))  # fmt: skip
    for refused in found["refused_results"]:
        yield Moment(refused["received_at"], "another result was refused", "quiet",
                     refused.get("reason", ""))  # fmt: skip
    if found["state"] not in WORKING:
        by = f"by {found['actor']}" if found["actor"] else ""
        why = found["reason"] or ""
        detail = ": ".join(text for text in (by, why) if text)
        yield Moment(
            found["updated_at"], found["state"].replace("_", " "), look_of(found["state"]), detail
        )


def _ahead(found: Any) -> Iterator[Moment]:
    """Deadlines that still matter in the state that it is in."""
    for name in DUE.get(found["state"], ()):
        yield Moment(found["deadlines"][name], "due", "plain", DEADLINES[name], True)
