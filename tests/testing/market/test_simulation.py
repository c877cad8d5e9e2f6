"""Histories of a market, each fixed by its seed: with everything that fails, and without.

After every commit the laws of all parts hold. At the end everything has healed: what people did and
said has come to what a plain oracle says, on every node, and to the same as in a world where
nothing fails.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from anabranch.market.node.deferred.records import OPEN, OPERATIONS
from anabranch.market.node.delivery.admission_records import INBOX
from anabranch.market.node.delivery.records import DELIVERIES, TERMINAL
from anabranch.market.node.ledger.accounts import ACCOUNTS, Account, account_of
from anabranch.market.node.ledger.holds import HOLDS
from anabranch.market.node.orders.executions import EXECUTIONS
from anabranch.market.node.orders.machine import TERMINAL as ENDED
from anabranch.testing.market import check_laws
from anabranch.testing.market.laws import durable_things
from seeds import SHARE, part

from .plans import expected
from .simulation import Simulation

PARTS = 4  # that run side by side
HISTORIES = 40 if SHARE < 1 else 2000  # of which a test run takes a part
WAITS_FOR_A_PERSON = ("awaiting_manual_release", "disputed")


class Money(NamedTuple):
    balance: int
    held: int


class Final(NamedTuple):
    """What a history comes to, without its instants."""

    states: dict[str, str]  # of executions
    holds: dict[str, str]
    money: dict[str, Money]  # by node and participant
    requests: dict[str, list[str]]  # orders that came in, by node


def final_of(history: Simulation) -> Final:
    found = Final({}, {}, {}, {})
    for node in history.world.nodes:
        for order, execution in durable_things(node, EXECUTIONS).items():
            found.states[order] = execution.state
        found.holds.update({name: one.status for name, one in durable_things(node, HOLDS).items()})
        accounts = durable_things(node, ACCOUNTS)
        for other in history.world.nodes:
            account = accounts.get(account_of(other.participant_id), Account(""))
            money = Money(account.balance, account.held)
            found.money[f"{other.name} at {node.name}"] = money
        entries = durable_things(node, INBOX).values()
        found.requests[node.name] = sorted(
            one.received.request["order"]["order/id"] for one in entries
        )
    return found


def require_all_ended(history: Simulation) -> None:
    """Or waits for a person."""
    for node in history.world.nodes:
        for order, execution in durable_things(node, EXECUTIONS).items():
            assert execution.state in (*ENDED, *WAITS_FOR_A_PERSON), (order, execution.state)
        for name, delivery in durable_things(node, DELIVERIES).items():
            assert delivery.status in TERMINAL, (name, delivery.status)
        for name, operation in durable_things(node, OPERATIONS).items():
            assert operation.status not in OPEN, (name, operation.status)


def require_oracle(history: Simulation, final: Final) -> None:
    assert final.states == {plan.order_id: expected(plan).state for plan in history.plans}
    for buyer in history.names:
        for provider in history.names:
            plans = [one for one in history.plans if (one.buyer, one.provider) == (buyer, provider)]
            if buyer != provider:
                paid = sum(expected(plan).paid for plan in plans)
                assert final.money[f"{provider} at {buyer}"] == Money(paid, 0)
        spent = sum(expected(plan).paid for plan in history.plans if plan.buyer == buyer)
        held = sum(expected(plan).held for plan in history.plans if plan.buyer == buyer)
        assert final.money[f"{buyer} at {buyer}"] == (history.funds[buyer] - spent - held, held)
    for provider in history.names:
        orders = sorted(one.order_id for one in history.plans if one.provider == provider)
        assert final.requests[provider] == orders


def require_results_agree(history: Simulation) -> None:
    """What the buyer took is what the operator of the provider said, whatever else was sent."""
    for plan in history.plans:
        execution = durable_things(history.world[plan.buyer], EXECUTIONS)[plan.order_id]
        entries = durable_things(history.world[plan.provider], INBOX).values()
        (entry,) = [e for e in entries if e.received.request["order"]["order/id"] == plan.order_id]
        if execution.result is None:
            assert plan.answer in ("never", "late")
            continue
        sent = durable_things(history.world[plan.provider], DELIVERIES)
        digests = {sent[one.delivery_id].submitted.artifact.digest for one in entry.answers}
        assert digests == {execution.result.digest}
        assert execution.result.status == plan.answer


def require_no_raw_loser(history: Simulation) -> None:
    """What a provider said too late, or against its own word, reaches no module of the buyer."""
    for name, losers in history.losers.items():
        for loser in losers:
            assert not any(loser.encode() in payload for payload in history.heard[name]), loser


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_a_market_comes_to_what_was_agreed_whatever_fails(number: int) -> None:
    for seed in part(number, PARTS, HISTORIES):
        history = Simulation(seed)
        history.run()
        assert check_laws(history.world) == [], seed
        require_all_ended(history)
        require_results_agree(history)
        require_no_raw_loser(history)
        final = final_of(history)
        require_oracle(history, final)
        calm = Simulation(seed, faults=False, laws=False)
        calm.run()
        assert check_laws(calm.world) == [], seed
        assert final_of(calm) == final, seed
