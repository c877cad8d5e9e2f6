"""The ledger at the surface: balances, holds, movements, and money that comes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from anabranch.errors import NotFound
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Change, Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ids import derived
from anabranch.market.node.ledger import book
from anabranch.market.node.ledger.accounts import (
    ACCOUNTS,
    AMOUNT_MAX,
    EXTERNAL,
    MOVEMENTS,
    OF_THE_NODE,
    UNIT,
    Account,
    Movement,
    account_of,
    require_account,
)
from anabranch.market.node.ledger.holds import HOLDS
from anabranch.market.node.paging import page_of, paged
from anabranch.market.node.ports import NodeContext

FAMILIES: tuple[Family[Any], ...] = (ACCOUNTS, MOVEMENTS, HOLDS)
KEY_MAX = 256
#: What the operator grants a module that may place orders, follow them and see what they cost.
ORDERS_GRANT = "service.orders.submit"


class TopUp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Money that comes into the ledger. The same key again is the same top-up."""

    amount: Annotated[int, msgspec.Meta(ge=1, le=AMOUNT_MAX)]
    account: Annotated[str, msgspec.Meta(max_length=256)] = ""  # that of the participant
    unit: Annotated[str, msgspec.Meta(pattern=f"^{UNIT}$")] = UNIT
    idempotency_key: str = ""  # or the header Idempotency-Key
    note: Annotated[str, msgspec.Meta(max_length=1024)] = ""


class LedgerPart:
    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._entities = context.entities

    def endpoints(self) -> Sequence[Endpoint]:
        return (
            Endpoint(
                method="GET",
                path="/v1/ledger/account",
                scopes=("operator", "module"),
                handler=self._account,
                summary="The balance of an account, by default that of this node's participant",
                query=("account",),
                errors=(400, 403),
            ),
            Endpoint(
                method="GET",
                path="/v1/ledger/accounts",
                scopes=("operator",),
                handler=self._accounts,
                summary="All accounts that ever had money, newest first",
                query=("limit", "before"),
                errors=(400,),
            ),
            Endpoint(
                method="GET",
                path="/v1/ledger/holds/{hold}",
                scopes=("operator", "module"),
                handler=self._hold,
                summary="A hold, as ledger-hold.v1",
                errors=(403, 404),
            ),
            Endpoint(
                method="GET",
                path="/v1/ledger/movements",
                scopes=("operator",),
                handler=self._movements,
                summary="Movements between accounts, newest first",
                query=("account", "limit", "before"),
                errors=(400,),
            ),
            Endpoint(
                method="POST",
                path="/v1/ledger/top-up",
                scopes=("operator",),
                handler=self._top_up,
                summary="Money comes in; the same idempotency key again is the same top-up",
                body=TopUp,
                status=201,
                example={"amount": 1000, "idempotency_key": "first"},
                errors=(400, 409),
            ),
        )

    async def open(self) -> None:
        """Nothing of the ledger goes on by itself: executions move it."""

    async def close(self) -> None:
        """There is nothing to end."""

    async def wake(self, family: Family[Any], thing: str) -> None:
        """No account, movement or hold has an instant of its own."""

    # -- reading -----------------------------------------------------------------------------

    async def _account(self, call: Call) -> Answer:
        require_orders_grant(self._context, call)
        name = self._name(call.query.get("account", ""))
        found = self._entities.get(ACCOUNTS, name) or Account(name)
        await self._entities.durable()
        return Answer(body=_shown(found))

    async def _accounts(self, call: Call) -> Answer:
        page = page_of(call.query)
        rows = await self._entities.listed(ACCOUNTS, before=page.before, limit=page.limit)
        return paged([(_shown(one), card) for _, one, card in rows], page)

    async def _hold(self, call: Call) -> Answer:
        require_orders_grant(self._context, call)
        hold = self._entities.get(HOLDS, call.params["hold"])
        if hold is None:
            raise NotFound(f"there is no hold {call.params['hold'][:80]!r}")
        await self._entities.durable()
        return Answer(body=hold.document())

    async def _movements(self, call: Call) -> Answer:
        """Every movement is of one holder; the node's own accounts are in all of them."""
        name = call.query.get("account", "")
        if name in OF_THE_NODE:
            raise NodeError(
                400, "account", f"{name} takes part in every movement; leave `account` out"
            )
        group = require_account(name) if name else None
        page = page_of(call.query)
        rows = await self._entities.listed(
            MOVEMENTS, group=group, before=page.before, limit=page.limit
        )
        return paged([(one.document(), card) for _, one, card in rows], page)

    # -- money that comes in -----------------------------------------------------------------

    async def _top_up(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, TopUp)
        name = self._name(wanted.account)
        if name in OF_THE_NODE:
            raise NodeError(400, "account", f"{name} is the node's own; top up another account")
        key = _key(wanted.idempotency_key or call.headers.get("idempotency-key", ""))
        with self._entities.change() as change:
            moved, known = self._moved(change, wanted, name, key, call.caller.actor)
            shown = _shown(book.account(change, name))
        await self._entities.durable()
        return Answer(status=200 if known else 201, body={**moved.document(), "account": shown})

    def _moved(
        self, change: Change, wanted: TopUp, name: str, key: str, actor: str
    ) -> tuple[Movement, bool]:
        """The movement, and whether it was there before."""
        movement_id = _top_up_id(change, key)
        known = change.get(MOVEMENTS, movement_id)
        if known is None:
            if not book.can_take_in(change, wanted.amount):
                raise NodeError(
                    409, "ledger_full", f"the ledger keeps at most {AMOUNT_MAX:,} of {UNIT}"
                )
            book.top_up(change, movement_id, name, wanted.amount, actor, wanted.note)
            made = change.get(MOVEMENTS, movement_id)
            assert made is not None
            return made, False
        if (known.target, known.amount, known.note) != (name, wanted.amount, wanted.note):
            raise NodeError(
                409, "idempotency_conflict", "this key belongs to a top-up with other content"
            )
        return known, True

    def _name(self, given: str) -> str:
        return require_account(given) if given else account_of(self._context.signer.participant_id)


def require_orders_grant(context: NodeContext, call: Call) -> None:
    caller = call.caller
    if caller.scope == "module" and not context.modules.is_granted(caller.module, ORDERS_GRANT):
        raise NodeError(
            403,
            "host_capability_forbidden",
            f"the module has no grant {ORDERS_GRANT}; the operator gives it in the configuration "
            "of the module",
        )


def _key(text: str) -> str:
    if len(text) > KEY_MAX or not text.isascii():
        raise NodeError(
            400, "schema", f"an idempotency key has at most {KEY_MAX} characters of ASCII"
        )
    return text


def _top_up_id(change: Change, key: str) -> str:
    """By the key; without one every call is a top-up of its own, numbered."""
    if not key:
        return f"transfer:top-up-no:{book.account(change, EXTERNAL).movements + 1}"
    return f"transfer:top-up:{derived('ledger top-up', key)}"


def _shown(account: Account) -> dict[str, Any]:
    """`balance` is what the movements come to; what is on hold is no longer in it."""
    return {
        "account_id": account.account,
        "unit": UNIT,
        "balance": account.balance,
        "held": account.held,
    }


def make(context: NodeContext) -> LedgerPart:
    return LedgerPart(context)
