"""The life of a request: decided about, done by a role, answered, and its answer delivered.

Every open request has one task, which begins where the record of the request says. So a module that
was killed goes on with all of them when it is started again: a role that was at work is asked again
under the same dispatch id (or not, where it says so), a result that was kept is sent as it is, and
a delivery that was on its way is looked after.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from anabranch.clock import Clock
from anabranch.market.node.errors import NodeError
from anabranch.modules.dator.book import Book
from anabranch.modules.dator.config import DatorConfig, RoleConfig
from anabranch.modules.dator.requests import Request, Sent
from anabranch.modules.dator.results import (
    completed_step,
    envelope_of,
    failure,
    result_text,
    standing,
)
from anabranch.modules.dator.roles import (
    RoleAnswer,
    RoleCalls,
    RoleFailed,
    RoleUnavailable,
    read_answer,
    role_request,
)
from anabranch.modules.dator.tasks import Tasks, until_taken
from anabranch.modules.kit.host import Host, HostRefused

logger = logging.getLogger("anabranch.module")

ROLE_RETRY_FIRST, ROLE_RETRY_MAX = 0.5, 30.0
LOOK_FIRST, LOOK_MAX = 0.1, 30.0  # seconds between two looks at a delivery
RESEND_MAX = 60.0  # seconds between two deliveries of a result; the first wait is one second
#: After these the same result may arrive if it is sent once more.
_AGAIN = ("route-unresolved", "runtime-limit", "ledger-error", "stage-timeout", "adapter-transient")
REJECTED = "rejected-by-provider"
PUBLISH_STEP = "workflow.step.completed.publish"


class Work:
    def __init__(
        self,
        *,
        host: Host,
        clock: Clock,
        config: DatorConfig,
        book: Book,
        roles: RoleCalls,
        tasks: Tasks,
    ) -> None:
        self._host = host
        self._clock = clock
        self._config = config
        self._book = book
        self._roles = roles
        self._tasks = tasks
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._decided: dict[str, asyncio.Event] = {}
        self._deciding = asyncio.Lock()
        self._leaving: set[str] = set()  # requests that are being ended
        self.component = ""

    def begin(self, request: Request) -> None:
        self._tasks.spawn(self._live(request))

    async def _live(self, request: Request) -> None:
        if request.state == "waiting":
            request = await self._decision(request)
        if request.state in ("admitted", "executing"):
            request = await self._done(request)
        sent = await self._sent(request) if request.state == "result" else request
        if sent is not None:
            await self._delivered(sent)

    # -- an operator decides -------------------------------------------------------------------

    async def _decision(self, request: Request) -> Request:
        decided = self._decided.setdefault(request.key, asyncio.Event())
        title = f"An order for {request.service_type[:100]} waits for you"
        body = f"{request.order_id} of {request.buyer}: accept or reject {request.request_id}"
        await self._tell("info", title, body, key=f"waiting:{request.key}")
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds_left(request)):
                await decided.wait()
        async with self._deciding:
            del self._decided[request.key]
            now = self._book.get(request.key)
            assert now is not None
            if now.state != "waiting":
                return now
            return await self._keep(
                now, failure("deadline-passed", "the operator did not decide in time")
            )

    async def decide(self, key: str, *, accept: bool, actor: str, reason: str) -> Request:
        """What an operator says, once; the same again changes nothing. Raises `NodeError`."""
        async with self._deciding:
            request = self._book.get(key)
            if request is None:
                raise NodeError(404, "unknown_request", f"no open request is {key[:200]!r}")
            if request.state != "waiting":
                _require_same_decision(request, accept)
                return request
            after = _replaced(request, state="admitted", decided_by=actor)
            if not accept:
                message = reason or "the provider rejects the order"
                no = RoleAnswer(status="rejected", code=REJECTED, message=message)
                after = self._with(request, no, decided_by=actor)
            await self._book.put(after)
            self._decided.setdefault(key, asyncio.Event()).set()
            return after

    # -- a role works ----------------------------------------------------------------------------

    async def _done(self, request: Request) -> Request:
        role = self._role(request)
        if request.state == "executing" and not role.repeat_interrupted:
            return await self._keep(request, _interrupted())
        if self._seconds_left(request) <= 0:
            return await self._keep(request, _late())
        turn = self._turns.setdefault(
            request.dispatch.capability_id, asyncio.Semaphore(role.max_concurrent)
        )
        try:
            async with asyncio.timeout(self._seconds_left(request)):
                await turn.acquire()
        except TimeoutError:
            return await self._keep(request, _late())
        try:
            request = await self._book.move(request, state="executing", started=request.started + 1)
            return await self._keep(request, await self._answer(request, role))
        finally:
            turn.release()

    async def _answer(self, request: Request, role: RoleConfig) -> RoleAnswer:
        """What the role says, asked again while it cannot be reached."""
        assert request.document is not None
        late = _late()
        asked = role_request(request.dispatch, request.dispatch_id, request.document)
        wait = ROLE_RETRY_FIRST
        while (left := self._seconds_left(request)) > 0:
            try:
                name = request.dispatch.capability_id
                found = await self._roles.call(name, asked, min(role.timeout_sec, left))
                return read_answer(found, request.dispatch_id)
            except RoleFailed as error:
                if error.code == "role-timeout" and self._seconds_left(request) <= 0:
                    return _late()
                return failure(error.code, error.message)
            except RoleUnavailable as error:
                if error.begun and not role.repeat_interrupted:
                    return _interrupted()
                logger.info("the role of %s is asked again: %s", request.order_id, error.message)
                late = failure("role-unavailable", "the role could not be reached in time")
            await asyncio.sleep(min(wait, max(self._seconds_left(request), 0)))
            wait = min(wait * 2, ROLE_RETRY_MAX)
        return late

    def _role(self, request: Request) -> RoleConfig:
        return self._config.roles.get(request.dispatch.capability_id) or RoleConfig()

    def _seconds_left(self, request: Request) -> float:
        return max((request.deadline - self._clock.now()) / 1000, 0.0)

    # -- the result ------------------------------------------------------------------------------

    async def _keep(self, request: Request, answer: RoleAnswer) -> Request:
        after = self._with(request, answer)
        return await until_taken(lambda: self._book.put(after))

    def _with(self, request: Request, answer: RoleAnswer, **more: Any) -> Request:
        after = self._finished(request, answer, **more)
        if after.fits_a_record:
            return after
        said = "the output is too large: no record of the host can hold the result"
        return self._finished(request, failure("role-answer-invalid", said), **more)

    def _finished(self, request: Request, answer: RoleAnswer, **more: Any) -> Request:
        now = self._clock.now()
        text, answer = result_text(request, answer, now)
        return _replaced(
            request,
            state="result",
            document=None,
            result=text,
            result_status=answer.status,
            result_code=answer.code,
            finished_at=now,
            **more,
        )

    async def _sent(self, request: Request) -> Request | None:
        """Handed to the host, which delivers it; None where it refuses to, for good."""
        if request.result_status == "completed":
            await self._publish_step(request)
        number = request.sent.number + 1 if request.sent else 1
        envelope = envelope_of(request, self.component, number)
        operation = await self._handed_over(request, envelope)
        if operation is None:
            return None
        href = str(operation["status_href"])
        sent = Sent(
            number=number,
            delivery_id=href.split("/")[-2],
            operation_id=str(operation["operation/id"]),
            status_href=href,
        )
        return await self._book.move(request, state="sent", sent=sent)

    async def _publish_step(self, request: Request) -> None:
        record = {"record": completed_step(request)}
        await self._taken_or_refused(lambda: self._host.capability(PUBLISH_STEP, record))

    async def _handed_over(self, request: Request, envelope: dict[str, Any]) -> Any:
        """The deferred operation; None where the host refuses it for good."""
        while True:
            found, error = await self._taken_or_refused(lambda: self._host.deliver(envelope))
            if error is None:
                return found
            if error.code != "route-unresolved" or self._is_given_up(request):
                await self._end(request, "undelivered", f"{error.code}: {error.message}")
                return None
            await asyncio.sleep(LOOK_MAX)

    async def _taken_or_refused(
        self, ask: Callable[[], Awaitable[Any]]
    ) -> tuple[Any, HostRefused | None]:
        async def once() -> tuple[Any, HostRefused | None]:
            try:
                return await ask(), None
            except HostRefused as error:
                logger.warning("the host refuses: %s: %s", error.code, error.message)
                return None, error

        return await until_taken(once)

    # -- the delivery ------------------------------------------------------------------------------

    async def _delivered(self, request: Request) -> None:
        """Until the result has arrived, or never will."""
        sent: Request | None = request
        while sent is not None:
            status, why = await self._delivery_ended(sent)
            if status in ("succeeded", "partial"):
                return await self._end(sent, "delivered")
            if status == "failed-permanent" and not why.startswith(_AGAIN):
                return await self._end(sent, "refused", why)
            if self._is_given_up(sent):
                return await self._end(sent, "undelivered", why or status)
            assert sent.sent is not None
            await asyncio.sleep(min(2.0 ** (sent.sent.number - 1), RESEND_MAX))
            sent = await self._sent(sent)
        return None

    async def _delivery_ended(self, request: Request) -> tuple[str, str]:
        assert request.sent is not None
        path = request.sent.status_href.removesuffix("/operation-status")
        seconds = LOOK_FIRST
        while True:
            found = await until_taken(lambda: self._host.find(path))
            if found is None:
                return "expired", "the host does not know the delivery"
            status, why = standing(found)
            if status not in ("accepted", "running", "failed-retryable"):
                return status, why
            await asyncio.sleep(seconds)
            seconds = min(seconds * 2, LOOK_MAX)

    def _is_given_up(self, request: Request) -> bool:
        """A deadline may be far away: where room is needed, results that nobody has taken for long
        leave before it. Those that are leaving make room already."""
        since = request.deadline
        if len(self._book) - len(self._leaving) >= self._config.max_open:
            since = min(since, request.finished_at)
        return self._clock.now() > since + self._config.resend_sec * 1000

    async def _end(self, request: Request, ending: Any, reason: str = "") -> None:
        self._leaving.add(request.key)
        try:
            if ending != "delivered":
                title = f"The result of {request.order_id[:120]} was not delivered"
                await self._tell("warning", title, reason, key=f"undelivered:{request.key}")
            await self._book.end(request, ending, self._clock.now(), reason)
        finally:
            self._leaving.discard(request.key)

    async def _tell(self, level: str, title: str, body: str, *, key: str) -> None:
        """The operator, once: a host that has another text for the key was told before a crash."""
        await self._taken_or_refused(lambda: self._host.notify(level, title, body, key=key))


def _late() -> RoleAnswer:
    return failure("deadline-passed", "the work was not done in time")


def _interrupted() -> RoleAnswer:
    return failure("interrupted", "the work was interrupted, and the role does not repeat it")


def _require_same_decision(request: Request, accept: bool) -> None:
    if request.decided_by and accept == (request.result_code != REJECTED):
        return
    said = f"{request.request_id[:200]} is {request.state} and waits for no decision"
    raise NodeError(409, "wrong_state", said)


def _replaced(request: Request, **changes: Any) -> Request:
    return msgspec.structs.replace(request, **changes)
