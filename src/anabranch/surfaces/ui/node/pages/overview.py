"""The node at a glance: who it is, how much is open, and what waits for the operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from aiohttp import web

from anabranch.surfaces.ui.node.frame import Refusal, ask, part, show
from anabranch.surfaces.ui.node.run_facts import awaiting_decision
from anabranch.surfaces.ui.node.run_reader import RUNS
from anabranch.surfaces.ui.node.views import short_id

OPEN_READ = 200  # open things that are looked through; more of them are counted as "200 or more"

STEPS_NAMED = 20  # of a run, of those that wait for a decision

#: What the operator may do about an execution in this state.
WAITS = {
    "opened": "was opened and not sent",
    "awaiting_acceptance": "has a result that waits to be accepted or disputed",
    "awaiting_manual_release": "has a result that waits to be released",
    "disputed": "is disputed and waits to be resolved",
}


class Task(NamedTuple):
    """Something that needs the operator."""

    look: str
    word: str
    what: str
    text: str
    way: str


class Found(NamedTuple):
    """The answers that the page is made of."""

    is_well: bool
    status: Any
    directory: Any
    modules: Any
    peers: Any
    account: Any
    orders: Any
    requests: Any
    deliveries: Any
    told: Any
    runs: Any


async def page(request: web.Request) -> web.StreamResponse:
    found = await _found(request)
    ready = sum(one["ready"] for one in found.modules)
    return show(
        request,
        "node/overview.html",
        tasks=list(_tasks(found)),
        ready=ready,
        most=OPEN_READ,
        **found._asdict(),
    )


async def _found(request: web.Request) -> Found:
    async def items(path: str, **query: str) -> Any:
        return (await ask(request, "GET", path, query=query))["items"]

    opened = {"open": "true", "limit": str(OPEN_READ)}
    return Found(
        is_well=await _is_well(request),
        status=await ask(request, "GET", "/v1/status"),
        directory=await ask(request, "GET", "/v1/directory"),
        modules=await items("/v1/modules"),
        peers=await items("/v1/peers"),
        account=await ask(request, "GET", "/v1/ledger/account"),
        orders=await items("/v1/executions", **opened),
        requests=await items("/v1/inbox", **opened),
        deliveries=await items("/v1/artifact-delivery/deliveries", **opened),
        told=await items("/v1/notifications", limit="5"),
        runs=await items(RUNS, status="active", limit=str(OPEN_READ)),
    )


async def _is_well(request: web.Request) -> bool:
    try:
        await ask(request, "GET", "/healthz")
    except Refusal:
        return False
    return True


def _tasks(found: Found) -> Iterator[Task]:
    if not found.is_well:
        said = "cannot write its state: look into its log, mend it, and start the node again"
        yield Task("failed", "failed", "The node", said, "")
    yield from _of_modules(found.modules)
    for request in found.requests:
        what = f"{request['service_type']} for {short_id(request['source/peer'])}"
        yield Task("waiting", "answer", what, "waits for an answer", "/inbox")
    for run in found.runs:
        for step in awaiting_decision(run)[:STEPS_NAMED]:
            what = f"{step} of {run['workflow_id'] or short_id(run['run_id'])}"
            said = "waits for your decision whether its task is fulfilled"
            way = f"/runs/{part(run['run_id'])}#step-{part(step)}"
            yield Task("waiting", "decide", what, said, way)
    for order in found.orders:
        if order["state"] in WAITS:
            name = order["execution_id"]
            what = f"{order['service_type']} ({short_id(name)})"
            late = ", and the time to accept has passed" if order["acceptance_overdue"] else ""
            word = "decide" if order["state"] != "opened" else "send"
            yield Task("waiting", word, what, WAITS[order["state"]] + late, f"/orders/{part(name)}")
    for one in found.deliveries:
        if one["status"] == "failed-retryable":
            name = one["delivery/id"]
            said = f"failed for now: {one.get('diagnostic') or one.get('failure/class')}"
            yield Task("waiting", "retries", short_id(name), said, f"/deliveries/{part(name)}")
    for one in found.peers:
        if one["status"] == "unreachable":
            said = f"does not answer: {one['error']}"
            yield Task("failed", "away", short_id(one["node_id"]), said, "/peers")
    for seed in found.directory["seeds"]:
        if seed["error"] or seed["publish_error"]:
            said = f"{seed['error'] or seed['publish_error']}"
            yield Task("failed", "seed", seed["url"], said, "/directory")


def _of_modules(modules: Any) -> Iterator[Task]:
    for one in modules:
        if one["ready"] and not one["conflicts"]:
            continue
        if one["state"] in ("stopped", "starting", "configured", "stopping"):
            continue  # as the operator wants it, or soon over
        last = one["last_problem"]
        said = last["message"] if last else "; ".join(one["conflicts"]) or "is not ready"
        way = f"/modules/{part(one['module_id'])}"
        yield Task("failed", one["state"], f"Module {one['module_id']}", said, way)
