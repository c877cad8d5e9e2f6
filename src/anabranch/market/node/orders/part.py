"""Orders at the surface and for the other parts: ingress, executions, results, time.

Everything that happens is decided in one block and answered once it is durable.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from anabranch.errors import InputError, NotFound
from anabranch.market.documents import DocumentProblem, InvalidDocument, check, digest_of, require
from anabranch.market.identities import signed_bytes
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Change, Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ledger import book
from anabranch.market.node.ledger.accounts import account_of
from anabranch.market.node.ledger.holds import HOLDS
from anabranch.market.node.ledger.part import ORDERS_GRANT, require_orders_grant
from anabranch.market.node.orders import endpoints, procurement, results
from anabranch.market.node.orders.config import orders_config
from anabranch.market.node.orders.executions import (
    EXECUTIONS,
    LATE_KEPT,
    REQUESTS,
    AcceptanceOverdue,
    Bound,
    Execution,
    Moved,
    Prepared,
    Request,
    ResultRefused,
    ResultTaken,
    order_id_of,
    overview,
    snapshot,
)
from anabranch.market.node.orders.ingress import Case, Rejection, completed, rejection
from anabranch.market.node.orders.machine import WORKING, step, trigger_of_result
from anabranch.market.node.orders.opening import open_execution
from anabranch.market.node.paging import page_of, paged
from anabranch.market.node.ports import Acceptance, NodeContext

logger = logging.getLogger("anabranch.node")

FAMILIES: tuple[Family[Any], ...] = (EXECUTIONS, REQUESTS)
GRANT = ORDERS_GRANT
ORDER = "service-order.v1"
ORDER_ID_MAX = 1000  # with any of the prefixes it is still an id


class OrdersPart:
    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._entities = context.entities
        self._signer = context.signer
        self._config = orders_config(context.config.raw)
        self._waiting: Counter[str] = Counter()  # orders that a provider has to work on

    def endpoints(self) -> Sequence[Endpoint]:
        return endpoints.table(self)

    async def open(self) -> None:
        self._waiting = Counter(
            execution.provider
            for _, execution in self._entities.each_open(EXECUTIONS)
            if execution.state in WORKING
        )

    async def close(self) -> None:
        """There is nothing to end."""

    async def wake(self, family: Family[Any], thing: str) -> None:
        if family is EXECUTIONS:
            with self._block() as change:
                self._pass_time(change, thing)
            await self._entities.durable()

    # -- ingress -----------------------------------------------------------------------------

    async def submit(self, call: Call) -> Answer:
        require_orders_grant(self._context, call)
        order, wrong_signature = self._read(call.body)
        try:
            digest = digest_of(signed_bytes(order))
        except InputError as error:
            raise NodeError(400, "schema", error.message) from None
        with self._block() as change:
            known = change.get(EXECUTIONS, order["order/id"])
            if known is not None and not wrong_signature:
                found: Execution | Rejection = _replayed(known, digest)
            else:
                found = self._open(change, order, digest, wrong_signature)
        await self._entities.durable()
        if isinstance(found, Rejection):
            logger.info("order %s rejected: %s", order["order/id"][:80], found.classifier)
            return Answer(body=found.document())
        return Answer(status=200 if known else 201, body=_opened(found))

    def _read(self, body: Any) -> tuple[dict[str, Any], str]:
        """The order with its buyer, and what is wrong with a signature that it came with."""
        if not isinstance(body, dict):
            raise NodeError(400, "schema", f"{ORDER} is an object")
        order = completed(body, self._signer)
        # Nothing is filled in where a signature is: without its buyer no key could verify it.
        problems = check(order, kind=ORDER, draft="signature" not in order)
        wrong = [each for each in problems if each.code == "wrong-signature"]
        if len(wrong) < len(problems):
            raise NodeError(400, "schema", _message(problems))
        if len(order["order/id"]) > ORDER_ID_MAX:
            raise NodeError(400, "schema", f"`order/id` has at most {ORDER_ID_MAX:,} characters")
        return order, wrong[0].message if wrong else ""

    def _open(
        self, change: Change, order: dict[str, Any], digest: str, wrong_signature: str
    ) -> Execution | Rejection:
        offer = self._context.offers.offer(order["offer/id"])
        payer = account_of(str(order.get("buyer/subject-id", "")))
        case = Case(
            order=order,
            offer=offer,
            now=change.now,
            signer=self._signer,
            depth=self._waiting[order["provider/participant-id"]],
            balance=book.account(change, payer).balance,
            can_settle=self._config.settlement,
            wrong_signature=wrong_signature,
        )
        refused = rejection(case)
        if refused is not None or offer is None:
            return refused or Rejection("offer-not-found", "no such offer is known")
        return open_execution(change, order, offer, digest, self._signer, self._config)

    # -- reading -----------------------------------------------------------------------------

    async def execution(self, call: Call) -> Answer:
        require_orders_grant(self._context, call)
        found = self._named(call, "execution")
        await self._entities.durable()
        return Answer(body=snapshot(found))

    async def executions(self, call: Call) -> Answer:
        require_orders_grant(self._context, call)
        page = page_of(call.query)
        rows = await self._entities.listed(
            EXECUTIONS,
            group=call.query.get("run_id"),
            is_open=page.is_open,
            before=page.before,
            limit=page.limit,
        )
        return paged([(overview(one), card) for _, one, card in rows], page)

    async def contract(self, call: Call) -> Answer:
        require_orders_grant(self._context, call)
        found = self._named(call, "contract")
        await self._entities.durable()
        return Answer(body=procurement.contract(found))

    async def receipt(self, call: Call) -> Answer:
        require_orders_grant(self._context, call)
        found = self._named(call, "receipt")
        if found.receipt is None:
            raise NotFound(f"{found.execution_id} is {found.state} and has no receipt yet")
        await self._entities.durable()
        return Answer(body=found.receipt)

    def _named(self, call: Call, kind: str) -> Execution:
        name = call.params[kind]
        order_id = order_id_of(name, kind)
        found = self._entities.get(EXECUTIONS, order_id) if order_id else None
        if found is None:
            raise NotFound(f"there is no {kind} {name[:80]!r}")
        return found

    # -- what people decide ------------------------------------------------------------------

    async def act(self, call: Call, trigger: str, reason: str) -> Answer:
        """accept, release, dispute, for-payer, for-payee."""
        found = self._named(call, "execution")
        with self._block() as change:
            if trigger == "dispute":
                _require_dispute_in_time(found, change.now)
            after = self._move(change, found, trigger, actor=call.caller.actor, reason=reason)
        await self._entities.durable()
        return Answer(body=snapshot(after))

    # -- time --------------------------------------------------------------------------------

    def _pass_time(self, change: Change, order_id: str) -> None:
        """Everything that is due by now, in its order."""
        while True:
            found = change.get(EXECUTIONS, order_id)
            due = found.wake_at() if found else None
            if found is None or due is None or due > change.now:
                return
            if found.state in WORKING:
                self._move(change, found, "work-by", reason="the work was not done in time")
            elif not found.overdue:
                change.add(EXECUTIONS, order_id, AcceptanceOverdue(at=change.now))
            else:
                self._move(change, found, "auto-release", reason="no word from the payer in time")

    # -- the port for deliveries -------------------------------------------------------------

    async def dispatch_prepared(
        self, order_id: str, delivery_id: str, request: Mapping[str, Any]
    ) -> None:
        require(request, "service-order.dispatch.request.v1")
        with self._block() as change:
            found = change.get(EXECUTIONS, order_id)
            if found is None or found.digest != _digest_in(request):
                raise NodeError(409, "order_unknown", "the request has no order of this node in it")
            if found.state not in WORKING:
                raise NodeError(409, "execution_closed", f"{found.execution_id} is {found.state}")
            self._bind(change, found, delivery_id, request)
        await self._entities.durable()

    def _bind(
        self, change: Change, found: Execution, delivery_id: str, request: Mapping[str, Any]
    ) -> None:
        """The result will name the request alone, so its id belongs to this order for good."""
        known = Request(
            request_id=request["request_id"],
            run_id=request["workflow/run-id"],
            phase_id=request["workflow/phase-id"],
            correlation_id=request["correlation/id"],
        )
        bound = change.get(REQUESTS, known.request_id)
        if (found.request or known) != known or (bound and bound.order_id != found.order_id):
            raise NodeError(409, "request_conflict", "this order has another request")
        if bound is None:
            change.add(REQUESTS, known.request_id, Bound(found.order_id))
        if found.request is None or found.delivery_id != delivery_id:
            prepared = Prepared(request=known, delivery_id=delivery_id, at=change.now)
            found = change.add(EXECUTIONS, found.order_id, prepared)
        if step(found.state, "prepare"):
            self._move(change, found, "prepare")

    async def dispatched(self, order_id: str) -> None:
        await self._report(order_id, "dispatch")

    async def dispatch_failed(self, order_id: str, reason: str) -> None:
        await self._report(order_id, "dispatch-failure", reason)

    async def _report(self, order_id: str, trigger: str, reason: str = "") -> None:
        """What a delivery says; said again, or too late, it changes nothing."""
        with self._block() as change:
            found = change.get(EXECUTIONS, order_id)
            if found is not None and step(found.state, trigger):
                self._move(change, found, trigger, reason=reason[:1024])
        await self._entities.durable()

    def check_result(
        self, result: Mapping[str, Any], source_peer: str, digest: str
    ) -> Acceptance | None:
        found = self._of_request(result)
        if found is None:
            return results.acceptance("rejected", results.UNKNOWN)
        if problem := results.mismatch(found, result, source_peer):
            return results.acceptance("rejected", problem)
        met = results.standing(found, digest)
        if met is not None and met.status == "rejected":
            with self._block() as change:
                _keep_refused(change, found, result, digest, met.reason)
        return met

    async def result_accepted(
        self, result: Mapping[str, Any], source_peer: str, digest: str
    ) -> None:
        if self.check_result(result, source_peer, digest) is None:
            found = self._of_request(result)
            assert found is not None
            with self._block() as change:
                self._take(change, found, result, digest)
        await self._entities.durable()

    def _take(
        self, change: Change, found: Execution, result: Mapping[str, Any], digest: str
    ) -> None:
        taken = results.taken(result, digest, change.now)
        found = change.add(EXECUTIONS, found.order_id, ResultTaken(result=taken))
        on_hold = bool(found.terms.hold_id)
        trigger = trigger_of_result(taken.status, found.terms.mode, on_hold=on_hold)
        error = taken.error or {}
        reason = f"{error.get('code', '')}: {error.get('message', '')}" if error else ""
        self._move(change, found, trigger, reason=reason[:1024])

    def _of_request(self, result: Mapping[str, Any]) -> Execution | None:
        bound = self._entities.get(REQUESTS, result["request_id"])
        return self._entities.get(EXECUTIONS, bound.order_id) if bound else None

    # -- every transition --------------------------------------------------------------------

    def _move(
        self, change: Change, found: Execution, trigger: str, *, actor: str = "", reason: str = ""
    ) -> Execution:
        """Carry out a trigger: the hold, the receipt and the execution, in this block."""
        to = step(found.state, trigger)
        if to is None:
            raise NodeError(
                409, "wrong_state", f"{found.execution_id} is {found.state}; it takes no {trigger}"
            )
        hold_id = found.terms.hold_id
        if hold_id and to.hold == "frozen":
            book.freeze(change, hold_id)
        elif hold_id and to.hold:
            book.settle(change, hold_id, to.hold, actor)
        receipt = None
        if to.receipt:
            hold = change.get(HOLDS, hold_id) if hold_id else None
            receipt = procurement.receipt(found, to.receipt, reason, change.now, hold, self._signer)
        moved = Moved(trigger=trigger, at=change.now, actor=actor, reason=reason, receipt=receipt)
        return change.add(EXECUTIONS, found.order_id, moved)

    @contextmanager
    def _block(self) -> Iterator[Change]:
        """A block after which the orders that wait at each provider are known."""
        with self._entities.change() as change:
            yield change
        for (family, _), pending in change.added.items():
            if family is EXECUTIONS:
                for execution, sign in ((pending.before, -1), (pending.entry.state, 1)):
                    if execution is not None and execution.state in WORKING:
                        self._waiting[execution.provider] += sign


def _replayed(known: Execution, digest: str) -> Execution:
    if known.digest != digest:
        raise NodeError(
            409, "order_conflict", f"{known.order_id} was opened with other content; a new order "
            "has a new id",
        )  # fmt: skip
    return known


def _opened(execution: Execution) -> dict[str, Any]:
    hold_id = execution.terms.hold_id
    return {
        "status": "opened-execution",
        "execution_id": execution.execution_id,
        "order_id": execution.order_id,
        "order": execution.order,
        "contract_id": execution.contract_id,
        **({"hold_id": hold_id} if hold_id else {}),
    }


def _message(problems: list[DocumentProblem]) -> str:
    return InvalidDocument(ORDER, problems).message


def _digest_in(request: Mapping[str, Any]) -> str:
    return digest_of(signed_bytes(request["order"]))


def _require_dispute_in_time(found: Execution, now: int) -> None:
    if found.state == "awaiting_acceptance" and now > found.terms.deadlines.dispute_by:
        raise NodeError(
            409, "dispute_late", "the time for a dispute has passed; accept or wait for the release"
        )


def _keep_refused(
    change: Change, found: Execution, result: Mapping[str, Any], digest: str, reason: str
) -> None:
    """For people who ask. Few are enough, and each once."""
    if len(found.refused) < LATE_KEPT and all(one.digest != digest for one in found.refused):
        refused = results.taken(result, digest, change.now, reason)
        change.add(EXECUTIONS, found.order_id, ResultRefused(result=refused))


def make(context: NodeContext) -> OrdersPart:
    part = OrdersPart(context)
    context.orders = part
    return part
