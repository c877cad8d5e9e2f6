"""An answer is there in time, or the client is told; a stream may take as long as it likes."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from anabranch.surfaces.http.guard.connection_limits import in_time
from anabranch.surfaces.http.io.problems import ApiError
from virtual import run_virtually

LIMIT_SECONDS = 120.0


def request() -> web.Request:
    return make_mocked_request("GET", "/", app=web.Application())


async def forever(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


def test_a_request_that_takes_too_long_is_answered_with_504_soon_after() -> None:
    async def go() -> float:
        middleware, _ = in_time(LIMIT_SECONDS)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with pytest.raises(ApiError) as refused:
            await middleware(request(), forever)
        assert (refused.value.status, refused.value.code) == (504, "slow_answer")
        return loop.time() - begun

    assert LIMIT_SECONDS <= run_virtually(go()) <= LIMIT_SECONDS + 1


def test_a_request_is_cut_by_its_own_limit_not_by_that_of_others() -> None:
    async def brief(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(LIMIT_SECONDS - 10)
        return web.Response(text="here")

    async def go() -> None:
        middleware, _ = in_time(LIMIT_SECONDS)
        slow = asyncio.ensure_future(middleware(request(), forever))
        await asyncio.sleep(LIMIT_SECONDS / 2)
        assert (await middleware(request(), brief)).status == 200
        with pytest.raises(ApiError):
            await slow

    run_virtually(go())


def test_a_timeout_of_the_work_itself_is_not_taken_for_the_limit() -> None:
    async def failing(_request: web.Request) -> web.StreamResponse:
        raise TimeoutError("its own")

    async def go() -> None:
        middleware, _ = in_time(LIMIT_SECONDS)
        with pytest.raises(TimeoutError, match="its own"):
            await middleware(request(), failing)

    run_virtually(go())


@pytest.mark.parametrize(
    ("media", "cut"), [("text/event-stream", False), ("application/x-ndjson", True)]
)
def test_a_stream_of_events_that_has_begun_has_no_limit(media: str, cut: bool) -> None:
    async def go() -> None:
        middleware, let_stream = in_time(LIMIT_SECONDS)

        async def streaming(asked: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": media})
            await let_stream(asked, response)
            await asyncio.sleep(LIMIT_SECONDS * 10)
            return response

        if cut:
            with pytest.raises(ApiError):
                await middleware(request(), streaming)
        else:
            assert (await middleware(request(), streaming)).status == 200

    run_virtually(go())
