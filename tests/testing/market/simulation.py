"""One history of a market: nodes that trade by plan while everything around them fails.

All of it follows from the seed. With `faults=False` the same people do the same things in a world
where nothing fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any
from urllib.parse import quote

from anabranch.market.node.buying.dispatching import dispatch_request, envelope_of

from .activities import OTHER, WORK_SECONDS, Activities, offer_at
from .failing_world import MODULE
from .plans import FUNDS, Plan, random_plan

NAMES = ("a", "b", "c", "d")


class Simulation(Activities):
    def __init__(self, seed: int, *, faults: bool = True, laws: bool = True) -> None:
        chance = Random(f"plans of {seed}")
        names = list(NAMES[: chance.choice((2, 2, 3, 3, 4))])
        self.plans = [random_plan(chance, number, names) for number in range(chance.randint(2, 5))]
        self._script = list(self._steps(chance))
        self.losers: dict[str, list[str]] = {name: [] for name in names}
        super().__init__(seed, names, faults=faults, laws=laws)

    def _steps(self, chance: Random) -> Iterator[tuple[str, Plan | None]]:
        """The steps of all plans, mixed, each plan in its own order; and what else people do."""
        left = {plan: ["order", "dispatch", "answer", "decide"] for plan in self.plans}
        while left:
            if chance.random() < 0.5:
                yield chance.choice(OTHER), None
                continue
            plan = chance.choice(list(left))
            yield left[plan].pop(0), plan
            if not left[plan]:
                del left[plan]

    def run(self) -> None:
        self._begin()
        for step, plan in self._script:
            self._disturb()
            if plan is None:
                getattr(self, f"_{step}")()
            else:
                getattr(self, f"_{step}")(plan)
        self._end()

    def _begin(self) -> None:
        """A market: everybody knows everybody's offers and has money."""
        self._refuge += 1
        self.advance(150)
        for name in self.names:
            self.ask(name, "POST", "/v1/ledger/top-up", {"amount": FUNDS, "idempotency_key": "k"})
            for offer in {(one.mode, one.price) for one in self.plans if one.provider == name}:
                made = self.ask(name, "POST", "/v1/service-offers", offer_at(name, offer))
                assert made.status in (200, 201), made.body
        self._refuge -= 1
        for name in self.names:
            for other in self.names:
                if other == name:
                    continue
                trusted = {"participant_id": self.world[other].participant_id}
                self.ask(name, "POST", "/v1/trusted-providers", trusted)
                self.wait(lambda name=name, other=other: self._fetched(name, other), "a fetch")

    def _fetched(self, name: str, other: str) -> bool | None:
        body = {"node_id": self.world[other].node_id}
        fetched = self.ask(name, "POST", "/v1/service-offers/fetch", body)
        return True if fetched.status == 200 else None

    def _order(self, plan: Plan) -> None:
        offer_id = f"offer:{plan.provider}-{plan.mode or 'none'}-{plan.price}"
        if plan.by_module:
            answer = self.ask(
                plan.buyer, "POST", "/v1/service-orders", self._draft(plan, offer_id), MODULE
            )
        else:
            wish = {
                "offer_id": offer_id, "order_id": plan.order_id, "units": plan.units,
                "input": {"n": plan.number}, "dispatch": not plan.late_dispatch,
            }  # fmt: skip
            answer = self.ask(plan.buyer, "POST", "/v1/orders", wish)
        assert answer.body.get("status") == "opened-execution", (self.seed, plan, answer.body)

    def _draft(self, plan: Plan, offer_id: str) -> dict[str, Any]:
        provider = self.world[plan.provider]
        return {
            "schema/v": 1,
            "order/id": plan.order_id,
            "created-at": "2026-06-10T08:00:00Z",
            "provider/node-id": provider.node_id,
            "provider/participant-id": provider.participant_id,
            "offer/id": offer_id,
            "offer/seq": 1,
            "service/type": "text/x",
            "request/units": plan.units,
            "request/input": {"n": plan.number},
            "pricing/max-amount": plan.amount,
            "pricing/currency": "ORC",
            "workflow/run-id": f"run:{plan.number}",
            "workflow/phase-id": "s",
        }

    def _dispatch(self, plan: Plan) -> None:
        path = f"/v1/executions/{plan.execution_id}"
        if not plan.by_module:
            answer = self.ask(plan.buyer, "POST", f"{path}/dispatch")
            assert answer.status == 200, (self.seed, answer.body)
            return
        found = self.ask(plan.buyer, "GET", path, None, MODULE)
        buyer, provider = self.world[plan.buyer], self.world[plan.provider]
        request = dispatch_request(
            found.body["order"], plan.execution_id, found.body["deadlines"]["work_by"],
            buyer.node_id,
        )  # fmt: skip
        self._send(plan.buyer, envelope_of(request, provider.node_id, MODULE))

    def _entry(self, plan: Plan) -> Any:
        listed = self.ask(plan.provider, "GET", "/v1/inbox?limit=500").body["items"]
        return next((one for one in listed if one["order/id"] == plan.order_id), None)

    def _answer(self, plan: Plan) -> None:
        entry = self.wait(lambda: self._entry(plan), f"the request of {plan.order_id}")
        if plan.answer in ("completed", "failed", "rejected"):
            for _ in range(1 + plan.repeats):
                self._say(plan, entry)
            self.wait(lambda: self._result_of(plan), f"the result of {plan.order_id}")
            if plan.rival:
                self._rival(plan, entry)

    def _say(self, plan: Plan, entry: Mapping[str, Any]) -> None:
        path = f"/v1/inbox/{quote(entry['id'], safe='')}/answer"
        answer = self.ask(plan.provider, "POST", path, self._said(plan))
        assert answer.status == 200, (self.seed, answer.body)
        other = {"status": "completed", "output": {"text": "something else"}}
        assert self.ask(plan.provider, "POST", path, other).status == 409

    def _said(self, plan: Plan) -> dict[str, Any]:
        if plan.answer in ("completed", "late"):
            return {"status": "completed", "output": {"text": f"answer-of-{plan.number}"}}
        return {"status": plan.answer, "error": {"code": "no", "message": "it did not work"}}

    def _result_of(self, plan: Plan) -> Any:
        found = self.ask(plan.buyer, "GET", f"/v1/executions/{plan.execution_id}")
        return found.body["result"]

    def _rival(self, plan: Plan, entry: Mapping[str, Any]) -> None:
        """The module of the provider says something else, after the operator."""
        provider, text = self.world[plan.provider], f"losing-{plan.number}"
        result = {
            "schema": "service-order.result.v1",
            **{name: entry[name] for name in ("request_id", "workflow/run-id")},
            "workflow/phase-id": entry["workflow/phase-id"],
            "correlation/id": entry["workflow/run-id"],
            "service_type": entry["service_type"],
            "status": "completed",
            "provider/node-id": provider.node_id,
            "provider/participant-id": provider.participant_id,
            "responded_at": "2026-06-10T08:00:00Z",
            "output": {"text": text},
        }
        self.losers[plan.buyer].append(text)
        self._send(plan.provider, envelope_of(result, self.world[plan.buyer].node_id, MODULE))

    def _decide(self, plan: Plan) -> None:
        if not plan.waits_for_people or plan.decision == "nothing":
            return
        path = f"/v1/executions/{plan.execution_id}"
        first = plan.decision if plan.decision in ("accept", "release") else "dispute"
        self._act(plan, f"{path}/{first}", None)
        if plan.decision in ("for-payer", "for-payee"):
            self._act(plan, f"{path}/resolve", {"for": plan.decision.removeprefix("for-")})

    def _act(self, plan: Plan, path: str, body: Any) -> None:
        """Said twice, it is refused: 409 after a crash means that the first one was heard."""
        answer = self.ask(plan.buyer, "POST", path, body)
        assert answer.status in (200, 409), (self.seed, answer.body)

    def _end(self) -> None:
        """Everything heals, time passes, and those who are late say what they have to say."""
        self.heal()
        self.advance(WORK_SECONDS + 60)
        for plan in self.plans:
            if plan.answer == "late":
                entry = self._entry(plan)
                self._say(plan, entry)
                self.losers[plan.buyer].append(f"answer-of-{plan.number}")
        self.advance(600)
        for name in self.names:
            self._look(name)
