"""The sessions of orchestrations in a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.read.reader import Reader
from anabranch.operations.sessions.sessions import Sessions, estimated_gas
from anabranch.runtime.messages.codec import Sayable
from anabranch.runtime.nets import Nets
from anabranch.surfaces.cli.backend.local.store import LocalTopic
from anabranch.surfaces.cli.backend.port import Row


class LocalSessionBackend(LocalTopic):
    @contextmanager
    def _reading(self) -> Iterator[Sessions]:
        with self._store.reading() as store:
            yield Sessions(store, Reader(store, Nets(store, compiler())), _cannot_say)

    @asynccontextmanager
    async def _change(self, action: str, subject: str) -> AsyncIterator[Sessions]:
        from anabranch.operations.runs.verbs import say  # verbs that look need none

        async with self._store.parts() as parts:
            store, line = parts.store, self._store.audit_line(parts.store, action, subject)

            async def send(run: str, said: Sayable) -> str:
                return await line.send(
                    lambda audit: say(store, lambda: parts.engine, run, said, audit)
                )

            with line.follow():
                yield Sessions(store, parts.verbs.read, send)

    async def list_sessions(
        self, *, owner: str | None = None, run: str | None = None, last: int = 100
    ) -> list[Row]:
        with self._reading() as sessions:
            return sessions.list_sessions(owner=owner, run=run, last=last)

    async def receipts(self, run: str, *, step: str | None, iteration: int | None) -> list[Row]:
        with self._reading() as sessions:
            return sessions.receipts(run, step=step, iteration=iteration)

    async def find(self, name: str, owner: str | None) -> str:
        with self._reading() as sessions:
            return sessions.find(name, owner)

    async def next_number(self, owner: str) -> int:
        with self._reading() as sessions:
            return sessions.next_number(owner)

    async def wakeable(self, who: str, **only: Any) -> list[Row]:
        with self._reading() as sessions:
            return sessions.wakeable(who, **only)

    async def alive(self, run: str) -> bool:
        with self._reading() as sessions:
            return sessions.session_alive(run)

    async def wake(
        self, process: str, *, step: str, payload: Mapping[str, Any], runner: str
    ) -> Row:
        async with self._change("sessions.wake", process) as sessions:
            return await sessions.wake_up_process(
                process, step=step, payload=payload, runner=runner
            )

    async def kill(self, run: str, reason: str, runner: str) -> Row:
        async with self._change("sessions.end", run) as sessions:
            return await sessions.control(run, "kill", reason=reason, runner=runner)

    async def gas(self, rule: str, **counts: Any) -> Row:
        return estimated_gas(rule, **counts)


async def _cannot_say(_run: str, _said: object) -> None:
    raise AssertionError("looking changes nothing")
