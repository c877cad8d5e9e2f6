"""The node and a model of it that shares no code agree on random histories, crashes included.

Every operation of a history is one commit or none. The node is killed before commits and after
them, opened again from its store, and the caller asks again.
"""

from __future__ import annotations

import asyncio
from functools import cache
from random import Random
from typing import Any, NamedTuple

import pytest

from anabranch.errors import AnabranchError, StoreError
from anabranch.market.node.ledger.accounts import ACCOUNTS
from anabranch.market.node.ledger.holds import HOLDS
from anabranch.market.node.orders.executions import EXECUTIONS
from anabranch.market.node.orders.machine import STATES
from anabranch.work.participants.performers import rfc3339
from seeds import SHARE, part

from .model import DAY, HOUR, Model, OfferFacts, OrderFacts
from .support import (
    BUYER,
    PROVIDER,
    START,
    STRANGER,
    Desk,
    MortalStore,
    draft,
    offer,
    request,
    result,
)

HISTORIES = 10_000 if SHARE >= 1 else 2_500  # of which a part: they are long
PARTS = 4
STEPS = 24
MODES = {"self": "self-confirmed", "arbiter": "arbiter-confirmed", "manual": "manual-review-only"}
PURSES = {"participant": BUYER.participant_id, "own": BUYER.org_id}
NAMES = [f"r1-s{number}-a1" for number in range(6)]

#: What usually follows, by the state of an order.
RESULT, FAILURE = ("result", "completed", 1, True), ("result", "failed", 1, True)
NEXT: dict[str, list[tuple[Any, ...]]] = {
    "opened": [("prepare",)],
    "dispatch_prepared": [("arrived",), ("arrived",), RESULT],
    "dispatched": [RESULT, RESULT, FAILURE],
    "awaiting_acceptance": [("act", "accept"), ("act", "dispute"), ("tick",)],
    "awaiting_manual_release": [("act", "release"), ("act", "dispute"), ("tick",)],
    "disputed": [("act", "for payer"), ("act", "for payee"), ("act", "accept")],
}

OFFERS = [
    OfferFacts("self", 40, "self", hours=12),
    OfferFacts("arbiter", 60, "arbiter", hours=30),
    OfferFacts("manual", 50, "manual", flat=True, hours=24),
    OfferFacts("invoice", 70),
    OfferFacts("free", 0, "self", hours=10),
    OfferFacts("euro", 10, "self", currency="EUR"),
    OfferFacts("short", 30, "self", ends=20 * HOUR, hours=48),
    OfferFacts("gone", 30, "self", withdrawn=True),
    OfferFacts("busy", 30, "self", depth=1, most=2, hours=12),
]


def offer_of(facts: OfferFacts) -> dict[str, Any]:
    return offer(
        {
            "offer/id": f"offer:{facts.name}",
            "sequence/no": 7,
            "pricing/amount": facts.price,
            "pricing/unit-kind": "flat" if facts.flat else "per-item",
            "pricing/currency": facts.currency,
            "confirmation/mode": MODES.get(facts.mode),
            "expires-at": rfc3339(START + facts.ends * 1000),
            "offer/status": "withdrawn" if facts.withdrawn else "active",
            "queue/current-depth": facts.depth,
            "queue/max-depth": facts.most,
            "delivery/max-duration-sec": facts.hours * HOUR,
            "constraints/input": {"required": ["text"]},
        }
    )


SIGNED_OFFERS = [offer_of(facts) for facts in OFFERS]


def order_of(facts: OrderFacts) -> dict[str, Any]:
    buyer: dict[str, Any] = {}
    if facts.org:
        org = BUYER.org_id if facts.org == "own" else STRANGER.org_id
        buyer = {"buyer/subject-kind": "org", "buyer/subject-id": org}
    provider = PROVIDER if facts.right_provider else STRANGER
    return draft(
        {
            "offer/id": f"offer:{facts.offer}",
            "offer/seq": facts.sequence,
            "provider/participant-id": provider.participant_id,
            "service/type": "text/summarise" if facts.right_service else "text/other",
            "request/units": facts.units,
            "request/input": {"text": "x"} if facts.right_input else {},
            "pricing/max-amount": facts.budget,
            "pricing/currency": facts.currency,
            **buyer,
        },
        order_id=f"order:{facts.name}",
    )


class Met(NamedTuple):
    """What came up in a history."""

    crashes: int
    states: frozenset[str]
    answers: frozenset[str]


