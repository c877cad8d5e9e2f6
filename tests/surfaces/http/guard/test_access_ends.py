"""Whoever listens or waits is cut off when their token or session ends, not at the next request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientError, ClientResponse

from anabranch.operations.access.tokens import AccessControl
from anabranch.store.sqlite.store import SqliteStore
from anabranch.surfaces.http.guard import browser_sessions

from ..access import START, Door, serving
from ..support import run

NEEDED: Any = {"require_tokens": "yes"}


async def begun(door: Door) -> str:
    reply = await door.ask("POST", "/runs", door.token("operate"), START)
    return str(reply.json["run"])


@asynccontextmanager
async def listening(door: Door, path: str, **headers: str) -> AsyncIterator[ClientResponse]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with door.session.get(door.server.url + path, headers=given) as response:
        assert response.status == 200, await response.text()
        assert await response.content.readany()
        yield response


async def is_cut_off(response: ClientResponse) -> None:
    """Reads until the server hangs up, which is no proper end of the answer."""
    with pytest.raises(ClientError):
        await response.content.read()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


STREAMS = ["/api/v1/runs/{run}/events/stream", "/live/runs/{run}", "/live/runs"]


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_ends_with_the_token_that_opened_it(path: str) -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            run_id, token, other = await begun(door), door.token("read"), door.token("read")
            admin = door.token("admin")
            way = path.format(run=run_id)
            async with (
                listening(door, way, **bearer(token)) as cut,
                listening(door, way, **bearer(other)) as kept,
            ):
                gone = await door.ask("DELETE", f"/tokens/{token.split('_')[1]}", admin)
                assert gone.status == 200
                await is_cut_off(cut)
                assert not kept.content.at_eof()
                assert kept.content.exception() is None
            assert (await door.ask("GET", "/runs", token)).code == "token_revoked"

    run(go())


def test_a_stream_ends_also_when_another_process_revokes_its_token(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_sessions, "LOOK_SECONDS", 0.05)

    async def go() -> None:
        async with serving(store=str(tmp_path / "s.db"), **NEEDED) as door:
            way = f"/api/v1/runs/{await begun(door)}/events/stream"
            token = door.token("read")
            async with listening(door, way, **bearer(token)) as response:
                beside = SqliteStore(tmp_path / "s.db")
                AccessControl(beside, door.server.keeper.now).revoke(token.split("_")[1])
                beside.close()
                await is_cut_off(response)

    run(go())


def test_a_stream_ends_when_its_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_sessions, "LOOK_SECONDS", 0.05)

    async def go() -> None:
        async with serving(**NEEDED) as door:
            way = f"/api/v1/runs/{await begun(door)}/events/stream"
            async with listening(door, way, **bearer(door.token("read", days=1))) as response:
                door.later(86_400_000)
                await is_cut_off(response)

    run(go())


WAITING: list[tuple[str, str, str, Any]] = [
    ("GET", "/api/v1/runs/{run}/wait?seconds=60", "read", None),
    ("POST", "/api/v1/pools/gpu/claim", "work", {"worker": "w", "wait_seconds": 60}),
]


@pytest.mark.parametrize(("method", "path", "scope", "body"), WAITING)
def test_whoever_waits_for_an_answer_gets_none_with_a_revoked_token(
    method: str, path: str, scope: str, body: Any
) -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            url = door.server.url + path.format(run=await begun(door))
            token = door.token(scope)
            asked = asyncio.ensure_future(
                door.session.request(method, url, json=body, headers=bearer(token))
            )
            while not len(door.server.keeper.stays):
                await asyncio.sleep(0.01)
            door.server.access.revoke(token.split("_")[1])
            await door.server.keeper.stays.look()
            with pytest.raises(ClientError):  # the answer, or the repeat of a request that is safe
                (await asked).raise_for_status()

    run(go())


def test_nothing_is_kept_of_requests_that_are_over() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            token = door.token("read")
            for _ in range(5):
                await door.ask("GET", "/runs", token)
            assert len(door.server.keeper.stays) == 0
            assert door.server.keeper.stays._here == {}

    run(go())


# -- sessions --------------------------------------------------------------------------------------


async def signed_in(door: Door, token: str) -> tuple[dict[str, str], str]:
    """The cookies of a browser that has signed in, and the secret of its forms."""
    page = await door.ask("GET", "//login")
    (secret,) = re.findall(r'name="csrf" value="([^"]+)"', page.text)
    reply = await door.session.post(
        f"{door.server.url}/login",
        data={"token": token, "csrf": secret},
        headers={"Cookie": f"anabranch_form={secret}"},
        allow_redirects=False,
    )
    cookie = {"Cookie": f"anabranch_session={reply.cookies['anabranch_session'].value}"}
    page = await door.ask("GET", "//runs", **cookie)
    (own, *_) = re.findall(r'name="csrf" value="([^"]+)"', page.text)
    assert own != secret
    return cookie, own


def test_signing_out_ends_what_the_page_listened_to() -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            token = door.token("read")
            cookie, secret = await signed_in(door, token)
            other, _ = await signed_in(door, token)
            async with (
                listening(door, "/live/runs", **cookie) as cut,
                listening(door, "/live/runs", **other) as kept,
            ):
                await door.session.post(
                    f"{door.server.url}/logout", data={"csrf": secret}, headers=cookie,
                    allow_redirects=False,
                )  # fmt: skip
                await is_cut_off(cut)
                assert kept.content.exception() is None
            assert (await door.ask("GET", "/runs", **cookie)).code == "token_missing"
            assert (await door.ask("GET", "/runs", **other)).status == 200

    run(go())


def test_a_session_whose_token_is_revoked_leads_back_to_the_entrance() -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            token = door.token("read")
            cookie, _ = await signed_in(door, token)
            door.server.access.revoke(token.split("_")[1])
            reply = await door.ask("GET", "//runs", Accept="text/html", **cookie)
            assert (reply.status, reply.headers["Location"]) == (303, "/login?next=/runs")
            assert (await door.ask("GET", "/runs", **cookie)).code == "token_revoked"
            assert (await door.ask("GET", "//login", **cookie)).status == 200

    run(go())


def test_a_session_is_new_with_every_sign_in_whatever_cookie_was_there() -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            planted = "planted-by-somebody-else-planted-by-somebody"
            page = await door.ask("GET", "//login", Cookie=f"anabranch_session={planted}")
            (secret,) = re.findall(r'name="csrf" value="([^"]+)"', page.text)
            reply = await door.session.post(
                f"{door.server.url}/login",
                data={"token": door.token("read"), "csrf": secret},
                headers={"Cookie": f"anabranch_form={secret}; anabranch_session={planted}"},
                allow_redirects=False,
            )
            assert reply.cookies["anabranch_session"].value != planted
            assert (await door.ask("GET", "/runs", Cookie=f"anabranch_session={planted}")).status == 401  # fmt: skip  # noqa: E501

    run(go())


def test_the_secret_before_signing_in_is_worth_nothing_afterwards() -> None:
    """A page of another port can plant a cookie; it does not know the secret of the session."""

    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            run_id = await begun(door)
            cookie, secret = await signed_in(door, door.token("operate"))
            planted = "p" * 43
            both = {"Cookie": f"{cookie['Cookie']}; anabranch_form={planted}"}
            url = f"{door.server.url}/runs/{run_id}/do/cancel"
            for given, status in ((planted, 403), (secret, 303)):
                async with door.session.post(
                    url, data={"csrf": given}, headers=both, allow_redirects=False
                ) as reply:
                    assert reply.status == status

    run(go())


def test_nobody_signs_everybody_else_out_by_signing_in() -> None:
    sessions = browser_sessions.BrowserSessions(lambda: 0)
    first, _ = sessions.begin("ann")
    for _ in range(3 * browser_sessions.SESSIONS_MAX):
        last, _ = sessions.begin("eve")
    assert sessions.find(first) is not None
    assert sessions.find(last) is not None
    assert len(sessions) == 1 + browser_sessions.SESSIONS_OF_ONE


@pytest.mark.parametrize("cookie", ["ü", "\udcff", "x" * 4000, "", '"; anabranch_session="'])
def test_a_cookie_that_is_not_ours_is_nobody(cookie: str) -> None:
    assert browser_sessions.BrowserSessions(lambda: 0).find(cookie) is None
