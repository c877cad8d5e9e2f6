"""How an order becomes an execution: one block with the hold, the contract and the execution.

Hold first, execution after it; where the execution cannot be opened the hold is voided. Nothing is
taken back: both are events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.market.documents.shapes import moment
from anabranch.market.node.entities import Change
from anabranch.market.node.ledger import book
from anabranch.market.node.ledger.accounts import account_of
from anabranch.market.node.ledger.holds import HOLDS, Deadlines, Hold
from anabranch.market.node.orders.agreement import total_of
from anabranch.market.node.orders.config import OrdersConfig
from anabranch.market.node.orders.executions import (
    EXECUTIONS,
    Execution,
    Opened,
    Terms,
    with_prefix,
)
from anabranch.market.node.orders.ingress import Rejection, rail_of
from anabranch.market.node.ports import Signer

WORK_SECONDS_MAX = 366 * 86_400  # an offer may promise less than it can be held to


def open_execution(
    change: Change,
    order: dict[str, Any],
    offer: Mapping[str, Any],
    digest: str,
    signer: Signer,
    config: OrdersConfig,
) -> Execution | Rejection:
    """The order has passed every check; the block has looked at the balance."""
    terms = terms_of(change, order, offer, signer, config)
    if terms.hold_id:
        book.create_hold(change, hold_of(order, terms, change.now))
    try:
        signed = order if "signature" in order else signer.sign_as_participant(order)
    except AnabranchError as error:
        if terms.hold_id:
            book.settle(change, terms.hold_id, "voided")
        return Rejection("other-reason", f"the order cannot be signed: {error.message}")
    opened = Opened(order=signed, digest=digest, terms=terms, at=change.now)
    return change.add(EXECUTIONS, order["order/id"], opened)


def terms_of(
    change: Change,
    order: Mapping[str, Any],
    offer: Mapping[str, Any],
    signer: Signer,
    config: OrdersConfig,
) -> Terms:
    total = total_of(order, offer)
    rail = rail_of(offer, total)
    mode = offer.get("confirmation/mode", "")
    arbiters = config.arbiters or (signer.participant_id,)
    return Terms(
        amount=total,
        currency=offer["pricing/currency"],
        rail=rail,
        mode=mode,
        deadlines=_deadlines(order, offer, change.now, config),
        arbiters=arbiters if mode == "arbiter-confirmed" else (),
        escrow_policy=config.escrow_policy,
        hold_id=_free_hold_id(change, order["order/id"]) if rail == "host-ledger" else "",
    )


def _deadlines(
    order: Mapping[str, Any], offer: Mapping[str, Any], now: int, config: OrdersConfig
) -> Deadlines:
    """The work is due when the offer promises it, or earlier where the order asks for that."""
    work_by = now + min(offer["delivery/max-duration-sec"], WORK_SECONDS_MAX) * 1000
    wanted = moment(order.get("delivery/requested-by"))
    if wanted is not None:
        work_by = min(work_by, wanted)
    accept_by = work_by + config.accept_seconds * 1000
    dispute_by = accept_by + config.dispute_seconds * 1000
    return Deadlines(
        work_by=work_by,
        accept_by=accept_by,
        dispute_by=dispute_by,
        auto_release=dispute_by + config.auto_release_seconds * 1000,
    )


def hold_of(order: Mapping[str, Any], terms: Terms, now: int) -> Hold:
    return Hold(
        id=terms.hold_id,
        contract_id=with_prefix(order["order/id"], "contract"),
        payer=account_of(order["buyer/subject-id"]),
        payee=account_of(order["provider/participant-id"]),
        amount=terms.amount,
        escrow_node=order["buyer/node-id"],
        escrow_policy=terms.escrow_policy,
        deadlines=terms.deadlines,
        created_at=now,
    )


def _free_hold_id(change: Change, order_id: str) -> str:
    """That of the order; a number more for each hold of it that was voided."""
    first = with_prefix(order_id, "hold")
    found, number = first, 1
    while change.get(HOLDS, found) is not None:
        number += 1
        found = f"{first}:{number}"
    return found
