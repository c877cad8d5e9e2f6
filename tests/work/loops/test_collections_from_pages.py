"""Endpoints that give their items in pages, as collections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
from aiohttp import web

from anabranch.errors import InputError
from anabranch.work.kinds.http.performer import Http
from anabranch.work.loops.collections.all import Collections
from anabranch.work.loops.collections.port import CollectionError
from anabranch.work.network.guarded_sessions import peer_class
from anabranch.work.secrets.redaction import Keyring, Secret

from ..support import run, server
from .support import all_items, all_shards, using

T = TypeVar("T")


class Api:
    """Twelve things in pages of five, in every way an API can page."""

    def __init__(self) -> None:
        self.things = [{"id": f"t{n}", "n": n} for n in range(12)]
        self.requests: list[str] = []
        self.broken_after = 99
        self.pages: dict[str, Any] = {}

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        self.requests.append(request.path_qs)
        if len(self.requests) > self.broken_after:
            return web.Response(status=503)
        query = request.query
        match request.path:
            case "/link":
                at = int(query.get("at", 0))
                following = f"/link?at={at + 5}" if at + 5 < len(self.things) else None
                return web.json_response(
                    {"data": {"list": self.things[at : at + 5]}, "next": following}
                )
            case "/token":
                at = int(query.get("cursor", "c0").removeprefix("c"))
                token = f"c{at + 5}" if at + 5 < len(self.things) else ""
                return web.json_response({"items": self.things[at : at + 5], "cursor": token})
            case "/number":
                at = (int(query.get("page", 1)) - 1) * 5
                return web.json_response(self.things[at : at + 5])
            case "/offset":
                at = int(query.get("skip", 0))
                more = at + 5 < len(self.things)
                return web.json_response({"items": self.things[at : at + 5], "more": more})
            case _:
                return web.json_response(self.pages.get(request.path))


def with_api(
    scenario: Callable[[Collections, str, Api], Awaitable[T]], api: Api | None = None
) -> T:
    async def guarded() -> T:
        http = Http()
        collections = Collections(performers={"http": http})
        handler = api or Api()
        async with server(handler) as address:
            try:
                return await scenario(collections, address, handler)
            finally:
                await http.close()
                await collections.close()

    return run(guarded())


WAYS: list[dict[str, Any]] = [
    {"url": "/link", "items": "$.data.list", "next": "$.next"},
    {"url": "/token", "items": "$.items", "next": "$.cursor", "next_param": "cursor"},
    {"url": "/number", "page_param": "page"},
    {"url": "/offset", "items": "items", "offset_param": "skip", "has_more": "$.more"},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way["url"])
@pytest.mark.parametrize(("count", "shards"), [(1, 1), (4, 2), (5, 1), (7, 3), (100, 1)])
def test_every_way_to_page(way: dict[str, Any], count: int, shards: int) -> None:
    async def scenario(collections: Collections, address: str, api: Api) -> None:
        value = {"pages": {**way, "url": address + way["url"], "key": "$.id"}}
        found = await all_items(collections, value, count, shards)
        assert [item.item for item in found] == api.things
        assert [item.key for item in found] == [thing["id"] for thing in api.things]
        assert len(api.requests) <= 4  # each page once, in spite of cutting and reading twice

    with_api(scenario)


def test_the_parameters_of_the_author_stay() -> None:
    async def scenario(collections: Collections, address: str, api: Api) -> list[str]:
        given = {"url": f"{address}/number", "page_param": "page", "params": {"sort": "n"}}
        await all_items(collections, {"pages": given}, 100, 1)
        return api.requests

    assert with_api(scenario)[1] == "/number?sort=n&page=2"


def test_an_endpoint_that_fails_halfway_says_where() -> None:
    api = Api()
    api.broken_after = 1

    async def scenario(collections: Collections, address: str, _: Api) -> None:
        value = {"pages": {"url": f"{address}/link", "items": "$.data.list", "next": "$.next"}}
        with pytest.raises(CollectionError) as raised:
            await all_items(collections, value, 4, 9)
        assert raised.value.message.startswith(f"page 2 of {address}/link: GET ")
        assert "answered 503" in raised.value.message
        assert raised.value.retryable

    with_api(scenario, api)


@pytest.mark.parametrize(
    ("page", "more", "words"),
    [
        ({"data": {"a": 1}}, {"items": "$.data"}, "page 1 of {}/x: $.data is no list but dict"),
        ({}, {"items": "$.data"}, "$.data is no list but nothing"),
        (None, {}, "$ is no list but nothing"),
        (
            {"data": [1], "next": "/x"},
            {"items": "data", "next": "next"},
            "page 2 of {}/x: its next page is the page itself",
        ),
        (
            {"data": [1], "next": {}},
            {"items": "data", "next": "next"},
            "is no address and no token",
        ),
        ([{"id": None}], {"key": "$.id"}, "item 0: $.id is no text or number to know it by"),
    ],
)
def test_pages_that_are_none(page: Any, more: Any, words: str) -> None:
    api = Api()
    api.pages["/x"] = page

    async def scenario(collections: Collections, address: str, _: Api) -> None:
        with pytest.raises(CollectionError) as raised:
            await all_items(collections, {"pages": {"url": f"{address}/x", **more}}, 4, 9)
        assert words.format(address) in raised.value.message

    with_api(scenario, api)


def test_an_endpoint_that_shrank_is_refused() -> None:
    async def scenario(collections: Collections, address: str, api: Api) -> None:
        value = {"pages": {"url": f"{address}/number", "page_param": "page"}}
        descriptor = await collections.describe(value)
        shards = await all_shards(collections, descriptor, 4, 9)
        http = Http()
        fresh = Collections(performers={"http": http})  # one that has seen no page yet
        del api.things[3:]
        for shard in shards[1:]:
            with pytest.raises(CollectionError, match="changed while the loop was running"):
                await fresh.items(descriptor, shard.first, shard.count, shard.cursor)
        await fresh.close()
        await http.close()

    with_api(scenario)


def test_credentials_come_from_the_keychain_and_stay_with_the_host() -> None:
    seen: list[str] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response({"data": [1], "next": "http://elsewhere.invalid/"})

    async def scenario() -> None:
        http = Http()
        collections = Collections(performers={"http": http})
        ring = Keyring({"api": {"type": "bearer", "token": Secret("tok-123456")}})
        async with server(handler) as address:
            value = {"pages": {"url": address, "items": "data", "next": "next", "auth": "api"}}
            descriptor = await collections.describe(value)
            with pytest.raises(CollectionError, match="the next page is on another host"):
                await collections.cut(descriptor, None, 5, 1, keyring=ring)
            with pytest.raises(CollectionError, match="the keychain has no entry 'api'"):
                await Collections(performers={"http": http}).cut(descriptor, None, 5, 1)
        await http.close()
        await collections.close()

    run(scenario())
    assert seen == ["Bearer tok-123456"]


def chained(monkeypatch: pytest.MonkeyPatch, public: int, ways: list[str]) -> list[Any]:
    """What three servers were asked where each page names another, and why that ended; one of them
    answers as a public one does, whatever its name means by then."""

    async def scenario() -> list[Any]:
        apis = [Api(), Api(), Api()]
        http = Http()
        collections = Collections(performers={"http": http})
        async with AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(server(api)) for api in apis]

            def seen(response: Any) -> Any:
                there = str(response.url).startswith(urls[public])
                return "public" if there else peer_class(response)

            monkeypatch.setattr("anabranch.work.kinds.http.performer.peer_class", seen)
            at = 0
            for number, way in enumerate(ways):
                onward = way.format(*urls)
                apis[at].pages[f"/p{number}"] = {"data": [number], "next": onward}
                at = next((n for n, url in enumerate(urls) if onward.startswith(url)), at)
            apis[at].pages[f"/p{len(ways)}"] = {"data": [9]}
            value = {"pages": {"url": f"{urls[0]}/p0", "items": "data", "next": "next"}}
            descriptor = await collections.describe(value)
            cursor, ended, refusal = None, False, ""
            try:
                while not ended:  # as shards are cut, each perhaps by another process
                    fresh = Collections(performers={"http": http})
                    cuts = await fresh.cut(descriptor, cursor, 1, 1)
                    cursor, ended = cuts.next_cursor, cuts.end
            except CollectionError as error:
                refusal = str(error)
        await http.close()
        await collections.close()
        return [*(api.requests for api in apis), refusal]

    return run(scenario())


def test_an_address_that_a_page_names_reaches_no_more_than_a_redirect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # From this machine to a metadata service.
    first, *_, refusal = chained(monkeypatch, 2, ["http://169.254.169.254/p1"])
    assert (set(first), "must not lead" in refusal) == ({"/p0"}, True)
    # From a public server into the own network.
    first, inside, _, refusal = chained(monkeypatch, 0, ["{1}/p1"])
    assert (set(first), inside, "must not lead" in refusal) == ({"/p0"}, [], True)
    # Over a public server back inside, also where the author has named that host.
    for back in ("{0}/p2", "{2}/p2"):
        first, public, third, refusal = chained(monkeypatch, 1, ["{1}/p1", back])
        assert (set(first), set(public), third) == ({"/p0"}, {"/p1"}, [])
        assert "must not lead" in refusal


def test_pages_of_the_host_that_the_author_named_are_followed_wherever_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, *_, refusal = chained(monkeypatch, 0, ["/p1", "{0}/p2"])
    assert refusal == ""
    assert set(first) == {"/p0", "/p1", "/p2"}
    first, second, *_ = chained(monkeypatch, 2, ["{1}/p1", "{1}/p2", "{0}/p3"])
    assert (set(first), set(second)) == ({"/p0", "/p3"}, {"/p1", "/p2"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "pages.url must be text"),
        ({"url": "http://u:pw@h/"}, "have credentials in them"),
        ({"url": "http://h/", "headers": {"X-Api-Key": "pw"}}, "have credentials in them"),
        ({"url": "http://h/", "items": "$.a[*]"}, "is not a path"),
        ({"url": "http://h/", "next": "a", "page_param": "b"}, "one way to the next page"),
        ({"url": "http://h/", "page_start": "x"}, "page_start must be a whole number"),
        ({"url": "http://h/", "colour": "x"}, "pages: 'colour' is not known"),
    ],
)
def test_bad_pages_are_named(given: Any, words: str) -> None:
    with pytest.raises(InputError) as raised:
        using(lambda collections: collections.describe({"pages": given}))
    assert words in raised.value.message


def test_nothing_to_fetch_with() -> None:
    for value in (
        {"pages": {"url": "http://h/"}},
        {"sql": {"query": "select 1 as a", "key": "a", "path": "x"}},
    ):

        async def scenario(collections: Collections, value: Any = value) -> None:
            descriptor = await collections.describe(value)
            with pytest.raises(CollectionError, match="there is no work of kind"):
                await collections.cut(descriptor, None, 1, 1)

        using(scenario)
