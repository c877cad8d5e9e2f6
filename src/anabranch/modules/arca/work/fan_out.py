"""The kind `dispatch`: one of many is asked for an offer, by a message from node to node.

An answer is that of the node which was asked, names the request, and has an offer of that
participant, or says that there is none. Whoever cannot be reached leaves the count; whoever took
the message and says nothing is asked again, as the same request, until the time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from anabranch.clock import Clock
from anabranch.errors import AnabranchError
from anabranch.ids import dispatch_id
from anabranch.kernel.values import Answer, succeeded
from anabranch.market.node.directory.artifacts import CheckedBefore
from anabranch.market.node.errors import NodeError
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.work.attempts import step_of
from anabranch.modules.arca.work.nodes import ParticipantNodes
from anabranch.modules.arca.work.patience import Patience
from anabranch.modules.kit.host import Host, HostRefused
from anabranch.work.faults import fault
from anabranch.work.participants.performers import UNREACHABLE, rfc3339
from anabranch.work.participants.port import BadReply, is_negative, nonsense
from anabranch.work.port import Task, whole

MESSAGE = "workflow.fanout.request"
CALL_MS_MAX = 120_000  # of one `peer.message.dispatch`
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 1.0, 30.0
_OFFER = "service-offer.v1"
#: The peer may be there, and did not answer in time: it may still.
_SILENT = ("peer_timeout", "peer_handler_timeout", "peer_busy")
#: The engine ends a step whose time is over; until it has, silence is no answer.
_GRACE_SECONDS = 5.0


class Silent(AnabranchError):
    """The peer has the message, and says nothing."""


class NotReached(AnabranchError):
    """The message did not get to the peer."""


class PeerDispatch:
    def __init__(
        self,
        host: Host,
        nodes: ParticipantNodes,
        clock: Clock,
        config: ArcaConfig,
        patience: Patience,
    ) -> None:
        self._host = host
        self._nodes = nodes
        self._clock = clock
        self._patience = patience
        self._silence_ms = config.silence_ms
        self._checked = CheckedBefore()  # providers answer with the same offer again and again

    async def perform(self, task: Task) -> Answer:
        name = str(task.inputs.get("target") or "")
        ends = self._clock.now() + int(task.inputs.get("timeout_ms") or self._silence_ms)
        request = self._request(task, ends)
        try:
            reply = await self._asked(name, request, ends)
            self._require_answer(reply, request, name)
        except NotReached as error:
            message = f"{name}: {error.message}"
            return fault(UNREACHABLE, message, code=error.code, retryable=False)
        except HostRefused as error:
            return fault("no_means", f"{name}: {error.message}", code=error.code)
        except (BadReply, Silent) as error:
            reply = nonsense(BadReply(error.message, code=error.code))
        negative = is_negative(reply)
        answer = succeeded(reply, outcome="negative") if negative else succeeded(reply)
        return whole(answer) if task.inputs.get("whole") else answer

    def _request(self, task: Task, ends: int) -> dict[str, Any]:
        inputs = task.inputs
        request = {
            "schema_version": "v1",
            "dispatch_id": dispatch_id(task.run, task.job, task.tries),
            "run_id": task.run,
            "step_id": step_of(task),
            "service_type": str(inputs.get("service_type") or ""),
            "input": inputs.get("input"),
            "respond_by": rfc3339(ends),
        }
        return {**request, "filter": inputs["filter"]} if inputs.get("filter") else request

    async def _asked(self, participant: str, request: dict[str, Any], ends: int) -> Any:
        """What the participant says; asked again where it says nothing."""
        pause = AGAIN_SECONDS
        while True:
            left = ends - self._clock.now()
            try:
                most = min(max(left, 1), CALL_MS_MAX)
                return await self._asked_once(participant, request, most)
            except Silent:
                left = ends - self._clock.now()
                if left <= 0:
                    await asyncio.sleep(_GRACE_SECONDS)
                    raise
                await asyncio.sleep(min(pause, left / 1000))
                pause = min(pause * 2, AGAIN_SECONDS_MAX)

    async def _asked_once(self, participant: str, request: dict[str, Any], timeout_ms: int) -> Any:
        """By the first of its nodes that can be reached."""
        unreached = NotReached(
            "no node of this participant is known here", code="unknown_participant"
        )
        async with aclosing(self._nodes.of(participant, request["service_type"])) as nodes:
            async for node in nodes:
                try:
                    return await self._asked_at(node, request, timeout_ms)
                except NotReached as error:
                    unreached = error
        raise unreached

    async def _asked_at(self, node: str, request: dict[str, Any], timeout_ms: int) -> Any:
        (outcome,) = await self._patience.ask(
            lambda: self._host.message(
                {"node_id": node}, MESSAGE, request,
                correlation_id=request["dispatch_id"], timeout_ms=timeout_ms,
            )
        )  # fmt: skip
        return reply_in(outcome)

    def _require_answer(self, reply: Any, request: Mapping[str, Any], participant: str) -> None:
        """Raises `BadReply` where this is no answer to this request."""
        if not isinstance(reply, Mapping) or reply.get("dispatch_id") == request["dispatch_id"]:
            code, problem = "bad_reply", self._problem_of(reply, request, participant)
        else:
            code, problem = "wrong_dispatch", "it answers another request"
        if problem:
            raise BadReply(f"the answer of {participant}: {problem}", code=code)

    def _problem_of(self, reply: Any, request: Mapping[str, Any], participant: str) -> str:
        """What is wrong with an answer to this request, or nothing."""
        if not isinstance(reply, Mapping):
            return "it is no object"
        if is_negative(reply):
            return ""
        if reply.get("status") != "offer":
            return f"its status is {str(reply.get('status'))[:40]!r}"
        offer = reply.get("offer")
        try:
            self._checked.require(offer, _OFFER, "its offer")
        except NodeError as error:
            return error.message
        return _problem_of_offer(offer, request, participant)


def reply_in(outcome: Mapping[str, Any]) -> Any:
    """What the peer answered. Raises `NotReached`, `Silent` and `BadReply`."""
    error = outcome.get("error") or {}
    code, message = str(error.get("code") or ""), str(error.get("message") or "")
    match outcome.get("status"):
        case "responded" if "answered_by" in outcome:
            text = "a module of this node answered in its place, which is no answer of the peer"
            raise NotReached(text, code="held_back")
        case "responded":
            return outcome.get("payload")
        case "dropped":
            raise NotReached("a module of this node held the request back", code="held_back")
        case "no_response":
            raise Silent("the node took the request and did not answer", code="no_response")
        case _ if code in _SILENT:
            raise Silent(message, code="no_response")
        case "unreachable":
            raise NotReached(message, code=code or UNREACHABLE)
    raise BadReply(message or "the node answered with an error", code=code or "peer_error")


def _problem_of_offer(offer: Any, request: Mapping[str, Any], participant: str) -> str:
    if offer["provider/participant-id"] != participant:
        return f"its offer is one of {offer['provider/participant-id']}"
    if offer["service/type"] != request["service_type"]:
        return f"its offer is for {offer['service/type'][:100]!r}"
    return ""
