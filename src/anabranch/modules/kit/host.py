"""How a module asks its host: one call, and a method for each thing that both modules ask for.

A host that is not there, or that is not ready, raises `HostUnavailable`: ask again later. What the
host refuses raises `HostRefused` with its status and code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from anabranch.errors import AnabranchError
from anabranch.market.node.api import Answer

#: (method, path, body, query) → what is answered; raises `HostUnavailable`.
HostCall = Callable[[str, str, Any, Mapping[str, str]], Awaitable[Answer]]

_LATER = (429, 502, 503, 504)  # statuses after which the same call may be answered


class HostUnavailable(AnabranchError):
    """The host did not answer, or cannot do it now."""

    code = "host_unavailable"


class HostRefused(AnabranchError):
    """The host answered with an error that stays."""

    def __init__(self, status: int, code: str, message: str, body: Any) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.body = body


class Host:
    def __init__(self, call: HostCall) -> None:
        self._call = call

    async def ask(
        self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None
    ) -> Answer:
        """A good answer (2xx). Raises `HostRefused` and `HostUnavailable`."""
        answer = await self._call(method, path, body, query or {})
        if 200 <= answer.status < 300:
            return answer
        said = answer.body if isinstance(answer.body, Mapping) else {}
        code = str(said.get("code") or f"host_{answer.status}")
        message = str(said.get("detail") or f"{method} {path} was answered with {answer.status}")
        if answer.status in _LATER:
            raise HostUnavailable(message, code=code)
        raise HostRefused(answer.status, code, message, answer.body)

    async def find(self, path: str) -> Any:
        """The body of a `GET`, or None where there is no such thing."""
        try:
            return (await self.ask("GET", path)).body
        except HostRefused as error:
            if error.status == 404:
                return None
            raise

    async def capability(
        self, name: str, body: Any, query: Mapping[str, str] | None = None
    ) -> Answer:
        return await self.ask("POST", f"/v1/host/capabilities/{name}", body, query)

    # -- orders ------------------------------------------------------------------------------

    async def submit_order(self, draft: Mapping[str, Any]) -> Any:
        """`{"status": "opened-execution", …}`, or `{"status": "rejected", "classifier", …}`."""
        return (await self.ask("POST", "/v1/service-orders", dict(draft))).body

    async def execution(self, execution_id: str) -> Any:
        """How an execution stands; None where there is none of this id."""
        return await self.find(f"/v1/executions/{quoted(execution_id)}")

    async def execution_result(self, execution_id: str) -> Any:
        """The `service-order.result.v1` that an execution has taken; None where it has none."""
        return await self.find(f"/v1/executions/{quoted(execution_id)}/result")

    # -- other nodes -------------------------------------------------------------------------

    async def deliver(self, envelope: Mapping[str, Any]) -> Any:
        """Take a delivery on: the `deferred-operation.v1`."""
        query = {"mode": "deferred"}
        return (await self.capability("artifact.delivery.send", dict(envelope), query)).body

    async def message(
        self,
        destination: Mapping[str, Any],
        msg: str,
        payload: Any,
        *,
        correlation_id: str,
        timeout_ms: int,
        mode: str = "blocking",
    ) -> list[dict[str, Any]]:
        """Send a message to peers: an outcome for each, as `peer.message.dispatch` says them."""
        body = {
            "schema_version": "v1",
            "capability_id": "peer_message_dispatch",
            "destination": dict(destination),
            "msg": msg,
            "payload": payload,
            "correlation_id": correlation_id,
            "timeout_ms": timeout_ms,
            "execution_mode": mode,
        }
        answer = await self.capability("peer.message.dispatch", body)
        return list(answer.body["targets"])

    async def holders(self, capability_id: str) -> list[dict[str, Any]]:
        """Rows of the directory's cache: nodes with a valid passport for a capability."""
        return await self._directory({"capability_id": capability_id})

    async def nodes_of(self, participant_id: str) -> list[str]:
        """The nodes that a participant runs, as the directory's cache knows."""
        rows = await self._directory({"participant_id": participant_id})
        return [str(row["node_id"]) for row in rows]

    async def _directory(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        """Raises `HostUnavailable` where none is known and a seed could not be read."""
        body = {"schema_version": "v1", "capability_id": "seed_directory_query", "query": query}
        said = (await self.capability("seed.directory.query", body)).body
        if not said["items"] and said.get("unread"):
            raise HostUnavailable(str(said["unread"]), code="directory_unread")
        return list(said["items"])

    # -- what the host keeps for a module ----------------------------------------------------

    async def notify(
        self, level: str, title: str, body: str = "", *, key: str, correlation_id: str = ""
    ) -> Any:
        """Tell the operator; once for a key."""
        said = {
            "schema_version": "v1",
            "capability_id": "notify_emit",
            "level": level,
            "title": title[:240],
            "body": body[:4096],
            "idempotency_key": key,
            **({"correlation_id": correlation_id} if correlation_id else {}),
        }
        return (await self.ask("POST", "/v1/module/notify", said)).body

    async def write_artifact(self, path: str, value: Any, *, key: str) -> Any:
        """Keep a JSON value as a file of this module; once for a key."""
        said = {
            "schema_version": "v1",
            "capability_id": "artifact_write",
            "path": path,
            "content_type": "application/json",
            "json": value,
            "idempotency_key": key,
        }
        return (await self.ask("POST", "/v1/module/artifact/write", said)).body

    async def put_record(self, kind: str, record_id: str, payload: Any) -> Any:
        said = {"record_kind": kind, "record_id": record_id, "payload": payload}
        return await self._record("put", said)

    async def record(self, kind: str, record_id: str) -> Any:
        """The record, or None."""
        answer = await self._record("get", {"record_kind": kind, "record_id": record_id})
        return answer.get("record") if answer else None

    async def records(
        self, kind: str, limit: int = 500, *, created_before: str | None = None
    ) -> list[Any]:
        """The newest so many, in as many answers as they take: one has some MiB at most, and a
        host looks at so many others at most for one."""
        found: list[Any] = []
        page: dict[str, Any] = {"record_kind": kind}
        if created_before is not None:
            page["created_before"] = created_before
        while len(found) < limit:
            answer = await self._record("list", {**page, "limit": limit - len(found)})
            found += answer["records"]
            if "next" not in answer:
                break
            page["before"] = answer["next"]
        return found

    async def delete_record(self, kind: str, record_id: str) -> Any:
        return await self._record("delete", {"record_kind": kind, "record_id": record_id})

    async def _record(self, verb: str, said: dict[str, Any]) -> Any:
        body = {"schema_version": "v1", "capability_id": f"module_store_{verb}", **said}
        return (await self.ask("POST", f"/v1/module/store/records/{verb}", body)).body


def quoted(name: str) -> str:
    """An id as one part of a path."""
    return quote(name, safe="")
