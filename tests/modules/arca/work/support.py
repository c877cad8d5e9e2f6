"""A host and a catalog that are told what to say, and tasks as the engine gives them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any
from urllib.parse import unquote

import msgspec

from anabranch.market.documents import digest_of, sign
from anabranch.market.identities import SigningKey, canonical
from anabranch.market.node.api import Answer
from anabranch.market.node.orders.executions import with_prefix
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.details import StepDetails
from anabranch.modules.arca.results import Results
from anabranch.modules.arca.work.attempts import Attempt
from anabranch.modules.arca.work.performers import hosted_performers
from anabranch.modules.kit.host import Host, HostUnavailable
from anabranch.work.participants.performers import rfc3339
from anabranch.work.port import Performer, Task
from virtual import run_virtually

START = 1_781_078_400_000  # 2026-06-10T08:00:00Z
DAY = 86_400_000


class Party:
    """A provider with keys of its own."""

    def __init__(self, number: int) -> None:
        self.key = SigningKey.from_seed(bytes([number]) * 32)
        self.node = SigningKey.from_seed(bytes([number, 7]) * 16).identity("node")
        self.name = self.key.identity("participant")


BUYER, ANNA, BERT = Party(1), Party(2), Party(3)


def offer(party: Party = ANNA, **changes: Any) -> dict[str, Any]:
    """An offer for 100 ORC an item. In names `__` is a slash and `_` a hyphen; None removes."""
    document: dict[str, Any] = {
        "schema/v": 1,
        "offer/id": "offer:summaries",
        "created-at": rfc3339(START - DAY),
        "published-at": rfc3339(START - DAY),
        "expires-at": rfc3339(START + 30 * DAY),
        "sequence/no": 1,
        "provider/node-id": party.node,
        "provider/participant-id": party.name,
        "service/type": "text/summarise",
        "service/description": "a summary",
        "pricing/amount": 100,
        "pricing/currency": "ORC",
        "pricing/unit": "text",
        "pricing/unit-kind": "per-item",
        "delivery/max-duration-sec": 3600,
        "queue/auto-accept": True,
        "queue/max-depth": 10,
        "hybrid": False,
    }
    document |= {key.replace("__", "/").replace("_", "-"): v for key, v in changes.items()}
    kept = {key: value for key, value in document.items() if value is not None}
    return sign("service-offer.v1", kept, party.key)


class KnownOffers:
    """The port `Offers` over a list."""

    def __init__(self, *offers: Mapping[str, Any]) -> None:
        self.known = list(offers)
        self.heard: list[Mapping[str, Any]] = []  # what the next refresh brings
        self.refreshed = 0

    def offers(
        self,
        *,
        service_type: str,
        provider: str = "",
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - as the port has it
    ) -> list[Mapping[str, Any]]:
        found = [
            one
            for one in self.known
            if service_type in ("", one["service/type"])
            and provider in ("", one["provider/participant-id"])
            and all(one.get(key) == value for key, value in (filter or {}).items())
        ]
        return sorted(found, key=lambda one: (one["pricing/amount"], one["offer/id"]))

    def offer(self, offer_id: str) -> Mapping[str, Any] | None:
        return next((one for one in self.known if one["offer/id"] == offer_id), None)

    async def refresh(self) -> None:
        self.refreshed += 1
        ids = {one["offer/id"] for one in self.heard}
        self.known = [one for one in self.known if one["offer/id"] not in ids] + self.heard


class FakeHost:
    """Keeps executions, and says what it is told to say. Every call is in `calls`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.away = 0  # calls that are not answered
        self.executions: dict[str, dict[str, Any]] = {}
        self.results: dict[str, Any] = {}
        self.drafts: list[dict[str, Any]] = []
        self.delivered: list[dict[str, Any]] = []
        self.rejections: list[dict[str, Any]] = []  # for the next orders
        self.refusals: dict[str, tuple[int, str]] = {}  # path → status and code
        self.holders: dict[str, list[dict[str, Any]]] = {}
        self.nodes: dict[str, list[str]] = {}
        self.unread = ""
        self.capabilities: dict[str, Any] = {}
        self.peers: dict[str, Callable[[Any], Any]] = {}  # node → outcome for a payload

    def host(self) -> Host:
        return Host(self.call)

    async def call(self, method: str, path: str, body: Any, _query: Mapping[str, str]) -> Answer:
        self.calls.append((method, path, body))
        if self.away:
            self.away -= 1
            raise HostUnavailable("nobody is there")
        if path in self.refusals:
            status, code = self.refusals[path]
            return Answer(status=status, body={"code": code, "detail": code})
        if path == "/v1/service-orders":
            return Answer(body=self._ordered(body))
        if path.startswith("/v1/executions/"):
            return self._read(unquote(path.removeprefix("/v1/executions/")))
        return await self._capability(path.removeprefix("/v1/host/capabilities/"), body)

    def _ordered(self, draft: dict[str, Any]) -> dict[str, Any]:
        self.drafts.append(draft)
        if self.rejections:
            return {"status": "rejected", "rejected-reason": "no", **self.rejections.pop(0)}
        order = {**draft, "buyer/node-id": BUYER.node}
        execution_id = with_prefix(draft["order/id"], "execution")
        self.executions[execution_id] = {
            "execution_id": execution_id,
            "order_id": draft["order/id"],
            "order": order,
            "state": "opened",
            "terminal": False,
            "offer_id": draft["offer/id"],
            "provider": {
                "node_id": draft["provider/node-id"],
                "participant_id": draft["provider/participant-id"],
            },
            "workflow": {
                "run_id": draft["workflow/run-id"], "phase_id": draft["workflow/phase-id"],
            },
            "deadlines": {"work_by": rfc3339(START + 60_000)},
            "contract_id": with_prefix(draft["order/id"], "contract"),
            "receipt_id": None,
            "request_id": None,
            "delivery_id": None,
            "result": None,
            "reason": None,
        }  # fmt: skip
        return {"status": "opened-execution", "execution_id": execution_id}

    def _read(self, name: str) -> Answer:
        execution_id, _, part = name.partition("/")
        kept = self.results if part else self.executions
        found = kept.get(execution_id)
        return Answer(status=200 if found else 404, body=found or {"code": "not_found"})

    async def _capability(self, name: str, body: Any) -> Answer:
        match name:
            case "seed.directory.query":
                return Answer(body=self._directory(body["query"]))
            case "artifact.delivery.send":
                return Answer(status=202, body=self._sent(body))
            case "peer.message.dispatch":
                node = body["destination"]["node_id"]
                gone = {"status": "unreachable", "error": {"code": "peer_unknown", "message": "?"}}
                said = self.peers[node](body["payload"]) if node in self.peers else gone
                return Answer(body={"targets": [{"node_id": node, **said}]})
        if name not in self.capabilities:
            return Answer(status=503, body={"code": "host_capability_unavailable", "detail": "no"})
        said = self.capabilities[name]
        return said if isinstance(said, Answer) else Answer(body=said)

    def _directory(self, query: Mapping[str, Any]) -> dict[str, Any]:
        if "participant_id" in query:
            rows: list[Any] = [
                {"node_id": one} for one in self.nodes.get(query["participant_id"], [])
            ]
        else:
            rows = self.holders.get(query["capability_id"], [])
        return {"status": "ok", "items": rows, **({"unread": self.unread} if self.unread else {})}

    def _sent(self, envelope: dict[str, Any]) -> dict[str, Any]:
        self.delivered.append(envelope)
        digest = digest_of(canonical(envelope))
        for one in self.executions.values():
            if one["state"] == "opened":
                one |= {"state": "dispatch_prepared", "delivery_id": "delivery:1"}
        return {
            "operation/id": f"deferred:artifact-delivery.submit:{digest[7:20]}",
            "status_href": "/v1/artifact-delivery/deliveries/delivery:1/operation-status",
            "audit/outcome-ref": "delivery:1",
        }

    # -- what becomes of orders ----------------------------------------------------------------

    def end(self, state: str, *, output: Any = None, reason: str = "", error: Any = None) -> None:
        """Every open execution ends like this."""
        for execution_id, one in self.executions.items():
            if one["terminal"]:
                continue
            one |= {"state": state, "terminal": True, "reason": reason or None}
            if error is not None:
                one["result"] = {"status": state, "digest": "sha256:x", "error": error}
            if state == "released":
                self.results[execution_id] = {"schema": "service-order.result.v1", "output": output}
                one["receipt_id"] = with_prefix(one["order_id"], "receipt")

    def paths(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.calls]


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, in virtual time."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtually(test(*args, **kwargs))

    return run


