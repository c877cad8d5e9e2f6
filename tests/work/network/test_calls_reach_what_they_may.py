"""Calls and their redirects reach what the operator allows; credentials stay with their origin.

All servers of these tests are on the loopback address; where one has to be a stranger's, the look
at its address is told so.
"""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

import anabranch
from anabranch.kernel.values import Answer
from anabranch.settings import Settings
from anabranch.work.kind_options import HttpOptions
from anabranch.work.kinds.http.performer import Http
from anabranch.work.network import guarded_sessions
from anabranch.work.network.addresses import read_policy
from anabranch.work.rule.api import ApiCaller, ApiOptions, ApiRequest, CallFailed

from ..support import fault_of, run, server, task

METADATA = "http://169.254.169.254/latest/meta-data/iam"


@pytest.fixture(autouse=True)
def _nothing_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that does not hold fails the test here, and not at somebody's service."""
    real = asyncio.selector_events.BaseSelectorEventLoop.sock_connect

    async def connect(loop: Any, sock: socket.socket, address: Any) -> None:
        assert address[0].rpartition(":")[2].startswith("127.") or address[0] == "::1", address
        await real(loop, sock, address)

    monkeypatch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "sock_connect", connect)


class Site:
    """A server that notes what it was asked and answers, or sends elsewhere."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[dict[str, str]] = []
        self.location = ""
        self.status = 302

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = (await request.read()).decode()
        self.seen.append(
            {name.lower(): value for name, value in request.headers.items()}
            | {":method": request.method, ":body": body, ":path": request.path}
        )
        if self.location and request.path != "/end":
            return web.Response(status=self.status, headers={"Location": self.location})
        return web.json_response({"secret": 42})


@asynccontextmanager
async def sites(count: int = 1) -> AsyncIterator[list[Site]]:
    made = [Site() for _ in range(count)]
    async with AsyncExitStack() as stack:
        for site in made:
            site.url = await stack.enter_async_context(server(site.answer))
        yield made


async def called(url: str, addresses: str = "any", **inputs: Any) -> Answer:
    http = Http(HttpOptions(addresses=read_policy(addresses)))
    try:
        return await http.perform(task("http", url=url, **inputs))
    finally:
        await http.close()


def strangers(monkeypatch: pytest.MonkeyPatch, *urls: str) -> None:
    """The servers at these URLs are taken for public ones."""
    real = guarded_sessions.peer_class

    def seen(response: Any) -> Any:
        return "public" if str(response.url.origin()) in urls else real(response)

    monkeypatch.setattr("anabranch.work.kinds.http.performer.peer_class", seen)
    monkeypatch.setattr("anabranch.work.rule.api.peer_class", seen)


def resolving(monkeypatch: pytest.MonkeyPatch, answers: Callable[[str], list[str]]) -> None:
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if not str(host).endswith(".test"):
            return real(host, port, *more, **named)
        found = answers(str(host))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


# -- the first address ---------------------------------------------------------------------------


PLAIN = ["127.0.0.1", "0.0.0.0", "localhost", "[::ffff:127.0.0.1]", "u:p@127.0.0.1"]
#: Refused by the policy, by the client that does not take them, or as names that nobody knows.
ODD = ["127.1", "0x7f.1", "0177.0.0.1", "2130706433", "localhost.", "①②⑦.0.0.1", "8.8.8.8@127.1"]


@pytest.mark.parametrize("host", [*PLAIN, *ODD])
def test_where_only_public_addresses_are_allowed_this_machine_is_not_called(host: str) -> None:
    async def scenario() -> None:
        async with sites() as (site,):
            answer = await called(site.url.replace("127.0.0.1", host), "public")
            fault = fault_of(answer)
            if host in PLAIN:
                assert (fault.kind, fault.code) == ("config", "ADDRESS_REFUSED")
                assert "is not a public address (setting http_addresses)" in fault.message
                assert not fault.retryable
            assert site.seen == []

    run(scenario())


def test_what_the_operator_lists_can_be_called() -> None:
    async def scenario() -> None:
        async with sites() as (site,):
            for policy in ("", "any", "loopback", "public 127.0.0.0/8", "127.0.0.1"):
                assert (await called(site.url, policy)).status == "ok"
            fault = fault_of(await called(site.url, "public private"))
            assert (
                "127.0.0.1 is not among the addresses that http_addresses allows" in fault.message
            )
            assert len(site.seen) == 5

    run(scenario())


def test_a_name_is_looked_up_once_and_what_was_checked_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def rebinding(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    async def scenario() -> None:
        async with sites() as (site,):
            url = site.url.replace("127.0.0.1", "rebinding.test")
            assert (await called(url, "127.0.0.1")).status == "ok"
            assert asked == ["rebinding.test"]
            fault = fault_of(await called(url, "127.0.0.1"))  # another client: looked up again
            assert (fault.code, len(site.seen)) == ("ADDRESS_REFUSED", 1)
            assert "127.0.0.2" in fault.message

    resolving(monkeypatch, rebinding)
    run(scenario())


def test_a_name_with_one_address_that_is_not_allowed_is_refused_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with sites() as (site,):
            url = site.url.replace("127.0.0.1", "both.test")
            assert fault_of(await called(url, "127.0.0.1")).code == "ADDRESS_REFUSED"
            assert site.seen == []

    resolving(monkeypatch, lambda _: ["127.0.0.1", "10.0.0.1"])
    run(scenario())


# -- redirects -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location", [METADATA, "//169.254.169.254/", "http://[fd00:ec2::254]/", "http://metadata.test/"]
)
def test_no_redirect_leads_to_a_metadata_service(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with sites() as (site,):
            site.location = location
            fault = fault_of(await called(site.url))
            assert (fault.kind, fault.code) == ("config", "ADDRESS_REFUSED")
            assert "a link-local or metadata address, where a redirect from a loopback one" in (
                fault.message
            )

    resolving(monkeypatch, lambda _: ["169.254.169.254"])
    run(scenario())


@pytest.mark.parametrize("policy", ["any", "public private loopback link_local"])
def test_no_redirect_of_a_public_server_leads_to_this_machine(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with sites(2) as (public, inside):
            strangers(monkeypatch, public.url)
            for host in ("127.0.0.1", "localhost", "2130706433", "[::ffff:7f00:1]"):
                public.location = inside.url.replace("127.0.0.1", host) + "/admin"
                fault = fault_of(await called(public.url, policy))
                assert fault.code in ("ADDRESS_REFUSED", "BAD_URL")
                if fault.code == "ADDRESS_REFUSED":
                    assert "a redirect from a public one must not lead" in fault.message
            assert inside.seen == []

    run(scenario())


def test_a_way_back_inside_over_a_public_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with sites(2) as (inside, public):
            inside.location = public.url
            public.location = f"{inside.url}/end"
            assert (await called(inside.url)).status == "ok"
            strangers(monkeypatch, public.url)
            fault = fault_of(await called(inside.url))
            assert fault.code == "ADDRESS_REFUSED"
            assert len(inside.seen) == 3

    run(scenario())


def test_a_server_on_this_machine_may_redirect_on_this_machine() -> None:
    async def scenario() -> None:
        async with sites(2) as (first, second):
            first.location = f"{second.url}/end"
            answer = await called(first.url)
            assert answer.result["url"] == f"{second.url}/end"

    run(scenario())


@pytest.mark.parametrize("count", [10, 11])
def test_ten_redirects_are_followed_and_an_eleventh_is_not(count: int) -> None:
    async def scenario() -> None:
        async with sites() as (site,):
            site.location = site.url
            real = site.answer

            async def counted(request: web.BaseRequest) -> web.StreamResponse:
                if len(site.seen) == count:
                    site.location = ""
                return await real(request)

            async with server(counted) as url:
                site.location = url
                answer = await called(url)
            if count == 10:
                assert answer.status == "ok"
            else:
                assert fault_of(answer).code == "TOO_MANY_REDIRECTS"

    run(scenario())


def test_the_time_of_a_call_covers_its_redirects() -> None:
    async def scenario() -> None:
        async def slow(_request: web.BaseRequest) -> web.StreamResponse:
            await asyncio.sleep(0.2)
            return web.Response(status=302, headers={"Location": "/on"})

        async with server(slow) as url:
            fault = fault_of(await called(url, timeout=0.5))
            assert (fault.kind, fault.code) == ("timeout", "TIMEOUT")

    run(scenario())


# -- credentials ---------------------------------------------------------------------------------

KEYS: dict[str, Any] = {
    "auth": {"token": "t-secret"},
    "headers": {"X-Api-Key": "k", "Cookie": "c=1", "X-Own": "o", "Accept": "application/json"},
    "follow_redirects": True,
}


def test_credentials_do_not_follow_a_redirect_to_another_origin() -> None:
    async def scenario() -> None:
        async with sites(2) as (first, second):
            first.location = f"{second.url.replace('//', '//eve:pw@')}/end"
            assert (await called(first.url, **KEYS)).status == "ok"
            assert first.seen[0].keys() > {"authorization", "x-api-key", "cookie", "x-own"}
            got = second.seen[0]
            assert not got.keys() & {"authorization", "x-api-key", "cookie", "x-own"}
            assert got["accept"] == "application/json"

    run(scenario())


def test_credentials_follow_a_redirect_within_their_origin() -> None:
    async def scenario() -> None:
        async with sites() as (site,):
            site.location = "/end"
            await called(site.url, **KEYS)
            assert site.seen[1]["authorization"] == "Bearer t-secret"
            assert site.seen[1]["x-api-key"] == "k"
            site.seen.clear()
            await called(site.url.replace("//", "//u:p@"), follow_redirects=True)
            assert site.seen[1]["authorization"] == site.seen[0]["authorization"] == "Basic dTpw"

    run(scenario())


@pytest.mark.parametrize(
    ("status", "method", "body"), [(302, "GET", ""), (303, "GET", ""), (307, "POST", "x")]
)
def test_only_307_and_308_repeat_what_was_posted(status: int, method: str, body: str) -> None:
    async def scenario() -> None:
        async with sites() as (site,):
            site.location, site.status = "/end", status
            await called(site.url, method="POST", body="x", follow_redirects=True)
            assert (site.seen[1][":method"], site.seen[1][":body"]) == (method, body)

    run(scenario())


# -- through the engine, for every kind of call ---------------------------------------------------

HTTP = """
metadata: {name: calls}
workflow: [{step: start, tool: {kind: http, url: "{{ workload.url }}"}}]
"""
PAGES = """
metadata: {name: pages}
workflow:
  - step: start
    loop: {in: {pages: {url: "{{ workload.url }}", items: $.data, page_param: p, page_start: 1,
                        has_more: $.more, key: $.id}}, iterator: one}
    tool: {kind: noop}
