"""The one acceptor for results of orders (`service-order.result.v1`).

The host asks it before it closes the order. A result is one of a step by run, step and request; it
is taken once, for the attempt that the step waits for. Nothing in a result decides anything about
its task: what its output looks like is the definition's affair.

The output of a step is read from the host, where its order is closed; so an accepted result only
wakes up the step that waits. One that is refused as `step-already-closed` closes its order all the
same: the work was done, and the money must not be stuck.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from binascii import Error as NotBase64
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from anabranch.market.documents import check
from anabranch.market.node.api import Endpoint
from anabranch.market.node.door import Door, weigh_artifact
from anabranch.modules.arca.work.attempts import (
    Attempt,
    attempt_of_request,
    is_of_another_run,
)
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable
from anabranch.modules.kit.module import MessageHandler, PeerMessage

logger = logging.getLogger("anabranch.module")

SCHEMA = "service-order.result.v1"
LEGACY = "service-order.dispatch.response"
REFUSED_KEPT = 200
UNKNOWN, WRONG_RUN = "unknown-request", "wrong-run"
CLOSED, CONFLICT = "step-already-closed", "conflicting-result"


class Results:
    """A part of the module Arca. `is_open` says whether a step is at this attempt, so that it can
    still take a result for it."""

    def __init__(self, host: Host, is_open: Callable[[Attempt], bool]) -> None:
        self._host = host
        self._is_open = is_open
        self._door = Door()
        self._waiting: dict[tuple[str, str], tuple[Attempt, asyncio.Event]] = {}
        self.refused: deque[dict[str, str]] = deque(maxlen=REFUSED_KEPT)  # for people who ask

    # -- for the steps that wait -------------------------------------------------------------

    @contextmanager
    def awaiting(self, attempt: Attempt) -> Iterator[asyncio.Event]:
        """While a step waits for the result of this attempt; set when one was accepted."""
        key, event = (attempt.run, attempt.step), asyncio.Event()
        self._waiting[key] = mine = (attempt, event)
        try:
            yield event
        finally:
            if self._waiting.get(key) is mine:
                del self._waiting[key]

    # -- the acceptor ------------------------------------------------------------------------

    async def accept(self, invoke: Mapping[str, Any]) -> dict[str, str]:
        """`status` and `reason`: accepted, already-present, rejected, retryable."""
        artifact = invoke.get("artifact")
        artifact = artifact if isinstance(artifact, Mapping) else {}
        if artifact.get("schema") != SCHEMA:
            return self._refuse(artifact, None, "kind-not-supported")
        weight = weigh_artifact(artifact.get("bytes/base64"))
        result = await self._door.read(partial(_document, artifact), weight)
        if result is None:
            return self._refuse(artifact, None, "envelope-invalid")
        try:
            return await self._decided(artifact, result)
        except HostUnavailable:
            return {"status": "retryable", "reason": "host-unavailable"}
        except HostRefused as error:
            return {"status": "retryable", "reason": error.code}

    async def _decided(
        self, artifact: Mapping[str, Any], result: Mapping[str, Any]
    ) -> dict[str, str]:
        run, step = result["workflow/run-id"], result["workflow/phase-id"]
        request_id = result["request_id"]
        attempt = attempt_of_request(request_id, run, step)
        if attempt is None:
            other = is_of_another_run(request_id, run)
            return self._refuse(artifact, result, WRONG_RUN if other else UNKNOWN)
        execution = await self._host.execution(attempt.execution_id)
        if execution is None or execution["request_id"] != request_id:
            return self._refuse(artifact, result, UNKNOWN)
        taken = execution["result"]
        if taken is not None:
            if taken["digest"] == artifact.get("digest"):
                return {"status": "already-present", "reason": ""}
            return self._refuse(artifact, result, CONFLICT)
        if not self._is_open(attempt):
            return self._refuse(artifact, result, CLOSED)
        waiting = self._waiting.get((run, step))
        if waiting is not None and waiting[0] == attempt:
            waiting[1].set()
        return {"status": "accepted", "reason": ""}

    def _refuse(
        self, artifact: Mapping[str, Any], result: Mapping[str, Any] | None, reason: str
    ) -> dict[str, str]:
        named = result or {}
        note = {
            "reason": reason,
            "digest": str(artifact.get("digest", ""))[:100],
            "run_id": str(named.get("workflow/run-id", ""))[:200],
            "step_id": str(named.get("workflow/phase-id", ""))[:200],
            "request_id": str(named.get("request_id", ""))[:256],
        }
        self.refused.append(note)
        logger.info("a result of %s was refused: %s", note["request_id"] or "nothing", reason)
        return {"status": "rejected", "reason": reason}

    # -- a part of the module ----------------------------------------------------------------

    def endpoints(self) -> Sequence[Endpoint]:
        return ()

    def local_routes(self) -> Sequence[str]:
        return ()

    def messages(self) -> Mapping[str, MessageHandler]:
        return {LEGACY: self._ignored}

    async def start(self) -> None:
        """It has nothing to begin with."""

    async def close(self) -> None:
        """It has nothing to end."""

    async def _ignored(self, message: PeerMessage) -> dict[str, Any]:
        """Orders are closed by results that are delivered, and by nothing else."""
        text = f"{LEGACY} of {message.remote_node_id} is ignored: results come as artifacts"
        logger.info("%s", text)
        return {"decision": "drop", "reason": "legacy-response", "diagnostics": [text]}


def _document(artifact: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result inside, if it is one."""
    try:
        data = b64decode(artifact.get("bytes/base64") or "", validate=True)
        result = msgspec.json.decode(data)
    except (NotBase64, TypeError, ValueError, msgspec.DecodeError, RecursionError):
        return None
    return result if isinstance(result, dict) and not check(result, kind=SCHEMA) else None
