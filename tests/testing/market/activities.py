"""What people and modules of a market do besides trading by plan. It may change no order."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any
from urllib.parse import quote

from anabranch.market.node.buying.dispatching import envelope_of

from .failing_world import MODULE, NOTE, FailingWorld
from .plans import FUNDS, Plan

WORK_SECONDS = 7200


class Activities(FailingWorld):
    plans: list[Plan]

    def __init__(self, seed: int, names: list[str], *, faults: bool, laws: bool) -> None:
        super().__init__(seed, names, faults=faults, laws=laws)
        self.funds = dict.fromkeys(names, FUNDS)
        self._keys: set[tuple[str, str]] = set()
        self._others = 0

    def _any(self) -> str:
        self._others += 1
        return Random(f"{self.seed} {self._others}").choice(self.names)

    def _pause(self) -> None:
        self.advance(20)

    def _look(self, name: str = "") -> None:
        """A module looks at everything that it may see."""
        name = name or self._any()
        for path in (
            "/v1/executions?limit=500",
            "/v1/artifact-delivery/deliveries?limit=500",
            "/v1/deferred-operations?limit=500",
            "/v1/module/workflow/runs",
            "/v1/service-offers?source=all",
            "/v1/status",
        ):
            assert self.ask(name, "GET", path, None, MODULE).status == 200
        for plan in self.plans:
            run = f"/v1/workflows/runs/run:{plan.number}/steps/completed"
            self.ask(name, "GET", run, None, MODULE)
            self.ask(name, "GET", f"/v1/executions/{plan.execution_id}", None, MODULE)

    def _offer(self) -> None:
        """An offer of its own, published, changed and withdrawn."""
        name, number = self._any(), self._others
        offer = {**offer_at(name, ("self-confirmed", 7)), "offer/id": f"offer:{name}-x{number}"}
        assert self.ask(name, "POST", "/v1/service-offers", offer).status in (200, 201)
        path = f"/v1/service-offers/{quote(offer['offer/id'], safe='')}"
        if number % 2:
            assert self.ask(name, "POST", f"{path}/withdraw").status in (200, 409)

    def _trust(self) -> None:
        name, other = self._any(), self._any()
        participant = self.world[other].participant_id
        path = f"/v1/trusted-providers/{quote(participant, safe='')}"
        assert self.ask(name, "DELETE", path).status in (200, 404)
        added = self.ask(name, "POST", "/v1/trusted-providers", {"participant_id": participant})
        assert added.status in (200, 201)

    def _fetch(self) -> None:
        body = {"node_id": self.world[self._any()].node_id}
        self.ask(self._any(), "POST", "/v1/service-offers/fetch", body)

    def _push(self) -> None:
        body = {"node_ids": [self.world[self._any()].node_id], "observed": True}
        self.ask(self._any(), "POST", "/v1/service-offers/push", body)

    def _money(self) -> None:
        """The same key again is the same money."""
        name, number = self._any(), self._others
        key = f"k{number % 3}"
        self.funds[name] += 0 if (name, key) in self._keys else 10
        self._keys.add((name, key))
        body = {"amount": 10, "idempotency_key": key, "note": "x"}
        assert self.ask(name, "POST", "/v1/ledger/top-up", body).status in (200, 201)
        assert self.ask(name, "POST", "/v1/ledger/top-up", body).status == 200

    def _passport(self) -> None:
        name, number = self._any(), self._others
        body = {"capability_id": f"test-{number % 3}"}
        made = self.ask(name, "POST", "/v1/passports", body)
        if made.status == 201 and number % 2:
            revoked = {"passport_id": made.body["passport"]["passport_id"]}
            assert self.ask(name, "POST", "/v1/passports/revoke", revoked).status in (200, 404)

    def _module(self) -> None:
        """Records, notifications and runs, as the examples of the endpoints show them."""
        name = self._any()
        node = self.world[name].node
        if node is None:
            return
        for endpoint in node.api.endpoints:
            if endpoint.scopes == ("module",) and endpoint.example is not None:
                path = endpoint.path.format(run="run:1", step="s")
                if "artifact/" not in path:
                    answer = self.ask(name, "POST", path, endpoint.example, MODULE)
                    assert answer.status in (200, 404, 409), (path, answer.body)

    def _note(self) -> None:
        """A note for one node, or for another where that one cannot be reached."""
        name, first, second = self._any(), self._any(), self._any()
        document = {"schema": NOTE, "text": f"note {self._others}"}
        envelope = envelope_of(document, self.world[first].node_id, MODULE)
        stages = envelope["delivery/plan"]["stages"]
        stages[0]["on/failure"] = "second"
        target = {"selector/kind": "node", "node/id": self.world[second].node_id}
        stages.append({"stage/id": "second", "targets": [target]})
        self._send(name, envelope)

    def _recover(self) -> None:
        assert self.ask(self._any(), "POST", "/v1/artifact-delivery/recover").status == 200

    def _wrong(self) -> None:
        """What is not possible is refused, whoever asks and however often."""
        name = self._any()
        for path in ("accept", "dispute", "release", "dispatch"):
            assert self.ask(name, "POST", f"/v1/executions/execution:no/{path}").status == 404
        assert self.ask(name, "GET", "/v1/ledger/accounts", None, MODULE).status == 403

    def _send(self, name: str, envelope: Mapping[str, Any]) -> None:
        path = "/v1/host/capabilities/artifact.delivery.send?mode=deferred"
        answers = [self.ask(name, "POST", path, envelope, MODULE) for _ in range(2)]
        assert [one.status for one in answers] == [202, 202], (self.seed, answers)
        assert answers[0].body == answers[1].body  # the same delivery


OTHER = (
    "pause", "pause", "look", "offer", "trust", "fetch", "push", "money", "passport", "module",
    "note", "note", "recover", "wrong",
)  # fmt: skip


def offer_at(name: str, offer: tuple[str, int]) -> dict[str, Any]:
    mode, price = offer
    document: dict[str, Any] = {
        "offer/id": f"offer:{name}-{mode or 'none'}-{price}",
        "sequence/no": 1,
        "service/type": "text/x",
        "service/description": "x",
        "pricing/amount": price,
        "pricing/currency": "ORC",
        "pricing/unit": "text",
        "pricing/unit-kind": "per-request",
        "delivery/max-duration-sec": WORK_SECONDS,
        "queue/auto-accept": True,
        "queue/max-depth": 500,
        "hybrid": False,
        "expires-at": "2026-07-20T08:00:00Z",
    }
    return {**document, "confirmation/mode": mode} if mode else document
