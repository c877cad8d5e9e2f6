"""`{pages: {url: …, items: "$.data", next: "$.next"}}`: an endpoint that gives its items in pages.

    items         path to the list in an answer (default: the answer itself)
    next          path to the address of the next page, or to a token for `next_param`
    page_param    pages have numbers, from `page_start` (1); over at the first empty page
    offset_param  pages have offsets; over at the first empty page
    has_more      path to a value that is false on the last page
    key           path to what identifies an item
    method, headers, params, json, timeout, auth (the name of a keychain entry)

There is no way to know the items of a page but to fetch it; the last pages are kept, so that a
shard read right after it was cut costs no second call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec

from anabranch.errors import InputError
from anabranch.net import paths
from anabranch.work.kinds import inputs
from anabranch.work.kinds.http.request import bare, carries_credentials
from anabranch.work.loops.collections.asking import asked, entry_of
from anabranch.work.loops.collections.port import (
    KIND,
    CollectionError,
    Cursor,
    Cuts,
    Descriptor,
    Keyring,
    ShardRange,
    Walked,
    changed,
)
from anabranch.work.network.guarded_sessions import noting_peers
from anabranch.work.port import Performer
from anabranch.work.secrets.redaction import brief

_REQUEST = ("url", "method", "headers", "params", "json", "timeout")
_PATHS = ("items", "next", "has_more", "key")
_PARAMS = ("next_param", "page_param", "offset_param")
_KNOWN = frozenset({*_REQUEST, *_PATHS, *_PARAMS, "page_start", "auth"})
_CACHED = 8
_PAGES_MAX = 1_000_000

#: The kinds of the addresses that answered, in their order.
LedBy = tuple[str, ...]


class FetchedPage(msgspec.Struct, frozen=True):
    token: Any  # what leads to it; None is the first
    number: int
    items: list[Any]
    following: Any  # the token of the next one; None when there is none
    led_by: LedBy  # whose answers led to it; nobody's but the author
    passed: LedBy  # the same, and who answered then
    foreign: bool  # whether that was another host than the author's


class Pages(Walked):
    def __init__(self, performers: Mapping[str, Performer]) -> None:
        self._performers = performers
        self._cache: OrderedDict[bytes, FetchedPage] = OrderedDict()

    async def describe(self, value: Any) -> Descriptor:
        given = inputs.mapping(value["pages"], "pages")
        if unknown := sorted(given.keys() - _KNOWN):
            known = ", ".join(sorted(_KNOWN))
            raise InputError(f"pages: '{unknown[0]}' is not known; there are {known}")
        url = inputs.text(given.get("url"), "pages.url")
        headers = inputs.mapping(given.get("headers"), "pages.headers")
        if carries_credentials(headers, url):
            raise InputError(
                "pages: the headers or the url have credentials in them, which would be recorded; "
                "name an entry of the keychain instead (pages.auth: NAME)"
            )
        for name in _PATHS:
            if given.get(name) is not None:
                paths.parse(given[name], f"pages.{name}")
        start = given.get("page_start", 1)
        if not isinstance(start, int):
            raise InputError(f"pages.page_start must be a whole number, not {brief(start)}")
        ways = [name for name in ("next", "page_param", "offset_param") if given.get(name)]
        if len(ways) > 1:
            raise InputError(f"pages: one way to the next page is enough; it has {ways}")
        return {KIND: "pages", **given}

    async def cut(
        self, descriptor: Descriptor, cursor: Cursor | None, count: int, shards: int, ring: Keyring
    ) -> Cuts:
        begin = at = dict(cursor or _start(descriptor))
        index, length = int(begin["index"]), 0
        made: list[ShardRange] = []
        async with aclosing(self._from(descriptor, begin, ring)) as pages:
            async for page, here in pages:
                while here < len(page.items) and len(made) < shards:
                    if length == 0:
                        at = _cursor(page, here, index)
                    taken = min(count - length, len(page.items) - here)
                    length, here = length + taken, here + taken
                    if length == count:
                        made.append(ShardRange(at, index, count))
                        index, length = index + count, 0
                if len(made) == shards:
                    return self._stopped(made, page, here, index)
        if length:
            made.append(ShardRange(at, index, length))
        return Cuts(made, None, True)

    @staticmethod
    def _stopped(made: list[ShardRange], page: FetchedPage, here: int, index: int) -> Cuts:
        if here == len(page.items) and page.following is None:
            return Cuts(made, None, True)
        return Cuts(made, _cursor(page, here, index), False)

    async def items(
        self, descriptor: Descriptor, shard: ShardRange, ring: Keyring
    ) -> list[tuple[str, Any]]:
        if shard.cursor is None:
            raise CollectionError("items of a paged endpoint are read by their cursor")
        found: list[Any] = []
        async with aclosing(self._from(descriptor, shard.cursor, ring)) as pages:
            async for page, skip in pages:
                found += page.items[skip : skip + shard.count - len(found)]
                if len(found) == shard.count:
                    return [
                        (_key(descriptor, item, shard.first + offset), item)
                        for offset, item in enumerate(found)
                    ]
        place = bare(descriptor["url"])
        raise changed(place, f"it ends before item {shard.first + shard.count - 1:,}")

    # -- fetching ----------------------------------------------------------------------------

    async def _from(
        self, descriptor: Descriptor, cursor: Cursor, ring: Keyring
    ) -> AsyncGenerator[tuple[FetchedPage, int], None]:
        """The pages from a cursor on, with the number of items to leave out at the start."""
        begin, led_by = cursor["page"], tuple(cursor.get("led_by", ()))
        page = await self._page(descriptor, begin, cursor["number"], led_by, ring)
        if cursor["skip"] > len(page.items):
            raise changed(_where(descriptor, page.number), "it has fewer items than before")
        yield page, cursor["skip"]
        while page.following is not None:
            if page.number >= _PAGES_MAX:
                raise CollectionError(f"{bare(descriptor['url'])}: more than {_PAGES_MAX:,} pages")
            led_by = _led_to(descriptor, page)
            page = await self._page(descriptor, page.following, page.number + 1, led_by, ring)
            yield page, 0

    async def _page(
        self, descriptor: Descriptor, token: Any, number: int, led_by: LedBy, ring: Keyring
    ) -> FetchedPage:
        key = msgspec.json.encode((descriptor, token, led_by))
        page = self._cache.get(key)
        if page is None:
            page = await self._fetched(descriptor, token, number, led_by, ring)
            self._cache[key] = page
            while len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        return page

    async def _fetched(
        self, descriptor: Descriptor, token: Any, number: int, led_by: LedBy, ring: Keyring
    ) -> FetchedPage:
        where = _where(descriptor, number)
        request = _request(descriptor, token, ring, where)
        if not led_by and not _is_own(descriptor, request["url"]):
            led_by = ("public",)  # of a place that does not say: no more than a stranger may
        fetch = asked(self._performers, "http", "fetch pages", where, led_by)
        with noting_peers() as peers:
            answer = await fetch(request)
        body, answered = answer["data"], str(answer.get("url") or request["url"])
        items = _items(descriptor, body, where)
        following = _following(descriptor, body, token, len(items), where)
        if following is not None and following == token:
            raise CollectionError(f"{where}: its next page is the page itself")
        passed = tuple(dict.fromkeys(peers)) or ("public",)
        foreign = not _is_own(descriptor, answered)
        return FetchedPage(token, number, items, following, led_by, passed, foreign)


def _start(descriptor: Descriptor) -> dict[str, Any]:
    first: Any = None
    if descriptor.get("page_param"):
        first = descriptor.get("page_start", 1)
    elif descriptor.get("offset_param"):
        first = 0
    return {"page": first, "number": 1, "skip": 0, "index": 0}


def _cursor(page: FetchedPage, skip: int, index: int) -> dict[str, Any]:
    at = {"page": page.token, "number": page.number, "skip": skip, "index": index}
    return {**at, "led_by": list(page.led_by)} if page.led_by else at


def _where(descriptor: Descriptor, number: int) -> str:
    return f"page {number:,} of {bare(descriptor['url'])}"


def _request(descriptor: Descriptor, token: Any, ring: Keyring, where: str) -> dict[str, Any]:
    request = {name: descriptor[name] for name in _REQUEST if descriptor.get(name) is not None}
    name = next((descriptor[param] for param in _PARAMS if descriptor.get(param)), None)
    if name is not None and token is not None:
        request["params"] = {**request.get("params", {}), name: token}
    elif token is not None:
        request["url"] = _next_address(descriptor, str(token), where)
        request.pop("params", None)  # the address of a next page has them in it
    entry = entry_of(descriptor, ring)
    return request if entry is None else {**request, "auth": entry}


def _next_address(descriptor: Descriptor, token: str, where: str) -> str:
    address: str = urljoin(descriptor["url"], token)
    if not _is_own(descriptor, address) and descriptor.get("auth"):
        raise CollectionError(f"{where}: the next page is on another host, {bare(address)}")
    return address


def _is_own(descriptor: Descriptor, address: str) -> bool:
    """Whether the author has named this host."""
    here, there = urlsplit(descriptor["url"]), urlsplit(address)
    return (here.scheme, here.netloc) == (there.scheme, there.netloc)


def _led_to(descriptor: Descriptor, page: FetchedPage) -> LedBy:
    """Who leads to the page after this one; nobody where its address is the author's. Others are no
    more trusted with it than those who redirect a call."""
    address = descriptor["url"]
    if descriptor.get("next") and not descriptor.get("next_param"):
        address = urljoin(address, str(page.following))
    return () if not page.foreign and _is_own(descriptor, address) else page.passed


def _items(descriptor: Descriptor, body: Any, where: str) -> list[Any]:
    path = descriptor.get("items", "$")
    found = paths.lookup(body, paths.parse(path, "pages.items"))
    if not isinstance(found, list):
        kind = "nothing" if found is paths.MISSING or found is None else type(found).__name__
        raise CollectionError(f"{where}: {path} is no list but {kind}")
    return found


def _following(descriptor: Descriptor, body: Any, token: Any, count: int, where: str) -> Any:
    if descriptor.get("has_more"):
        more = paths.lookup(body, paths.parse(descriptor["has_more"], "pages.has_more"))
        if more is paths.MISSING or not more:
            return None
    if descriptor.get("page_param"):
        return int(token) + 1 if count else None
    if descriptor.get("offset_param"):
        return int(token) + count if count else None
    if not descriptor.get("next"):
        return None
    found = paths.lookup(body, paths.parse(descriptor["next"], "pages.next"))
    if found is paths.MISSING or found is None or found == "" or found is False:
        return None
    if not isinstance(found, str | int):
        raise CollectionError(f"{where}: {descriptor['next']} is no address and no token")
    return found


def _key(descriptor: Descriptor, item: Any, index: int) -> str:
    path = descriptor.get("key")
    if path is None:
        return str(index)
    found = paths.lookup(item, paths.parse(path, "pages.key"))
    if not isinstance(found, str | int):
        raise CollectionError(f"item {index:,}: {path} is no text or number to know it by")
    return str(found)
