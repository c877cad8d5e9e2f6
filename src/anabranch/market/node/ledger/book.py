"""What is done with the ledger: functions over a block, so that it changes with what decides.

An order takes money on hold in the block that opens its execution, and the outcome of the hold is
in the block that closes it. Money is never held without an execution that will end.
"""

from __future__ import annotations

import msgspec

from anabranch.market.node.entities import Change
from anabranch.market.node.ledger.accounts import (
    ACCOUNTS,
    AMOUNT_MAX,
    ESCROW,
    EXTERNAL,
    MOVEMENTS,
    Account,
    Moved,
    Movement,
    Posted,
)
from anabranch.market.node.ledger.holds import HOLDS, Changed, Created, Hold

#: How the movement is called that an outcome of a hold makes.
_KINDS = {"released": "release", "refunded": "refund", "voided": "void"}


def account(change: Change, name: str) -> Account:
    """A missing account has nothing."""
    return change.get(ACCOUNTS, name) or Account(name)


def can_take_in(change: Change, amount: int) -> bool:
    """Whether all money of this ledger stays a number that every reader of JSON has."""
    return amount - account(change, EXTERNAL).balance <= AMOUNT_MAX


def top_up(change: Change, movement_id: str, name: str, amount: int, actor: str, note: str) -> None:
    moved = Movement(
        id=movement_id,
        kind="top-up",
        source=EXTERNAL,
        target=name,
        amount=amount,
        at=change.now,
        actor=actor,
        note=note,
    )
    _move(change, moved)


def create_hold(change: Change, hold: Hold) -> None:
    """Take the money into escrow; who calls has looked at the balance."""
    moved = Movement(
        id=_movement_id(hold.id, "hold"),
        kind="hold",
        source=hold.payer,
        target=ESCROW,
        amount=hold.amount,
        at=change.now,
        hold_id=hold.id,
    )
    _move(change, moved, held={hold.payer: hold.amount})
    change.add(HOLDS, hold.id, Created(msgspec.structs.replace(hold, movements=(moved.id,))))


def freeze(change: Change, hold_id: str) -> None:
    """Payer and payee disagree; the money stays where it is."""
    change.add(HOLDS, hold_id, Changed("frozen", change.now))


def settle(change: Change, hold_id: str, outcome: str, actor: str = "") -> None:
    """The one outcome of a hold: released to the payee, or refunded (or voided) to the payer."""
    hold = change.get(HOLDS, hold_id)
    assert hold is not None, f"no hold {hold_id}"
    moved = Movement(
        id=_movement_id(hold.id, _KINDS[outcome]),
        kind=_KINDS[outcome],
        source=ESCROW,
        target=hold.payee if outcome == "released" else hold.payer,
        amount=hold.amount,
        at=change.now,
        actor=actor,
        hold_id=hold.id,
    )
    change.add(HOLDS, hold_id, Changed(outcome, change.now, moved.id))
    _move(change, moved, held={hold.payer: -hold.amount})


def _movement_id(hold_id: str, kind: str) -> str:
    return f"transfer:{hold_id.removeprefix('hold:')}:{kind}"


def _move(change: Change, moved: Movement, held: dict[str, int] | None = None) -> None:
    change.add(MOVEMENTS, moved.id, Moved(moved))
    of_holds = dict(held or {})
    for name, amount in moved.entries:
        change.add(ACCOUNTS, name, Posted(name, moved.id, amount, of_holds.pop(name, 0)))
    for name, amount in of_holds.items():  # the payer of what was released to another
        change.add(ACCOUNTS, name, Posted(name, moved.id, 0, amount))
