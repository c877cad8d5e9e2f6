"""The kinds of work that ask participants: `dispatch`, `request`, `targets`, `capability`.

targets      finds whom a step asks, when it asks
dispatch     asks one of many: a no is an answer, and the fan-in judges it
request      asks the one that an ordinary step chose: a no is a failure
capability   asks the decision source that a definition declares
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from anabranch.clock import Clock, SystemClock
from anabranch.errors import AnabranchError
from anabranch.ids import dispatch_id, request_key
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.faults import fault
from anabranch.work.participants.book import Book
from anabranch.work.participants.health import Outcome
from anabranch.work.participants.port import (
    BadReply,
    CannotAsk,
    Directory,
    NotKnown,
    Participant,
    ParticipantQuery,
    ParticipantRequest,
    Unreachable,
    is_negative,
    nonsense,
)
from anabranch.work.port import InlineAnswer, Task, whole

UNREACHABLE = "unreachable"  # the word by which the kernel takes a slot out of the count
#: Faults of orders on a node: nothing was sent; nobody answered while the order was open.
NOT_ORDERED, ORDER_EXPIRED = "not_ordered", "order_expired"


class TargetsPerformer:
    """Looks into the directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def perform(self, task: Task) -> Answer:
        return self.perform_now(task)

    def perform_now(self, task: Task) -> Answer:
        try:
            query = msgspec.convert(dict(task.inputs), ParticipantQuery)
            found: dict[str, Any] = {"targets": self._directory.find(query)}
            if not found["targets"]:
                found["why"] = self._directory.why_nobody(query)
            # Whole, however many there are: the fan cannot look behind a ref.
            return InlineAnswer(status="ok", result=found)
        except msgspec.ValidationError as error:
            return fault("config", f"the target of step {task.step}: {error}")
        except NotKnown as error:
            return fault("directory", error.message, code=error.code)
        except AnabranchError as error:
            return fault("config", f"the target of step {task.step}: {error.message}")


class _Asking:
    def __init__(
        self,
        book: Book,
        clock: Clock | None = None,
        elsewhere: Callable[[str], Participant | str] | None = None,
    ) -> None:
        """`elsewhere` knows some who are not in the book, or says why they cannot be asked."""
        self._book = book
        self._clock = clock or SystemClock()
        self._elsewhere = elsewhere

    def _request(self, task: Task, participant: str) -> ParticipantRequest:
        inputs = task.inputs
        timeout = inputs.get("timeout_ms")
        return ParticipantRequest(
            participant=participant,
            dispatch_id=dispatch_id(task.run, task.job, task.tries),
            idempotency_key=request_key(task.key, task.tries),
            run_id=task.run,
            step_id=str(inputs.get("step_id") or task.step),
            service_type=str(inputs.get("service_type") or ""),
            input=inputs.get("input"),
            filter=inputs.get("filter"),
            respond_by=rfc3339(self._clock.now() + timeout) if timeout else "",
            capability_id=str(inputs.get("capability_id") or ""),
            timeout_seconds=timeout / 1000 if timeout else task.timeout_seconds,
            offer=inputs.get("offer"),
            request_units=inputs.get("request_units", 1),
            max_amount=inputs.get("max_amount"),
            currency=inputs.get("currency", ""),
        )

    async def _ask(self, task: Task, on_no: Callable[[Any], Answer]) -> Answer:
        name = str(task.inputs.get("target") or "")
        participant = self._participant(name)
        if isinstance(participant, str):
            return fault(UNREACHABLE, participant, code="unknown_participant", retryable=False)
        try:
            reply = await participant.ask(self._request(task, name))
        except Unreachable as error:
            self._note(name, "unreachable", error.message)
            one = task.kind == "request"  # an ordinary step asks its one provider again, if it may
            return fault(UNREACHABLE, f"{name}: {error.message}", retryable=one)
        except CannotAsk as error:
            return fault("no_means", f"{name}: {error.message}", code=error.code)
        except BadReply as error:
            self._note(name, "nonsense", error.message)
            return on_no(nonsense(error))
        negative = is_negative(reply)
        self._note(name, "negative" if negative else "answered")
        answer = on_no(reply) if negative else succeeded(reply)
        return whole(answer) if task.inputs.get("whole") else answer

    def _participant(self, name: str) -> Participant | str:
        """Whom to ask, or why nobody can be asked."""
        found = self._book.participant(name)
        if found is not None:
            return found
        missing = self._book.missing_participant(name)
        if self._elsewhere is None:
            return missing
        other = self._elsewhere(name)
        return f"{missing}; {other}" if isinstance(other, str) and other else other or missing

    def _note(self, name: str, outcome: Outcome, problem: str = "") -> None:
        self._book.health.note(name, outcome, self._clock.now(), problem)


class DispatchPerformer(_Asking):
    async def perform(self, task: Task) -> Answer:
        return await self._ask(task, lambda reply: succeeded(reply, outcome="negative"))


class RequestPerformer(_Asking):
    async def perform(self, task: Task) -> Answer:
        return await self._ask(task, lambda reply: refused(task, reply))


def refused(task: Task, reply: Any) -> Answer:
    """The one that was asked said no."""
    said = reply.get("error") if isinstance(reply, Mapping) else None
    detail = said if isinstance(said, Mapping) else {}
    why = detail.get("message") or (reply.get("status") if isinstance(reply, Mapping) else "no")
    target = task.inputs.get("target")
    message = f"{target} refused step {task.step}: {why}"
    return fault("refused", message, code=str(detail.get("code") or ""), details=reply)


class CapabilityPerformer(_Asking):
    async def perform(self, task: Task) -> Answer:
        name = str(task.inputs.get("capability_id") or "")
        source: Participant | None = self._book.capability(name)
        if source is None:
            return fault("config", self._book.missing_capability(name))
        try:
            request = msgspec.structs.replace(self._request(task, name), decides=True)
            return whole(succeeded(await source.ask(request)))
        except (Unreachable, CannotAsk) as error:
            return fault("connection", f"capability {name}: {error.message}")
        except BadReply as error:
            return fault("bad_reply", f"capability {name}: {error.message}", code=error.code)


def rfc3339(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
