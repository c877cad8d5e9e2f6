"""Contract and receipt of an execution, as `procurement-contract.v1` and `procurement-receipt.v1`.

Both are written from the execution alone. These documents were made for questions that people put
to each other; an order has no question and no room, so their ids are those of the order, and the
answer is JSON. What an order without a mode of confirmation writes as one is `self-confirmed`:
nothing has to be confirmed, and the documents know no fourth word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.market.node.ledger.holds import Hold
from anabranch.market.node.orders.executions import Execution, with_prefix
from anabranch.market.node.ports import Signer
from anabranch.work.participants.performers import rfc3339

ANSWER_LENGTH_MAX = 16 * 1024 * 1024  # as long as the body of a call
#: The status of a contract, by the state of its execution; before that it is pending.
STATUS = {"released": "settled", "failed": "rejected", "rejected": "rejected", "expired": "expired"}
SIGNATURES = ("payer/signature", "payee/signature")


def contract(execution: Execution) -> dict[str, Any]:
    order, terms = execution.order, execution.terms
    document: dict[str, Any] = {
        "schema/v": 1,
        "contract/id": execution.contract_id,
        "question/id": with_prefix(execution.order_id, "question"),
        "room/id": with_prefix(execution.order_id, "room"),
        "selected-offer/id": order["offer/id"],
        "created-at": rfc3339(execution.opened_at),
        "asker/node-id": order["buyer/node-id"],
        "asker/participant-id": buyer_participant(order),
        "responder/node-id": order["provider/node-id"],
        "responder/participant-id": execution.provider,
        "payment/amount": terms.amount,
        "payment/currency": terms.currency,
        "deadline-at": rfc3339(terms.deadlines.work_by),
        "acceptance/answer-format": "json",
        "acceptance/min-length": 1,
        "acceptance/max-length": ANSWER_LENGTH_MAX,
        "confirmation/mode": terms.mode or "self-confirmed",
        "settlement/rail": terms.rail,
        "status": STATUS.get(execution.state, "pending"),
        "order/id": execution.order_id,
    }
    if terms.mode == "arbiter-confirmed":
        document["acceptance/arbiter-set"] = list(terms.arbiters)
    if terms.rail == "host-ledger":
        document |= {
            "payer/account-ref": order["buyer/subject-id"],
            "payee/account-ref": execution.provider,
            "escrow/node-id": order["buyer/node-id"],
            "escrow/hold-ref": terms.hold_id,
            "escrow-policy/ref": terms.escrow_policy,
            **terms.deadlines.document(),
        }
    return document


def receipt(
    execution: Execution, outcome: str, reason: str, at: int, hold: Hold | None, signer: Signer
) -> dict[str, Any]:
    """The receipt, signed where it is settled. `hold` has its outcome already."""
    document: dict[str, Any] = {
        "schema/v": 1,
        "receipt/id": execution.receipt_id,
        "contract/id": execution.contract_id,
        "question/id": with_prefix(execution.order_id, "question"),
        "created-at": rfc3339(at),
        "payer/participant-id": buyer_participant(execution.order),
        "payee/participant-id": execution.provider,
        "outcome": outcome,
        "confirmation/mode": execution.terms.mode or "self-confirmed",
        "settlement/rail": execution.terms.rail,
        "order/id": execution.order_id,
    }
    if hold is not None:
        document |= {
            "settlement/ref": with_prefix(execution.order_id, "settlement"),
            "settlement/hold-ref": hold.id,
            "settlement/transfer-refs": list(hold.movements),
        }
    if outcome != "settled":
        return {**document, "rejection/reason": reason or outcome}
    return _signed({**document, "settled-at": rfc3339(at), "answer/accepted": True}, signer)


def _signed(document: dict[str, Any], signer: Signer) -> dict[str, Any]:
    """The payer signs with the key of its participant. The key of the payee is elsewhere, and no
    message asks for its signature; the reference demands one all the same. Ours: the payee has
    said that the work is done when its node, known by its signature on the envelope, handed in the
    result. The node that keeps the escrow witnesses that with its own key in the payee's place,
    and `payee/signed-by` says so. A payee who is this node's participant signs itself."""
    own = document["payee/participant-id"] == signer.participant_id
    by = signer.participant_id if own else signer.node_id
    document = {**document, "payee/signed-by": by}
    payer = signer.sign_as_participant(document)["signature"]
    payee = payer if own else signer.sign_as_node(document)["signature"]
    return {**document, "payer/signature": payer, "payee/signature": payee}


def buyer_participant(order: Mapping[str, Any]) -> str:
    """The participant who buys: of an org its custodian."""
    if order["buyer/subject-kind"] == "org":
        return str(order["buyer/operator-participant-id"])
    return str(order["buyer/subject-id"])
