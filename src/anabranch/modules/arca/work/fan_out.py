"""The kind `dispatch`: one of many is asked for an offer, by a message from node to node.

An answer is that of the node which was asked, names the request, and has an offer of that
participant, or says that there is none. Whoever cannot be reached leaves the count; whoever took
the message and says nothing is asked again, as the same request, until the time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from anabranch.clock import Clock
from anabranch.errors import AnabranchError
from anabranch.ids import dispatch_id
from anabranch.kernel.values import Answer, succeeded
from anabranch.market.documents import check
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.work.attempts import step_of
from anabranch.modules.arca.work.patience import Patience
from anabranch.modules.arca.work.ports import Offers
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
    def __init__(self, host: Host, offers: Offers, clock: Clock, config: ArcaConfig) -> None:
        self._host = host
        self._offers = offers
        self._clock = clock
        self._patience = Patience(config)
        self._silence_ms = config.silence_ms

    async def perform(self, task: Task) -> Answer:
        name = str(task.inputs.get("target") or "")
        ends = self._clock.now() + int(task.inputs.get("timeout_ms") or self._silence_ms)
        request = self._request(task, ends)
        try:
            nodes = await self._nodes(name, request["service_type"])
            reply = await self._asked(nodes, request, ends)
            require_answer(reply, request, name)
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

    async def _nodes(self, participant: str, service_type: str) -> list[str]:
        """Where the participant is: the nodes of its offers, then those that it runs."""
        offers = self._offers.offers(service_type=service_type, provider=participant)
        offering = [str(one["provider/node-id"]) for one in offers]
        known = await self._patience.ask(lambda: self._host.nodes_of(participant))
        nodes = list(dict.fromkeys([*offering, *known]))
        if not nodes:
            message = "no node of this participant is known here"
            raise NotReached(message, code="unknown_participant")
        return nodes

    async def _asked(self, nodes: list[str], request: dict[str, Any], ends: int) -> Any:
        """What the participant says, by the first of its nodes that can be reached."""
        pause = AGAIN_SECONDS
        while True:
            left = ends - self._clock.now()
            try:
                return await self._asked_once(nodes, request, min(max(left, 1), CALL_MS_MAX))
            except Silent:
                left = ends - self._clock.now()
                if left <= 0:
                    await asyncio.sleep(_GRACE_SECONDS)
                    raise
                await asyncio.sleep(min(pause, left / 1000))
                pause = min(pause * 2, AGAIN_SECONDS_MAX)

    async def _asked_once(self, nodes: list[str], request: dict[str, Any], timeout_ms: int) -> Any:
        unreached: NotReached | None = None
        for node in nodes:
            (outcome,) = await self._patience.ask(
                lambda node=node: self._host.message(  # type: ignore[misc]
                    {"node_id": node}, MESSAGE, request,
                    correlation_id=request["dispatch_id"], timeout_ms=timeout_ms,
                )
            )  # fmt: skip
            try:
                return reply_in(outcome)
            except NotReached as error:
                unreached = error
        assert unreached is not None, "there is at least one node"
        raise unreached


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


def require_answer(reply: Any, request: Mapping[str, Any], participant: str) -> None:
    """Raises `BadReply` where this is no answer to this request."""
    if not isinstance(reply, Mapping) or reply.get("dispatch_id") == request["dispatch_id"]:
        code, problem = "bad_reply", problem_of(reply, request, participant)
    else:
        code, problem = "wrong_dispatch", "it answers another request"
    if problem:
        raise BadReply(f"the answer of {participant}: {problem}", code=code)


def problem_of(reply: Any, request: Mapping[str, Any], participant: str) -> str:
    """What is wrong with an answer to this request, or nothing."""
    if not isinstance(reply, Mapping):
        return "it is no object"
    if is_negative(reply):
        return ""
    if reply.get("status") != "offer":
        return f"its status is {str(reply.get('status'))[:40]!r}"
    return _problem_of_offer(reply.get("offer"), request, participant)


def _problem_of_offer(offer: Any, request: Mapping[str, Any], participant: str) -> str:
    problems = check(offer, kind=_OFFER)
    if problems:
        return f"its offer: {problems[0].path or '/'} {problems[0].message}"
    if offer["provider/participant-id"] != participant:
        return f"its offer is one of {offer['provider/participant-id']}"
    if offer["service/type"] != request["service_type"]:
        return f"its offer is for {offer['service/type'][:100]!r}"
    return ""