class LoopClock:
    """The clock of the event loop, which is virtual in these tests."""

    def __init__(self) -> None:
        self._begin = asyncio.get_running_loop().time()

    def now(self) -> int:
        return START + round((asyncio.get_running_loop().time() - self._begin) * 1000)


class Work:
    """The performers over a host that is told what to say."""

    def __init__(self, *offers: Mapping[str, Any], **config: Any) -> None:
        self.fake = FakeHost()
        self.offers = KnownOffers(*offers)
        self.details = StepDetails()
        self.clock = LoopClock()
        self.open_attempts: set[Attempt] = set()
        host = self.fake.host()
        self.results = Results(host, lambda attempt: attempt in self.open_attempts)
        self.performers: dict[str, Performer] = hosted_performers(
            host=host,
            offers=self.offers,
            details=self.details,
            results=self.results,
            clock=self.clock,
            config=msgspec.convert(config, ArcaConfig),
        )

    async def perform(self, task: Task) -> Any:
        return await self.performers[task.kind].perform(task)


def task(kind: str, *, job: str = "7.0", tries: int = 1, run: str = "run1", **inputs: Any) -> Task:
    return Task(
        run=run, step="s1", job=job, attempt=tries, tries=tries, key=f"{run}/{job}", kind=kind,
        inputs={"step_id": "s1", "service_type": "text/summarise", **inputs},
    )  # fmt: skip


def holder(party: Party, **more: Any) -> dict[str, Any]:
    """A row of the directory."""
    return {
        "node_id": party.node,
        "capability_id": "offer-catalog",
        "passport": {"scope": {"region": "eu"}},
        "anchor_identity": party.name,
        **more,
    }
