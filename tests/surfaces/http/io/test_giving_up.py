"""Whoever gives up on a request takes the thread that computes for it along."""

from __future__ import annotations

import asyncio
import threading

import pytest
from aiohttp import web

from anabranch import cancel
from anabranch.operations.definitions.prepare import Prepared
from anabranch.surfaces.http.guard.connection_limits import in_time
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.http.resources import definitions
from anabranch.surfaces.http.resources.definitions import Compilations

from ..support import run


class Endless:
    """Work that goes on until it is told that nobody waits."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.turns = 0

    def __call__(self, *_args: object, **_more: object) -> Prepared:
        self.begun.set()
        try:
            while True:
                self.turns += 1
                cancel.poll()
        finally:
            self.ended.set()


async def happens(event: threading.Event) -> None:
    while not event.is_set():
        await asyncio.sleep(0.005)


def test_a_thread_stops_when_its_request_is_given_up() -> None:
    async def go() -> None:
        work = Endless()
        request = asyncio.ensure_future(in_thread(work))
        await happens(work.begun)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await happens(work.ended)
        turns = work.turns
        await asyncio.sleep(0.02)
        assert work.turns == turns

    run(go())


def test_a_request_that_runs_out_of_time_stops_its_thread() -> None:
    async def go() -> None:
        work = Endless()

        async def handler(_request: web.Request) -> web.StreamResponse:
            await in_thread(work)
            raise AssertionError

        with pytest.raises(ApiError, match="no answer within"):
            await in_time(0.05)[0]({}, handler)
        await happens(work.ended)

    run(go())


def test_a_shared_compilation_goes_on_until_the_last_one_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def go() -> None:
        work = Endless()
        monkeypatch.setattr(definitions, "prepare", work)
        compilations = Compilations()
        first = asyncio.ensure_future(compilations.get("text", [], None))
        second = asyncio.ensure_future(compilations.get("text", [], None))
        await happens(work.begun)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not work.ended.is_set()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await happens(work.ended)

    run(go())
