"""A host in memory: records, offers and deliveries, and as unreliable as a test wants it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from anabranch.market.node.api import Answer
from anabranch.market.passports import instant
from anabranch.modules.kit.host import HostUnavailable

NODE = "node:did:key:z6MkwJFpvJVFe15ygGgYLTYuiPwfhkkDRkMG4eKQFT8g65yE"


class FakeHost:
    """`refuse` is asked about every call: an answer to give instead, or None."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], Any] = {}
        self.created: dict[tuple[str, str], int] = {}
        self.now: Callable[[], int] = lambda: 0
        self.offers: dict[str, dict[str, Any]] = {}
        self.delivered: dict[str, dict[str, Any]] = {}  # envelopes by idempotency key
        self.notes: dict[str, str] = {}
        self.steps: list[Any] = []
        self.calls: list[tuple[str, str]] = []
        self.delivery_status: dict[str, Any] = {"status": "succeeded"}
        self.refuse: Callable[[str, str], Answer | None] = lambda _method, _path: None
        self.is_down = False

    async def __call__(
        self, method: str, path: str, body: Any, _query: Mapping[str, str]
    ) -> Answer:
        self.calls.append((method, path))
        await asyncio.sleep(0)  # others are heard meanwhile
        if self.is_down:
            raise HostUnavailable("the host is down")
        refused = self.refuse(method, path)
        if refused is not None:
            return refused
        said = json.loads(json.dumps(body))
        if path.startswith("/v1/module/store/records/"):
            return self._record(path.rpartition("/")[2], said)
        if path.startswith("/v1/service-offers"):
            return self._offer(method, path.removeprefix("/v1/service-offers"), said)
        if path == "/v1/module/notify":
            self.notes.setdefault(said["idempotency_key"], said["title"])
            return Answer(body={"outcome": "emitted"})
        if path.startswith("/v1/artifact-delivery/"):
            return Answer(body=self.delivery_status)
        return self._capability(path.rpartition("/")[2], said)

    def _record(self, verb: str, said: Any) -> Answer:
        key = said["record_kind"], said.get("record_id", "")
        if verb == "put":
            self.records[key] = said["payload"]
            self.created.setdefault(key, self.now())
            return Answer(body={"outcome": "stored"})
        if verb == "delete":
            gone = self.records.pop(key, None)
            self.created.pop(key, None)
            return Answer(body={"outcome": "missing" if gone is None else "deleted"})
        if verb == "list":
            before = said.get("created_before", "9999-01-01T00:00:00Z")
            rows = [
                {"record_id": name, "payload": payload}
                for (kind, name), payload in reversed(self.records.items())
                if kind == said["record_kind"]
                and self.created[kind, name] < instant(before, "created_before")
            ]
            return Answer(body={"records": rows[: said["limit"]]})
        if key not in self.records:
            return Answer(body={"outcome": "missing"})
        return Answer(body={"outcome": "found", "record": {"payload": self.records[key]}})

    def _offer(self, method: str, rest: str, said: Any) -> Answer:
        if method == "POST" and not rest:
            offer = {
                "published-at": "2026-06-10T08:00:00Z",
                "expires-at": "2026-07-10T08:00:00Z",
                **said,
            }
            self.offers[offer["offer/id"]] = offer
            return Answer(status=201, body={"status": "stored", "offer": offer})
        if rest.endswith("/withdraw"):
            offer = self.offers[unquote(rest.removesuffix("/withdraw").strip("/"))]
            offer |= {"offer/status": "withdrawn", "sequence/no": offer["sequence/no"] + 1}
            return Answer(body={"offer": dict(offer)})
        found = self.offers.get(unquote(rest.strip("/")))
        if found is None:
            return Answer(status=404, body={"code": "offer-not-found"})
        return Answer(body={"offer": found, "source": "local"})

    def _capability(self, name: str, said: Any) -> Answer:
        if name == "artifact.delivery.send":
            key = said["idempotency/key"]
            self.delivered[key] = said
            href = f"/v1/artifact-delivery/deliveries/delivery:{key}/operation-status"
            body = {"operation/id": f"deferred:artifact-delivery.submit:{key}", "status_href": href}
            return Answer(status=202, body=body)
        if name == "workflow.step.completed.publish":
            self.steps.append(said["record"])
            return Answer(body={"status": "ok"})
        if name == "offers.local.query":
            return Answer(body={"offers": list(self.offers.values())})
        return Answer(status=503, body={"code": "host_capability_unavailable", "detail": name})

    def kind(self, name: str) -> list[Any]:
        return [payload for (kind, _), payload in self.records.items() if kind == name]
