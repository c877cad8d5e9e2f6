"""A participant that is a Python function: `def answer(request) -> reply`, or `async def`.

It gets the request as it would be sent (`dispatch_id`, `service_type`, `input`, …) and returns
plain JSON. `ConnectionError` means that nobody is there, any other exception is an answer that
cannot be used. A function that may block runs in a thread, and each has only a few: one that never
returns holds up itself and nobody else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.work.faults import short_traceback
from anabranch.work.kinds.threads import Threads
from anabranch.work.logs.attempt_log import print_target
from anabranch.work.logs.listening import heard, listen
from anabranch.work.participants.port import BadReply, ParticipantRequest, Unreachable
from anabranch.work.participants.replies import check_dispatch
from anabranch.work.participants.signed import Check, accept
from anabranch.work.values.json_values import require_json
from anabranch.work.values.texts import clip

Answering = Callable[[Mapping[str, Any]], Any]

THREADS_EACH = 4
THREADS_MAX = 128
_REASON = 1_000


class Rooms:
    """The threads of all functions that may block, opened at the first request."""

    def __init__(self, reply_bytes: int) -> None:
        self.reply_bytes = reply_bytes
        self.functions = 0  # how many share them
        self._threads: Threads | None = None
        self._room: dict[str, asyncio.Semaphore] = {}  # one for each function of the book

    async def run(self, name: str, call: Callable[[], Any]) -> Any:
        """What `call()` gives, when this function has a thread free for it."""
        threads = self._open()
        room = self._room.setdefault(name, asyncio.Semaphore(THREADS_EACH))
        await room.acquire()
        loop, ours = asyncio.get_running_loop(), [True]  # whoever takes it begins, or gives it up

        def begun() -> Any:
            try:
                ours.pop()
            except IndexError:
                return None  # nobody waits any more
            try:
                return call()
            finally:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(room.release)

        try:
            return await threads.run(begun)
        finally:
            if ours:  # cancelled before it began
                with suppress(IndexError):
                    ours.pop()
                    room.release()

    def _open(self) -> Threads:
        if self._threads is None:
            self._threads = Threads(min(THREADS_MAX, THREADS_EACH * max(1, self.functions)))
        return self._threads

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        self._room.clear()
        if threads is not None:
            await threads.close()


class FunctionParticipant:
    def __init__(self, name: str, function: Answering, rooms: Rooms, check: Check = accept) -> None:
        self._name = name
        self._check = check
        self._function = function
        self._rooms = rooms
        self._waits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        rooms.functions += not self._waits

    async def ask(self, request: ParticipantRequest) -> Any:
        body = request.body()
        try:
            if self._waits:
                if print_target.get() is not None:
                    listen()
                reply = await self._function(body)
            else:
                call = heard(lambda: self._function(body))
                reply = await self._rooms.run(self._name, call)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise
            message = f"{self._name} waited for something that was cancelled"
            raise BadReply(message, code="raised") from None
        except ConnectionError as error:
            reason = clip(str(error), _REASON) or type(error).__name__
            raise Unreachable(reason) from None  # who is away is said by whoever asked
        except (Exception, SystemExit) as error:
            message = f"{self._name} raised {type(error).__name__}: {clip(str(error), _REASON)}"
            if (target := print_target.get()) is not None:
                trace = short_traceback(error.__traceback__, __file__)
                target.write("log", f"{message}\n{trace}\n", "error")
            raise BadReply(message, code="raised") from None
        return self._checked(reply, request)

    def _checked(self, reply: Any, request: ParticipantRequest) -> Any:
        try:
            plain = require_json(reply, f"the reply of {self._name}", root="reply")
        except InputError as error:
            raise BadReply(clip(error.message, _REASON), code="not_json") from None
        most = self._rooms.reply_bytes
        if isinstance(plain, str | list | dict) and len(msgspec.json.encode(plain)) > most:
            message = f"{self._name} answered with more than participant_reply_bytes ({most:,})"
            raise BadReply(message, code="reply_too_large")
        check_dispatch(plain, request.dispatch_id, self._name)
        self._check(plain, request)
        return plain
