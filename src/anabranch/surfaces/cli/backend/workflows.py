"""Where the verbs for Arca workflows are asked: at a store of this machine, or at a server."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from anabranch.errors import DefinitionError
from anabranch.net.problems import Problem
from anabranch.operations.definitions.templates import Templates
from anabranch.operations.read.dispatches import Dispatch, WorkflowStepDispatch
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.audit import noted
from anabranch.surfaces.cli.backend.local.backend import LocalBackend, Row, who

if TYPE_CHECKING:
    from anabranch.surfaces.client import Client

PAGE = 500  # the most that one page of a list has
TEMPLATE = "<template>"  # what a server calls a template that has no file


class WorkflowBackend(Protocol):
    async def dispatches(
        self, run: str, *, step: str | None, status: str | None
    ) -> list[Dispatch]: ...

    async def snapshot(self, run: str) -> Row: ...

    async def put(self, text: str, file: str) -> Row: ...

    async def delete(self, name: str) -> Row: ...

    async def templates(self) -> list[Row]: ...

    async def versions(self, name: str) -> list[Row]: ...

    async def template(self, name: str, version: int | None) -> Row: ...

    async def materialise(
        self, name: str, given: Mapping[str, Any], version: int | None
    ) -> tuple[str, list[Problem]]:
        """The text of the definition, and what is worth a look in it."""
        ...


@asynccontextmanager
async def workflow_desk(
    options: argparse.Namespace, settings: Settings
) -> AsyncIterator[WorkflowBackend]:
    if not settings.server:
        yield LocalWorkflowBackend(settings, who(options))
        return
    from anabranch.surfaces.cli.backend.http.backend import http_backend  # few talk to a server

    async with http_backend(options, settings) as at:
        yield HttpWorkflowBackend(at.client)


class LocalWorkflowBackend:
    def __init__(self, settings: Settings, actor: str = "") -> None:
        self._settings = settings
        self._actor = actor
        self._target = LocalBackend(settings, actor)

    async def dispatches(self, run: str, *, step: str | None, status: str | None) -> list[Dispatch]:
        with self._target.reading() as read:
            return [
                one
                for one in read.dispatches(run)
                if step in (None, one.record.step_id) and status in (None, one.record.status)
            ]

    async def snapshot(self, run: str) -> Row:
        with self._target.reading() as read:
            return read.snapshot(run)

    async def put(self, text: str, file: str) -> Row:
        store = open_store(self._settings)
        try:
            with noted(store, self._actor, "templates.create", file):
                return Templates(store).put(text, file).fields()
        finally:
            store.close()

    async def delete(self, name: str) -> Row:
        values.require_store(self._settings)
        store = open_store(self._settings)
        try:
            with noted(store, self._actor, "templates.delete", name):
                return Templates(store).delete(name).fields()
        finally:
            store.close()

    async def templates(self) -> list[Row]:
        with self._kept() as kept:
            return kept.newest()

    async def versions(self, name: str) -> list[Row]:
        with self._kept() as kept:
            return kept.versions(name)

    async def template(self, name: str, version: int | None) -> Row:
        with self._kept() as kept:
            return kept.show(name, version)

    async def materialise(
        self, name: str, given: Mapping[str, Any], version: int | None
    ) -> tuple[str, list[Problem]]:
        with self._kept() as kept:
            prepared, text = kept.materialise(name, given, version)
        return text, list(prepared.problems)

    @contextmanager
    def _kept(self) -> Iterator[Templates]:
        values.require_store(self._settings)
        store = open_store(self._settings, read_only=True)
        try:
            yield Templates(store)
        finally:
            store.close()


class HttpWorkflowBackend:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def dispatches(self, run: str, *, step: str | None, status: str | None) -> list[Dispatch]:
        found: list[Dispatch] = []
        after: int | None = 0
        while after is not None:
            asked = {"step": step, "status": status, "after": after, "limit": PAGE}
            page = await self._client.get("runs", run, "dispatches", **asked)
            found += [_dispatch(fields) for fields in page["items"]]
            after = page["next"]
        return found

    async def snapshot(self, run: str) -> Row:
        told: Row = await self._client.get("runs", run, "snapshot")
        return told

    async def put(self, text: str, file: str) -> Row:
        body = {"template": text}
        try:  # the same text again is the same version: it may be sent twice
            told: Row = await self._client.post("templates", body=body, once=True)
        except DefinitionError as error:
            raise DefinitionError([_at(one, file) for one in error.problems]) from None
        return told

    async def delete(self, name: str) -> Row:
        told: Row = await self._client.delete("templates", name)
        return told

    async def templates(self) -> list[Row]:
        return await self._all("templates")

    async def versions(self, name: str) -> list[Row]:
        return await self._all("templates", name, "versions")

    async def template(self, name: str, version: int | None) -> Row:
        told: Row = await self._client.get("templates", name, version=version)
        return told

    async def materialise(
        self, name: str, given: Mapping[str, Any], version: int | None
    ) -> tuple[str, list[Problem]]:
        from anabranch.surfaces.client import problem_of

        body = {"parameters": given, "version": version}
        told = await self._client.post("templates", name, "definition", body=body)
        return told["definition"], [problem_of(one) for one in told["problems"]]

    async def _all(self, *path: str) -> list[Row]:
        found: list[Row] = []
        cursor: str | None = None
        while True:
            page = await self._client.get(*path, limit=PAGE, cursor=cursor)
            found += page["items"]
            cursor = page["next"]
            if cursor is None:
                return found


def _at(problem: Problem, file: str) -> Problem:
    """The problem at its place in the file that was sent."""
    place = problem.position
    return replace(problem, position=replace(place, file=place.file.replace(TEMPLATE, file)))


def _dispatch(fields: Row) -> Dispatch:
    return Dispatch(
        record=msgspec.convert(fields["record"], WorkflowStepDispatch),
        job=fields["job"],
        gather=fields["gather"],
        attempt=fields["attempt"],
        outcome=fields["outcome"],
        selected=fields["selected"],
        score=fields["score"],
        late_at=fields["late_response_at"],
        reason=fields.get("reason", ""),
    )
