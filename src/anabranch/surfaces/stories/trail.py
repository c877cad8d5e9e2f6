"""What happens in a run, seen through the APIs of its nodes: each thing is found once.

The instants are those of the records, not those of the look. A node that is away is asked again
with the next look; what it has to say is on its disk.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from anabranch.market.node.delivery.admission_records import admission_id_of
from anabranch.surfaces.stories.market import StoryMarket
from anabranch.surfaces.stories.processes import NodeAway, NodeProcess, NodeRefused, part

CLOSED = ("completed", "failed", "cancelled", "deadline_exceeded", "step_timeout")
REQUEST, RESULT = "service-order.dispatch.request.v1", "service-order.result.v1"
#: What became of a question, by the outcome or the status of its dispatch.
ANSWERS = {
    "usable": "answers with an offer",
    "negative": "answers that it has no offer",
    "unreachable": "cannot be reached",
    "timeout": "has not answered in time",
    "cancelled": "is not waited for any more",
}


class Seen(NamedTuple):
    key: tuple[str, ...]  # of the arrow; each is seen once
    who: str
    text: str
    at: float | None  # seconds since the epoch

    @property
    def arrow(self) -> str:
        return self.key[0]


class Trail:
    def __init__(self, market: StoryMarket, run: str, fan_outs: tuple[str, ...] = ()) -> None:
        """`fan_outs` are the steps that ask many."""
        self._market = market
        self.run = run
        self._fan_outs = fan_outs
        self._seen: set[tuple[str, ...]] = set()
        self.snapshot: dict[str, Any] = {}  # as the host of the buyer has it
        self.executions: dict[str, dict[str, Any]] = {}  # by their id

    @property
    def status(self) -> str:
        return str(self.snapshot.get("status", ""))

    @property
    def closed(self) -> bool:
        return self.status in CLOSED

    @property
    def settled(self) -> bool:
        """Every order has ended."""
        return all(one["terminal"] for one in self.executions.values())

    async def look(self) -> list[Seen]:
        """What is new, in the order in which it happened."""
        found = []
        for looking in (self._run(), self._orders(), self._providers(), self._ends()):
            try:
                async for one in looking:
                    if one.key not in self._seen:
                        self._seen.add(one.key)
                        found.append(one)
            except (NodeAway, NodeRefused):
                continue
        now = time.time()
        return sorted(found, key=lambda one: one.at or now)

    # -- the run ---------------------------------------------------------------------------------

    async def _run(self) -> AsyncIterator[Seen]:
        buyer = self._market.buyer
        path = f"/v1/module/workflow/runs/{part(self.run)}"
        self.snapshot = shown = await buyer.ask("GET", path)
        yield Seen(("run",), buyer.name, f"{self.run} is known to the host", _at(shown, "created"))
        for step in shown["steps"]:
            for one in self._of_step(step):
                yield one

    def _of_step(self, step: Mapping[str, Any]) -> list[Seen]:
        market, name, found = self._market, step["step_id"], []
        for one in step.get("dispatches", ()) if name in self._fan_outs else ():
            target = market.named(one["target"])
            attempt = str(one.get("attempt") or 1)
            what, asked = (name, target, attempt), _at(one, "dispatched")
            found.append(Seen(("asked", *what), market.buyer.name, f"asks {target}", asked))
            if one["status"] != "pending":
                said = one.get("outcome") or one["status"]
                text = ANSWERS.get(said, f"answers: {said}")
                found.append(Seen(("answered", *what), target, text, _at(one, "responded")))
        offer = (step.get("selected_output") or {}).get("offer")
        if offer:
            text = (f"{offer['offer/id']} is the best: {offer['pricing/amount']} "
                    f"{offer['pricing/currency']}")  # fmt: skip
            found.append(Seen(("chosen", name), market.buyer.name, text, _at(step, "finished")))
        if step["status"] not in ("pending", "resolving", "awaiting_fan_out", "awaiting_execution"):
            text = f"step {name} is {_words(step['status'])}" + _because(step)
            key = ("step", name, step["status"], str(step.get("attempt")))
            found.append(Seen(key, market.buyer.name, text, _at(step, "finished")))
        return found

    # -- orders ----------------------------------------------------------------------------------

    async def _orders(self) -> AsyncIterator[Seen]:
        buyer = self._market.buyer
        query = {"run_id": self.run, "limit": 500}
        for one in (await buyer.ask("GET", "/v1/executions", query=query))["items"]:
            self.executions[one["execution_id"]] = one
            for seen in self._of_order(one):
                yield seen
            async for seen in self._sent(one):
                yield seen
            async for seen in self._receipt(one):
                yield seen

    def _of_order(self, one: Mapping[str, Any]) -> list[Seen]:
        name, order, market = self._market.buyer.name, one["order_id"], self._market
        provider = market.named(one["provider"]["node_id"])
        opened = _at(one, "opened")
        found = [Seen(("ordered", order), name, f"orders {one['offer_id']}: {order}", opened)]
        if one["hold_id"]:
            payment = one["payment"]
            text = f"{payment['amount']} {payment['currency']} on hold: {one['hold_id']}"
            found.append(Seen(("held", order), name, text, opened))
        if one["contract_id"]:
            text = f"{one['contract_id']} with {provider}"
            found.append(Seen(("contract", order), name, text, opened))
        if one["result"]:
            text = f"the result of {order} closes its work: {one['result']['status']}"
            at = _instant(one["result"]["received_at"])
            found.append(Seen(("admitted", order), name, text, at))
        for refused in one["refused_results"]:
            text = f"refuses a result of {order}: {refused.get('reason') or 'it is another one'}"
            key = ("refused", order, str(refused.get("digest")))
            found.append(Seen(key, name, text, None))
        if one["terminal"]:
            text = f"{one['execution_id']} is {_words(one['state'])}"
            found.append(Seen((one["state"], order), name, text, _at(one, "updated")))
        return found

    async def _sent(self, one: Mapping[str, Any]) -> AsyncIterator[Seen]:
        buyer, delivery, key = self._market.buyer, one["delivery_id"], ("sent", one["order_id"])
        if not delivery or key in self._seen:
            return
        found = await buyer.ask("GET", f"/v1/artifact-delivery/deliveries/{part(delivery)}")
        text = (
            f"sends the order to {self._market.named(one['provider']['node_id'])}, as an artifact"
        )
        yield Seen(key, buyer.name, text, _at(found, "submitted"))

    async def _receipt(self, one: Mapping[str, Any]) -> AsyncIterator[Seen]:
        buyer, receipt = self._market.buyer, one["receipt_id"]
        if not receipt or ("receipt", receipt) in self._seen:
            return
        found = await buyer.ask("GET", f"/v1/receipts/{part(receipt)}")
        text = f"{receipt}: {found['outcome']}"
        yield Seen(("receipt", receipt), buyer.name, text, _instant(found["created-at"]))
        if one["hold_id"]:
            hold = await buyer.ask("GET", f"/v1/ledger/holds/{part(one['hold_id'])}")
            text = f"{one['hold_id']} is {hold['status']}"
            at = _at(hold, "resolved")
            yield Seen(("hold", one["hold_id"], hold["status"]), buyer.name, text, at)

    # -- the other side --------------------------------------------------------------------------

    async def _providers(self) -> AsyncIterator[Seen]:
        involved = {one["provider"]["node_id"] for one in self.executions.values()}
        for node in self._market.providers:
            if node.node_id in involved:
                async for seen in self._of_provider(node):
                    yield seen

    async def _of_provider(self, node: NodeProcess) -> AsyncIterator[Seen]:
        buyer = self._market.buyer.node_id
        for one in self.executions.values():
            if one["provider"]["node_id"] != node.node_id or not one["request_id"]:
                continue
            key = ("taken", one["order_id"])
            if key in self._seen:
                continue
            admission = admission_id_of(buyer, REQUEST, buyer, one["request_id"])
            path = f"/v1/artifact-delivery/admissions/{part(admission)}"
            try:
                found = await node.ask("GET", path)
            except NodeRefused:  # it has not arrived yet
                continue
            if found["status"] in ("accepted", "rejected"):
                text = f"takes {one['order_id']} in: {found['status']}"
                yield Seen(key, node.name, text, _at(found, "updated"))
        path = f"/v1/workflows/runs/{part(self.run)}/steps/completed"
        for done in (await node.ask("GET", path))["items"]:
            text = f"its role has done the work of {done['step_id']}"
            yield Seen(("worked", done["record_id"]), node.name, text, _at(done, "recorded"))

    # -- the end ---------------------------------------------------------------------------------

    async def _ends(self) -> AsyncIterator[Seen]:
        buyer = self._market.buyer
        for file in sorted((buyer.folder.path / "middleware" / "arca" / "output").rglob("*.json")):
            if self.run == file.stem:
                text = f"the artifact {file.name} is written"
                yield Seen(("artifact", file.name), buyer.name, text, file.stat().st_mtime)
        told = await buyer.ask("GET", "/v1/notifications", query={"limit": 100})
        for one in told["items"]:
            if one.get("correlation_id") == self.run:
                text = f"its operator is told: {one['title']}"
                yield Seen(("notified", one["title"]), buyer.name, text, _at(one, "emitted"))
        if self.closed or self.status == "paused":
            text = f"{self.run} is {_words(self.status)}{_because(self.snapshot)}"
            at = _at(self.snapshot, "finished" if self.closed else "updated")
            yield Seen(("completed", self.status), buyer.name, text, at)


def _words(status: str) -> str:
    return status.replace("_", " ")


def _because(shown: Mapping[str, Any]) -> str:
    error = shown.get("error")
    reason = error["code"] if error else shown.get("pause_reason")
    step = f" in step {error['step_id']}" if error and error.get("step_id") else ""
    return f" ({reason}{step})" if reason else ""


def _at(record: Mapping[str, Any], name: str) -> float | None:
    """Records spell it `finished_at` or `finished-at`."""
    found = record.get(f"{name}_at") or record.get(f"{name}-at")
    return _instant(found) if found else None


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
