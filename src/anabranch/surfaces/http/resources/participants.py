"""The participants of this server: who they are, how they have answered, and the book anew."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from anabranch.operations.participants import rows
from anabranch.surfaces.http.io.request_body import answer
from anabranch.surfaces.http.routes import API, PARTS, Route
from anabranch.work.participants.health import State

ALL = f"{API}/participants"


class ParticipantShown(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is by the last attempt to ask: up, odd (what came was no answer), down, unknown."""

    participant: str
    place: str  # a URL without its secrets, a function, or `directory`
    service_types: list[str]
    price: float | None
    labels: dict[str, Any]
    signed: bool  # its answers must be signed
    state: State
    answered: int
    negative: int
    nonsense: int
    unreachable: int
    last_asked_at: int | None
    last_answer_at: int | None
    problem: str


class ParticipantList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[ParticipantShown]
    next: str | None = None


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    participants: int
    capabilities: int


async def list_all(request: web.Request) -> web.StreamResponse:
    book = request.app[PARTS].participants.book
    found = [msgspec.convert(row, ParticipantShown) for row in rows(book)]
    return answer(ParticipantList(items=found))


async def reload(request: web.Request) -> web.StreamResponse:
    parts = request.app[PARTS]
    await parts.participants.reload()
    book = parts.participants.book
    return answer(Reloaded(participants=len(book.names), capabilities=len(book.capabilities)))


ROUTES = (
    Route(
        "GET",
        ALL,
        "read",
        list_all,
        "The participants, and how they have answered since the server started",
        returns=ParticipantList,
    ),
    Route(
        "POST",
        f"{ALL}/reload",
        "admin",
        reload,
        "Read the book of participants again; one with a mistake changes nothing",
        returns=Reloaded,
        bodiless=True,
    ),
)
