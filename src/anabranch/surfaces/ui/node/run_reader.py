"""What the node knows about a run and its orders: one question after another, each bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from anabranch.market.node.delivery.admission_records import admission_id_of
from anabranch.market.node.delivery.envelope import RESULT
from anabranch.surfaces.ui.node import run_facts
from anabranch.surfaces.ui.node.frame import ask, maybe, part

RUNS = "/v1/module/workflow/runs"
EXECUTIONS = "/v1/executions"
DELIVERIES = "/v1/artifact-delivery/deliveries"
PAGES_READ = 4  # of 500 executions each; a run has at most 1000 steps, some of them tried again
STEPS_SHOWN = 20  # of a run on one page
EARLIER_SHOWN = 10  # orders of earlier attempts of a step


class Trail(msgspec.Struct, frozen=True, kw_only=True):
    """An order from its offer to its receipt; None is what there is not (yet)."""

    execution: Mapping[str, Any]
    offer: Any = None
    hold: Any = None
    delivery: Any = None
    operation: Any = None
    admission: Any = None
    receipt: Any = None


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    step: Mapping[str, Any]
    is_ended: bool
    words: str
    asked: Sequence[run_facts.Asked] = ()
    offers: Sequence[run_facts.Compared] = ()
    trail: Trail | None = None
    earlier: Sequence[Mapping[str, Any]] = ()  # executions of attempts before
    output: run_facts.Preview | None = None


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    run: Mapping[str, Any]
    words: str
    ended: int
    money: Sequence[run_facts.Money]
    orders: int
    steps: Sequence[StepView]
    begins: int  # the position of the first of these steps


async def read_run(
    request: web.Request, run_id: str, begins: int = 0, step_id: str = ""
) -> RunView:
    """The page of its steps that begins there, or that this step is on. Raises `Refusal` where
    there is no such run."""
    run = await ask(request, "GET", f"{RUNS}/{part(run_id)}")
    executions = await _executions(request, run_id)
    names = [step["step_id"] for step in run["steps"]]
    if step_id in names:
        begins = names.index(step_id) // STEPS_SHOWN * STEPS_SHOWN
    begins = begins if begins < len(names) else 0
    shown = run["steps"][begins : begins + STEPS_SHOWN]
    return RunView(
        run=run,
        words=run_facts.in_words(run.get("error")),
        ended=run_facts.progress(run)[0],
        money=run_facts.money_of(executions),
        orders=len(executions),
        steps=[await _step(request, step, executions) for step in shown],
        begins=begins,
    )


async def _executions(request: web.Request, run_id: str) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    query = {"run_id": run_id, "limit": "500"}
    for _ in range(PAGES_READ):
        answer = await ask(request, "GET", EXECUTIONS, query=query)
        found += answer["items"]
        if not answer.get("next"):
            break
        query["before"] = answer["next"]
    return found


async def _step(
    request: web.Request, step: Mapping[str, Any], executions: Sequence[Mapping[str, Any]]
) -> StepView:
    name = step.get("execution_id") or ""
    own = next((one for one in executions if one["execution_id"] == name), None)
    same = [one for one in executions if one["workflow"]["phase_id"] == step["step_id"]]
    ordered = frozenset(one["offer_id"] for one in executions)
    output = step.get("selected_output", step.get("output"))
    asks = not step.get("order_id")  # of an order, the trail says more than its dispatch
    return StepView(
        step=step,
        is_ended=step["status"] in run_facts.CLOSED_STEPS,
        words=run_facts.in_words(step.get("error")),
        asked=run_facts.asked_of(step) if asks else (),
        offers=run_facts.compared(step, await _offers(request, step), ordered) if asks else (),
        trail=await _trail(request, step, own) if own else None,
        earlier=[one for one in same if one["execution_id"] != name][:EARLIER_SHOWN],
        output=run_facts.preview(output) if output is not None else None,
    )


async def _offers(request: web.Request, step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of the service that a fan-out asked for."""
    if not step["dispatches"] or not step.get("service_type"):
        return []
    query = {
        "source": "all",
        "service_type": step["service_type"],
        "active_only": "false",
        "limit": "500",
    }
    found = await ask(request, "GET", "/v1/service-offers", query=query)
    return [*found["local_offers"], *found["observed_offers"]]


async def _trail(
    request: web.Request, step: Mapping[str, Any], execution: Mapping[str, Any]
) -> Trail:
    operation = (step.get("delivery") or {}).get("operation_id")
    return Trail(
        execution=execution,
        offer=await maybe(request, "/v1/service-offers", execution["offer_id"]),
        hold=await maybe(request, "/v1/ledger/holds", execution["hold_id"]),
        delivery=await maybe(request, DELIVERIES, execution["delivery_id"]),
        operation=await maybe(request, "/v1/deferred-operations", operation, "/status"),
        admission=await maybe(
            request, "/v1/artifact-delivery/admissions", _admission_of(execution)
        ),
        receipt=await maybe(request, "/v1/receipts", execution["receipt_id"]),
    )


def _admission_of(execution: Mapping[str, Any]) -> str:
    """Under which id the result came in; "" while there is none."""
    workflow = execution["workflow"]
    if not (execution["result"] and workflow["run_id"] and execution["request_id"]):
        return ""
    return admission_id_of(
        execution["provider"]["node_id"],
        RESULT,
        workflow["run_id"],
        workflow["phase_id"] or "",
        execution["request_id"],
    )
