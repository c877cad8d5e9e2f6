"""The stories in virtual time: nodes, offers, roles and definitions of the commands, in a World."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Self
from urllib.parse import quote

from anabranch.errors import AnabranchError
from anabranch.market.node.modules.api.run_shapes import CLOSED_RUNS
from anabranch.surfaces.stories import roles
from anabranch.surfaces.stories.laws import difference
from anabranch.surfaces.stories.plan import ROLE, NodePlan
from anabranch.surfaces.stories.story import Story
from anabranch.testing.market import NodeSpec, World, WorldNode, arca, check_laws, dator

DAY = 86_400.0


def spec_of(plan: NodePlan) -> NodeSpec:
    modules: dict[str, Any] = {"arca": arca()}
    if plan.offers:
        modules["dator"] = dator(plan.dator({}), {ROLE: getattr(roles, plan.role)})
    return NodeSpec(
        name=plan.name, modules=modules, config={"directory": {"passports": list(plan.passports)}}
    )


class StoryWorld:
    """`before_run` and `payer` may be replaced."""

    def __init__(self, story: Story, *, runs: int = 1) -> None:
        self.story = story
        self.plans = story.plans()
        self.world = World([spec_of(plan) for plan in self.plans])
        self.buyer = self.world[self.plans[0].name]
        self.world.advance(5)
        for plan in self.plans:
            if plan.offers:
                self.ask(self.buyer, "POST", "/v1/trusted-providers",
                         {"participant_id": self.world[plan.name].participant_id})  # fmt: skip
        if budget := story.budget(runs):
            self.ask(self.buyer, "POST", "/v1/ledger/top-up", {"amount": budget})
        self.ask(self.buyer, "POST", "/v1/directory/sync")
        self.ask(self.buyer, "POST", "/v1/enact/offer-catalog/sync", {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for node in self.world.nodes:
            node.kill()

    def ask(self, node: WorldNode, method: str, path: str, body: Any = None) -> Any:
        answer = node.request(method, path, body).result
        assert answer.status in (200, 201, 202), (method, path, answer)
        return answer.body

    # -- runs ------------------------------------------------------------------------------------

    def start(self, run: str, definition: dict[str, Any] | None = None) -> str:
        body = {"definition": definition or self.story.definition(), "run_id": run}  # type: ignore[attr-defined]
        return str(self.ask(self.buyer, "POST", "/v1/enact/arca/runs", body)["run_id"])

    def play(self, runs: list[str], until: Callable[[], bool] | None = None) -> None:
        """Let the payer accept what comes until all runs are closed and all orders settled."""
        end = self.world.seconds() + DAY
        is_over = until or (lambda: self.closed(runs) and not self.open_orders())
        while not is_over():
            assert self.world.seconds() < end, Counter(map(self.buyer.run_status, runs))
            self.world.advance(1)
            self.accept_all()
        self.world.advance(30)  # what comes late

    def closed(self, runs: list[str]) -> bool:
        return all(self.buyer.run_status(run) in CLOSED_RUNS for run in runs)

    def open_orders(self) -> list[dict[str, Any]]:
        if self.buyer.node is None:
            return []
        return list(self.ask(self.buyer, "GET", "/v1/executions?open=true&limit=500")["items"])

    def accept_all(self) -> None:
        for one in self.open_orders():
            if one["state"] == "awaiting_acceptance":
                execution = quote(one["execution_id"], safe="")
                self.ask(self.buyer, "POST", f"/v1/executions/{execution}/accept", {})

    def snapshot(self, run: str) -> dict[str, Any]:
        path = f"/v1/module/workflow/runs/{quote(run, safe='')}"
        found: dict[str, Any] = self.ask(self.buyer, "GET", path)
        return found

    def items(self, path: str, node: WorldNode | None = None) -> list[dict[str, Any]]:
        """All rows of a list, page by page."""
        found: list[dict[str, Any]] = []
        before = ""
        while True:
            more = f"&before={quote(before, safe='')}" if before else ""
            page = self.ask(node or self.buyer, "GET", f"{path}?limit=500{more}")
            found += page["items"]
            before = page.get("next") or ""
            if not before:
                return found

    # -- where processes die meanwhile -----------------------------------------------------------

    def try_start(self, run: str) -> bool:
        body = {"definition": self.story.definition(), "run_id": run}  # type: ignore[attr-defined]
        answer = self._answer("POST", "/v1/enact/arca/runs", body)
        return answer is not None and answer.status in (200, 201)

    def try_accept(self) -> None:
        listed = self._answer("GET", "/v1/executions?open=true&limit=500")
        for one in listed.body["items"] if listed is not None else ():
            if one["state"] == "awaiting_acceptance":
                execution = quote(one["execution_id"], safe="")
                self._answer("POST", f"/v1/executions/{execution}/accept", {})

    def _answer(self, method: str, path: str, body: Any = None) -> Any:
        """None where the process that was asked died meanwhile, or is down."""
        try:
            return self.buyer.request(method, path, body).result
        except (AnabranchError, asyncio.CancelledError):
            return None

    # -- laws ------------------------------------------------------------------------------------

    def require_laws(self, runs: list[str]) -> None:
        assert check_laws(self.world) == []
        self._require_once(runs)
        for run in runs:
            self._require_same(run)

    def _require_once(self, runs: list[str]) -> None:
        executions = self.items("/v1/executions")
        steps = Counter((one["workflow"]["run_id"], one["workflow"]["phase_id"])
                        for one in executions)  # fmt: skip
        assert all(times == 1 for times in steps.values()), steps.most_common(3)
        assert {run for run, _ in steps} <= set(runs)
        balances = [one["balance"] for one in self.items("/v1/ledger/accounts")]
        assert sum(balances) == 0
        told = Counter(one.get("correlation_id") for one in self.items("/v1/notifications"))
        ended = [run for run in runs if self.buyer.run_status(run) in CLOSED_RUNS]
        assert {run: told[run] for run in ended} == dict.fromkeys(ended, 1)

    def _require_same(self, run: str) -> None:
        """The snapshot of the host is the run of the engine."""
        engine = self.ask(self.buyer, "GET", f"/v1/enact/arca/runs/{quote(run, safe='')}")
        assert difference(engine, self.snapshot(run)) == ""
