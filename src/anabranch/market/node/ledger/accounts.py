"""Accounts and the movements between them: double entry, in whole minor units.

A movement takes from one account what it gives to another, so all movements add up to zero. What
comes into this ledger comes from `account:external`, the one account that may be below zero; money
on hold is in `account:escrow`. Every movement has one of these two on one side.
"""

from __future__ import annotations

import re

import msgspec

from anabranch.errors import InputError, LawBroken
from anabranch.market.identities import public_key
from anabranch.market.node.entities import Family
from anabranch.work.participants.performers import rfc3339

UNIT = "ORC"
EXTERNAL = "account:external"
ESCROW = "account:escrow"
COMMUNITY_POOL = "account:community-pool"
OF_THE_NODE = (EXTERNAL, ESCROW)
#: Beyond it not every reader of JSON knows the difference of one.
AMOUNT_MAX = 2**53 - 1

_HOLDER = re.compile(r"account:(participant|org|pod-user):(did:key:z[1-9A-HJ-NP-Za-km-z]{1,60})")


def account_of(holder: str) -> str:
    """The account of an identity."""
    return f"account:{holder}"


def require_account(name: str) -> str:
    """The name of an account; raises `InputError` where there can be none of that name."""
    match = _HOLDER.fullmatch(name)
    if match is not None:
        public_key(f"participant:{match[2]}")  # the key is one, whatever the role
    elif name not in (COMMUNITY_POOL, *OF_THE_NODE):
        raise InputError(
            f"{name[:80]!r} is no account; write account:participant:did:key:z6Mk… or "
            f"{COMMUNITY_POOL}"
        )
    return name


class Movement(msgspec.Struct, frozen=True, kw_only=True):
    """So much from one account to another."""

    id: str
    kind: str  # top-up, hold, release, refund, void
    source: str
    target: str
    amount: int
    at: int
    actor: str = ""
    note: str = ""
    hold_id: str = ""

    @property
    def entries(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """What each account gets; together nothing."""
        return (self.source, -self.amount), (self.target, self.amount)

    @property
    def owner(self) -> str:
        """The account that is not one of the node's own."""
        return self.target if self.source in OF_THE_NODE else self.source

    def document(self) -> dict[str, object]:
        entries = [{"account": account, "amount": amount} for account, amount in self.entries]
        shown = {"actor": self.actor, "note": self.note, "hold_id": self.hold_id}
        return {
            "movement_id": self.id,
            "kind": self.kind,
            "unit": UNIT,
            "at": rfc3339(self.at),
            "entries": entries,
            **{key: value for key, value in shown.items() if value},
        }


class Moved(msgspec.Struct, frozen=True, tag="moved"):
    movement: Movement


class Account(msgspec.Struct, frozen=True):
    """A balance, and how much of the holder's money is in escrow."""

    account: str
    balance: int = 0
    held: int = 0
    movements: int = 0


class Posted(msgspec.Struct, frozen=True, tag="posted"):
    """One side of a movement. `held` says by how much the money on hold changes with it."""

    account: str
    movement: str
    amount: int
    held: int = 0


def _movement(state: Movement | None, event: Moved) -> Movement:
    if state is not None:
        raise LawBroken(f"movement {state.id} would be written a second time")
    if event.movement.amount < 1 or event.movement.source == event.movement.target:
        raise LawBroken(f"movement {event.movement.id} moves nothing")
    return event.movement


def _account(state: Account | None, event: Posted) -> Account:
    before = state or Account(event.account)
    after = Account(
        event.account,
        before.balance + event.amount,
        before.held + event.held,
        before.movements + (event.amount != 0),
    )
    if after.held < 0 or (after.balance < 0 and event.account != EXTERNAL):
        raise LawBroken(f"{event.account} would be below zero after {event.movement}")
    return after


MOVEMENTS = Family("ledger-movement", Movement, Moved, _movement, group=lambda one: one.owner)
ACCOUNTS = Family("ledger-account", Account, Posted, _account)