"""
OAUTH = """
metadata: {name: tokens}
keychain: [{name: api, kind: oauth2, endpoint: "{{ workload.url }}", client_id: a}]
workflow: [{step: start, tool: {kind: http, url: "{{ workload.url }}", auth: api}}]
"""


@pytest.mark.parametrize("definition", [HTTP, PAGES, OAUTH], ids=["http", "pages", "oauth2"])
def test_every_call_of_a_definition_obeys_the_setting(definition: str) -> None:
    async def scenario() -> None:
        async with sites() as (site,):
            settings = Settings(http_addresses="public")
            done = await asyncio.to_thread(
                anabranch.run, definition, {"url": site.url}, settings=settings
            )
            assert done.status == "failed"
            assert "not a public address (setting http_addresses)" in json.dumps(
                [done.problem, done.steps]
            )
            assert site.seen == []

    run(scenario())


def test_api_calls_of_rules_obey_their_policy_first_and_redirected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def asked(url: str, addresses: str) -> Any:
        caller = ApiCaller(ApiOptions(addresses=read_policy(addresses, "rule_addresses")))
        try:
            return await caller.call(ApiRequest("GET", url))
        finally:
            await caller.close()

    async def scenario() -> None:
        async with sites(2) as (first, second):
            with pytest.raises(CallFailed, match=r"not a public address \(setting rule_addresses"):
                await asked(first.url, "public")
            assert first.seen == []
            first.location = METADATA
            with pytest.raises(CallFailed, match="where a redirect from a loopback one must not"):
                await asked(first.url, "any")
            first.location = second.url
            assert await asked(first.url, "any") == {"secret": 42}
            strangers(monkeypatch, first.url)
            with pytest.raises(CallFailed, match="where a redirect from a public one must not"):
                await asked(first.url, "any")
            assert len(second.seen) == 1

    run(scenario())