class History:
    """One random history: everything is done to the node and to the model."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.model = Model({facts.name: facts for facts in OFFERS})
        self.store = MortalStore()
        self.desk = Desk(*SIGNED_OFFERS, store=self.store)
        self.orders: dict[str, Any] = {}  # as the node signed them
        self.crashes = 0
        self.states: set[str] = set()
        self.answers: set[str] = set()

    async def run(self) -> None:
        await self.desk.opened()
        await self.carry_out(("top_up", "first", "participant", self.random.choice([100, 300])))
        for _ in range(STEPS):
            await self.step()
            assert self.seen() == self.model.view()
        self.desk = await self.desk.again()
        assert self.seen() == self.model.view()
        assert await self.desk.broken_laws() == []

    # -- one step, with a crash or without -----------------------------------------------------

    async def step(self) -> None:
        if self.random.random() < 0.12:
            seconds = self.random.choice([HOUR, 9 * HOUR, 25 * HOUR, 2 * DAY])
            self.model.now += seconds
            self.desk.clock.advance_to(START + self.model.now * 1000)
            return
        operation = self.operation()
        times = 2 if self.random.random() < 0.2 else 1  # said again
        for _ in range(times):
            await self.carry_out(operation)

    async def carry_out(self, operation: tuple[Any, ...]) -> None:
        self.store.dies = dies = self.random.choice(["", "", "", "", "before", "after"])
        try:
            answer = await self.at_the_node(*operation)
        except StoreError:
            answer = "died"
        struck = bool(dies) and not self.store.dies  # operations that change nothing commit nothing
        self.store.dies = ""
        if not struck:
            assert answer == self.at_the_model(*operation), operation
            return
        assert answer == "died", operation
        self.crashes += 1
        self.desk = await self.desk.again()
        if dies == "after":  # it has happened, and whoever asked does not know
            self.at_the_model(*operation)
        assert self.seen() == self.model.view()
        if self.random.random() < 0.7:  # asks again
            again = await self.at_the_node(*operation)
            assert again == self.at_the_model(*operation), operation

    def operation(self) -> tuple[Any, ...]:
        """What brings an order further, or anything."""
        moving = [one for one in self.model.placed.values() if one.state in NEXT]
        if moving and self.random.random() < 0.5:
            one = self.random.choice(moving)
            kind, *values = self.random.choice(NEXT[one.state])
            return kind, one.facts.name, *values
        if not moving and self.random.random() < 0.7:
            return "submit", self.order()
        return self.any_operation()

    def any_operation(self) -> tuple[Any, ...]:
        choose = self.random.choice
        kind = self.random.choices(
            ["top_up", "submit", "prepare", "arrived", "lost", "result", "act", "tick"],
            [2, 5, 6, 3, 1, 6, 6, 3],
        )[0]
        match kind:
            case "top_up":
                return kind, choose("abcdef"), choose(list(PURSES)), choose([50, 100, 300])
            case "submit":
                return kind, self.order()
            case "result":
                status = choose(["completed"] * 4 + ["failed", "rejected"])
                honest = self.random.random() < 0.9
                return kind, self.known(), status, choose([1, 1, 1, 2]), honest
            case "act":
                actions = ["accept", "release", "dispute", "dispute", "for payer", "for payee"]
                return kind, self.known(), choose(actions)
        return kind, self.known()

    def known(self) -> str:
        """Mostly the name of an order that was opened."""
        placed = list(self.model.placed)
        return self.random.choice(placed if placed and self.random.random() < 0.95 else NAMES)

    def order(self) -> OrderFacts:
        """Mostly one that is right; now and then one that was there before."""
        random, name = self.random, self.random.choice(NAMES)
        before = self.model.placed.get(name)
        if before is not None and random.random() < 0.6:
            return before.facts

        def mostly(right: Any, wrong: Any) -> Any:
            return right if random.random() < 0.97 else wrong

        chosen = random.choice(OFFERS)
        return OrderFacts(
            name,
            mostly(chosen.name, "unknown"),
            units=random.choice([1, 1, 2, 3]),
            budget=mostly(1000, 59),
            sequence=mostly(7, 8),
            right_provider=mostly(True, False),
            right_service=mostly(True, False),
            right_input=mostly(True, False),
            currency=mostly(chosen.currency, "USD"),
            org=random.choice(["", "", "", "own", "other"] if random.random() < 0.2 else [""]),
        )

    # -- at the model ------------------------------------------------------------------------

    def at_the_model(self, kind: str, *values: Any) -> Any:
        answer = self._at_the_model(kind, *values)
        self.answers.add(f"{kind} {answer}")
        self.states.update(one.state for one in self.model.placed.values())
        return answer

    def _at_the_model(self, kind: str, *values: Any) -> Any:
        if kind == "tick":
            name = values[0]
            if name in self.model.placed:
                self.model.tick(name)
            return None
        if kind == "result":
            name, status, variant, honest = values
            return self.model.result(name, status, variant, honest=honest)
        return getattr(self.model, kind)(*values)

    # -- at the node -------------------------------------------------------------------------

    async def at_the_node(self, kind: str, *values: Any) -> Any:
        match kind, values:
            case "top_up", (key, purse, amount):
                account = f"account:{PURSES[purse]}"
                answer = await self.desk.top_up(amount, account=account, idempotency_key=key)
                return _status(answer.status)
            case "submit", (facts,):
                return await self.submit(facts)
            case "prepare", (name,):
                return await self.prepare(name)
            case "arrived", (name,):
                return await self.desk.orders.dispatched(f"order:{name}")
            case "lost", (name,):
                return await self.desk.orders.dispatch_failed(f"order:{name}", "no route")
            case "result", (name, status, variant, honest):
                changes = {"provider/metadata": {"variant": variant}}
                document = result(changes, order_id=f"order:{name}", status=status)
                source = PROVIDER.node_id if honest else STRANGER.node_id
                return await self.desk.deliver(document, source)
            case "act", (name, action):
                return await self.act(name, action)
            case "tick", (name,):
                return await self.tick(name)
        raise AssertionError(kind)

    async def submit(self, facts: OrderFacts) -> str:
        answer = await self.desk.submit(order_of(facts))
        if answer.status in (409, 503):
            return "conflict" if answer.status == 409 else "died"
        if answer.body["status"] == "rejected":
            return str(answer.body["classifier"])
        placed = self.orders.setdefault(facts.name, answer.body)
        assert answer.body == placed  # the same execution, hold and contract, every time
        return {201: "opened", 200: "replayed"}[answer.status]

    async def prepare(self, name: str) -> str:
        execution = self.desk.entities.get(EXECUTIONS, f"order:{name}")
        order = execution.order if execution else _ANY_ORDER | {"order/id": f"order:{name}"}
        try:
            await self.desk.orders.dispatch_prepared(f"order:{name}", "delivery:1", request(order))
        except StoreError:
            raise
        except AnabranchError as error:
            return {"invalid_document": "order_unknown"}.get(error.code, error.code)
        return "ok"

    async def act(self, name: str, action: str) -> str:
        path, body = action, {}
        if action.startswith("for "):
            path, body = "resolve", {"for": action.removeprefix("for ")}
        answer = await self.desk.post(f"/v1/executions/execution:{name}/{path}", body)
        return _status(answer.status)

    async def tick(self, name: str) -> None:
        for family, thing in self.desk.entities.due(self.desk.clock.now()):
            if thing == f"order:{name}":
                await self.desk.orders.wake(family, thing)

    # -- how things stand at the node --------------------------------------------------------

    def seen(self) -> dict[str, object]:
        def balance(name: str) -> int:
            account = self.desk.entities.get(ACCOUNTS, f"account:{name}")
            return account.balance if account else 0

        placed: dict[str, object] = {}
        for name in NAMES:
            one = self.desk.entities.get(EXECUTIONS, f"order:{name}")
            if one is not None:
                hold = self.desk.entities.get(HOLDS, one.terms.hold_id)
                status = hold.document()["status"] if hold else "none"
                outcome = one.receipt["outcome"] if one.receipt else ""
                placed[name] = one.state, status, outcome, one.overdue
        return {
            "purse": {name: balance(identity) for name, identity in PURSES.items()},
            "escrow": balance("escrow"),
            "earned": balance(PROVIDER.participant_id),
            "outside": balance("external"),
            **placed,
        }


def _status(status: int) -> str:
    return "died" if status == 503 else str(status)


_ANY_ORDER = BUYER.sign_as_participant(
    {
        **draft(),
        "buyer/node-id": BUYER.node_id,
        "buyer/subject-kind": "participant",
        "buyer/subject-id": BUYER.participant_id,
    }
)


@cache
def play(seed: int) -> Met:
    history = History(seed)
    try:
        asyncio.run(history.run())
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    return Met(history.crashes, frozenset(history.states), frozenset(history.answers))


@pytest.mark.parametrize("number", range(PARTS))
def test_node_and_model_agree_on_random_histories_with_crashes(number: int) -> None:
    assert sum(play(seed).crashes for seed in part(number, PARTS, HISTORIES)) > 0


def test_the_histories_reach_every_state_and_every_class() -> None:
    """Otherwise agreement would say little."""
    met = [play(seed) for seed in range(100)]
    states = frozenset[str]().union(*(one.states for one in met))
    answers = frozenset[str]().union(*(one.answers for one in met))
    assert states == set(STATES)
    assert answers >= {
        *("submit opened", "submit replayed", "submit conflict", "submit offer-not-found"),
        *("submit offer-expired", "submit offer-seq-mismatch", "submit provider-mismatch"),
        *("submit service-type-mismatch", "submit other-reason", "submit currency-mismatch"),
        *("submit price-exceeded", "submit queue-saturated", "submit custodian-mismatch"),
        *("submit settlement-blocked", "result accepted", "result already-present"),
        *("result rejected result-conflict", "result rejected step-already-closed"),
        *("result rejected source-peer-mismatch", "result rejected unknown-request"),
    }
