"""The kind `request`: an ordinary step orders from the one provider that was chosen for it.

The host has the truth about an order. A step that is done again looks for the execution of its
attempt first, and goes on with what is there:

    no execution ─▶ order ─▶ opened ─▶ request sent ─▶ dispatched ─▶ … ─▶ released: the output
                      └─▶ rejected: a fault                           └─▶ failed, rejected, expired

Until the execution has ended the step waits, also where people have to accept or release, and also
while the host is away. A step that is given up (its time is over, the run was cancelled) leaves its
order to the host: the provider may be at work, and the money is settled by what becomes of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from anabranch.clock import Clock
from anabranch.kernel.values import Answer, succeeded
from anabranch.market.node.buying.dispatching import dispatch_request, envelope_of
from anabranch.market.node.deferred.records import operation_id_of
from anabranch.market.node.delivery.views import OPERATION_KIND, PATH
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.details import StepDetails
from anabranch.modules.arca.results import Results
from anabranch.modules.arca.work.attempts import Attempt, attempt_of
from anabranch.modules.arca.work.drafts import OfferChoice, order_draft
from anabranch.modules.arca.work.patience import Patience, Pauses
from anabranch.modules.arca.work.ports import Offers
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable
from anabranch.work.faults import fault
from anabranch.work.participants.performers import NOT_ORDERED, ORDER_EXPIRED, UNREACHABLE
from anabranch.work.port import Task, whole

Execution = Mapping[str, Any]

#: The request is to be sent; in every later state the provider has it, or the order has ended.
UNSENT = ("opened", "dispatch_prepared")
#: Classes after which the catalog has to hear of the offer again.
STALE = ("offer-expired", "offer-seq-mismatch")
#: The request carries the input three times, and a delivery takes 4 MiB.
INPUT_BYTES = 1024 * 1024
AWAITING = "awaiting_execution"


class ServiceOrder:
    def __init__(
        self,
        host: Host,
        offers: Offers,
        details: StepDetails,
        results: Results,
        clock: Clock,
        config: ArcaConfig,
        component: Callable[[], str],
    ) -> None:
        self._host = host
        self._offers = offers
        self._details = details
        self._results = results
        self._clock = clock
        self._config = config
        self._component = component
        self._patience = Patience(config)

    async def perform(self, task: Task) -> Answer:
        attempt = attempt_of(task)
        with self._results.awaiting(attempt) as woken:
            try:
                execution = await self._opened(task, attempt)
                if isinstance(execution, Answer):
                    return execution
                execution = await self._sent(attempt, execution)
                execution = await self._ended(attempt, execution, woken)
                answer = await self._answer(task, attempt, execution)
            except HostRefused as error:
                return _refused_by_host(attempt, error)
        return whole(answer) if task.inputs.get("whole") else answer

    # -- the order ---------------------------------------------------------------------------

    async def _opened(self, task: Task, attempt: Attempt) -> Execution | Answer:
        """The execution of this attempt: the one that is there, or a new one."""
        found = await self._execution(attempt)
        if found is None:
            self._details.note(
                attempt.run, attempt.step, status="resolving", attempt=task.tries,
                order_id=None, execution_id=None, contract_id=None, receipt_id=None, delivery=None,
            )  # fmt: skip
            refused = await self._order(task, attempt)
            if refused is not None:
                return refused
            found = await self._execution(attempt)
        if found is None:
            return fault("order", f"{attempt.execution_id} was opened and is not there")
        lineage = found["workflow"]
        if (lineage["run_id"], lineage["phase_id"]) != (attempt.run, attempt.step):
            message = f"{attempt.order_id} is an order of something else"
            return fault("order", message, code="order_conflict", retryable=False)
        self._note(attempt, found)
        return found

    async def _order(self, task: Task, attempt: Attempt) -> Answer | None:
        """Open an execution; where that cannot be, why."""
        if problem := _input_problem(task.inputs.get("input")):
            return fault("config", f"step {attempt.step}: {problem}", code="input")
        wish = OfferChoice.of(task)
        chosen = wish.choose(self._offers)
        if chosen is None:
            await self._offers.refresh()
            chosen = wish.choose(self._offers)
        if chosen is None:
            code, message = wish.why_none(self._offers)
            return fault(NOT_ORDERED, message, code=code, retryable=False)
        draft = order_draft(task, attempt, wish, chosen, self._clock.now())
        try:
            said = await self._patience.ask(lambda: self._host.submit_order(draft))
        except HostRefused as error:
            if error.code == "order_conflict":  # opened meanwhile by who was taken for lost
                return None
            raise
        return await self._rejected(attempt, said) if said["status"] == "rejected" else None

    async def _rejected(self, attempt: Attempt, said: Mapping[str, Any]) -> Answer:
        classifier = str(said["classifier"])
        if classifier in STALE:
            await self._offers.refresh()
        message = f"{attempt.order_id} was rejected: {said.get('rejected-reason', '')}"
        again = bool(said.get("retryable"))
        return fault(NOT_ORDERED, message, code=classifier, details=dict(said), retryable=again)

    # -- the request to the provider ---------------------------------------------------------

    async def _sent(self, attempt: Attempt, execution: Execution) -> Execution:
        """The request follows from the order that the host has, so it is the same delivery however
        often it is handed in."""
        while execution["state"] in UNSENT:
            try:
                operation = await self._host.deliver(self._envelope(attempt, execution))
            except HostUnavailable:
                pass
            except HostRefused as error:
                if error.code != "execution_closed":
                    raise
            else:
                self._note(attempt, execution, _delivery(operation))
                return execution
            await asyncio.sleep(self._config.host_retry_first_ms / 1000)
            execution = await self._execution(attempt) or execution  # it may be over by now
        return execution

    def _envelope(self, attempt: Attempt, execution: Execution) -> dict[str, Any]:
        order = execution["order"]
        request = dispatch_request(
            order,
            execution["execution_id"],
            execution["deadlines"]["work_by"],
            order["buyer/node-id"],
            request_id=attempt.request_id,
            dispatch_id=attempt.dispatch_id,
            reply_plan=self._config.reply_plan,
        )
        return envelope_of(
            request, order["provider/node-id"], self._component(), self._config.fallback_stages
        )

    # -- until it has ended ------------------------------------------------------------------

    async def _ended(
        self, attempt: Attempt, execution: Execution, woken: asyncio.Event
    ) -> Execution:
        pauses = Pauses(self._config, woken)
        while not execution["terminal"]:
            await pauses.pause()
            execution = await self._execution(attempt) or execution
            self._note(attempt, execution)
        return execution

    async def _execution(self, attempt: Attempt) -> Execution | None:
        found: Execution | None = await self._patience.ask(
            lambda: self._host.execution(attempt.execution_id)
        )
        return found

    async def _answer(self, task: Task, attempt: Attempt, execution: Execution) -> Answer:
        state, reason = execution["state"], str(execution.get("reason") or "")
        if state == "released":
            return await self._output(attempt)
        message = f"{attempt.order_id} at {task.inputs.get('target')} is {state}: {reason}"
        result = execution.get("result")
        if result is not None:
            error = result.get("error") or {}
            code = str(error.get("code") or state)
            return fault("order", message, code=code, details=error or None)
        if state == "failed":  # the request did not get there; its class comes first
            return fault(UNREACHABLE, message, code=reason.partition(":")[0] or state)
        return fault(ORDER_EXPIRED, message, code=state)

    async def _output(self, attempt: Attempt) -> Answer:
        result = await self._patience.ask(lambda: self._host.execution_result(attempt.execution_id))
        if result is None:
            message = f"{attempt.execution_id} is released and has no result"
            return fault("order", message, code="no_result", retryable=False)
        return succeeded(result.get("output"))

    def _note(
        self, attempt: Attempt, execution: Execution, delivery: dict[str, Any] | None = None
    ) -> None:
        if delivery is None and (known := execution["delivery_id"]):
            delivery = _refs(known)
        self._details.note(
            attempt.run,
            attempt.step,
            status=AWAITING,
            order_id=execution["order_id"],
            execution_id=execution["execution_id"],
            contract_id=execution["contract_id"],
            receipt_id=execution["receipt_id"],
            offer_id=execution["offer_id"],
            provider=execution["provider"]["participant_id"],
            **({"delivery": delivery} if delivery else {}),
        )


def _delivery(operation: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "operation_id": operation["operation/id"],
        "status_href": operation.get("status_href", ""),
        "audit_ref": operation.get("audit/outcome-ref", ""),
    }


def _refs(delivery_id: str) -> dict[str, Any]:
    """The same for a delivery that was handed in before."""
    return {
        "operation_id": operation_id_of(OPERATION_KIND, delivery_id),
        "status_href": f"{PATH}/{delivery_id}/operation-status",
        "audit_ref": delivery_id,
    }


def _input_problem(given: Any) -> str:
    if not isinstance(given, Mapping):
        return "the input of an order is an object"
    size = len(msgspec.json.encode(dict(given)))
    if size > INPUT_BYTES:
        return f"its input has {size:,} bytes, which is more than the {INPUT_BYTES:,} of an order"
    return ""


def _refused_by_host(attempt: Attempt, error: HostRefused) -> Answer:
    message = f"{attempt.order_id}: {error.message}"
    return fault(NOT_ORDERED, message, code=error.code, retryable=False)
