"""Holds: money of a payer that waits in escrow until an execution has its outcome.

    active ─▶ released | refunded | voided
    active ─▶ frozen ─▶ released | refunded        while payer and payee disagree

The last three are outcomes; a hold has at most one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.errors import LawBroken
from anabranch.market.node.entities import Family
from anabranch.market.node.ledger.accounts import UNIT
from anabranch.work.participants.performers import rfc3339

OUTCOMES = ("released", "refunded", "voided")
#: What may follow what; the first event of a hold makes it active.
FOLLOWING = {"active": ("frozen", *OUTCOMES), "frozen": ("released", "refunded")}
#: The words of `ledger-hold.v1`. A voided hold had no execution, so the money went back.
_ON_THE_WIRE = {"frozen": "disputed", "voided": "refunded"}


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Until when work, acceptance and dispute are due, and when acceptance is no longer asked."""

    work_by: int
    accept_by: int
    dispute_by: int
    auto_release: int

    def document(self) -> dict[str, str]:
        return {
            "deadlines/work-by": rfc3339(self.work_by),
            "deadlines/accept-by": rfc3339(self.accept_by),
            "deadlines/dispute-by": rfc3339(self.dispute_by),
            "deadlines/auto-release": rfc3339(self.auto_release),
        }


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    contract_id: str
    payer: str  # accounts
    payee: str
    amount: int
    escrow_node: str
    escrow_policy: str
    deadlines: Deadlines
    created_at: int
    status: str = "active"
    resolved_at: int | None = None
    movements: tuple[str, ...] = ()  # ids, in order

    @property
    def is_settled(self) -> bool:
        return self.status in OUTCOMES

    def document(self) -> dict[str, Any]:
        """As `ledger-hold.v1`."""
        shown: dict[str, Any] = {
            "schema/v": 1,
            "hold/id": self.id,
            "contract/id": self.contract_id,
            "payer/account-id": self.payer,
            "payee/account-id": self.payee,
            "escrow/node-id": self.escrow_node,
            "escrow-policy/ref": self.escrow_policy,
            "amount": self.amount,
            "unit": UNIT,
            "status": _ON_THE_WIRE.get(self.status, self.status),
            "created-at": rfc3339(self.created_at),
            "work-by": rfc3339(self.deadlines.work_by),
            "accept-by": rfc3339(self.deadlines.accept_by),
            "dispute-by": rfc3339(self.deadlines.dispute_by),
            "auto-release-after": rfc3339(self.deadlines.auto_release),
        }
        if self.resolved_at is not None:
            shown["resolved-at"] = rfc3339(self.resolved_at)
            kept = "released/amount" if self.status == "released" else "refunded/amount"
            shown[kept] = self.amount
        return shown


class Created(msgspec.Struct, frozen=True, tag="created"):
    hold: Hold


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    status: str
    at: int
    movement: str = ""


def _hold(state: Hold | None, event: Created | Changed) -> Hold:
    if isinstance(event, Created):
        if state is not None:
            raise LawBroken(f"hold {state.id} would be made a second time")
        return event.hold
    if state is None:
        raise LawBroken("a hold that was not made would change")
    if event.status not in FOLLOWING.get(state.status, ()):
        raise LawBroken(f"hold {state.id} is {state.status} and would become {event.status}")
    settled = event.status in OUTCOMES
    return msgspec.structs.replace(
        state,
        status=event.status,
        resolved_at=event.at if settled else None,
        movements=(*state.movements, event.movement) if event.movement else state.movements,
    )


HOLDS = Family("ledger-hold", Hold, Created | Changed, _hold, group=lambda hold: hold.payer)
