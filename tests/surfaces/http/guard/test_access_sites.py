"""Pages of other sites, names that are not ours, sessions without their secret: all refused."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from anabranch.errors import InputError
from anabranch.surfaces.http.guard.origins import same_origin
from anabranch.work.network.loopback import is_loopback

from ...tables import wrong_answers
from ..access import START, Door, serving
from ..support import run

NEEDED: Any = {"require_tokens": "yes"}
HTML = "text/html,application/xhtml+xml"


# -- names (DNS rebinding) -------------------------------------------------------------------------


def test_a_server_on_this_machine_answers_to_its_own_names_only() -> None:
    async def go() -> None:
        async with serving() as door:

            async def check(host: str, status: int) -> None:
                reply = await door.ask("GET", "/runs", Host=host)
                assert reply.status == status
                if status == 421:
                    assert reply.code == "wrong_host"

            assert (
                await wrong_answers(
                    [
                        ("127.0.0.1", 200),
                        ("127.0.0.1:8629", 200),
                        ("localhost:80", 200),
                        ("LOCALHOST.", 200),
                        ("[::1]:8629", 200),
                        ("evil.example", 421),
                        ("127.0.0.1.evil.example", 421),
                        ("localhost@evil.example", 421),
                        ("", 421),
                        ("[", 421),
                    ],
                    check,
                )
                == []
            )

    run(go())


def test_a_server_answers_to_the_further_names_it_was_given() -> None:
    async def go() -> None:
        async with serving(serve_names="flow.example Other.example") as door:
            for host in ("flow.example", "other.example:443", "localhost"):
                assert (await door.ask("GET", "/runs", Host=host)).status == 200
            assert (await door.ask("GET", "/runs", Host="third.example")).status == 421

    run(go())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "127.13.0.9", "localhost", "::1"])
def test_a_server_answers_to_the_loopback_address_it_listens_on(host: str) -> None:
    async def go() -> None:
        try:
            async with serving(serve_host=host) as door:
                assert (await door.ask("GET", "/runs")).status == 200
                assert (await door.ask("GET", "/runs", Host="evil.example")).status == 421
        except InputError:  # not every machine has IPv6
            if ":" not in host:
                raise

    run(go())


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1", True),
        ("127.255.255.254", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("::ffff:0.0.0.0", False),
        ("::ffff:192.0.2.1", False),
        ("192.168.0.1", False),
        ("169.254.1.1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
    ],
)
def test_only_loopback_addresses_are_taken_for_such(address: str, local: bool) -> None:
    assert is_loopback(address) is local


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "0"])
def test_every_other_way_to_name_all_addresses_needs_tokens_too(host: str) -> None:
    async def go() -> None:
        async with serving(serve_host=host):
            raise AssertionError("it listens")

    with pytest.raises(InputError) as caught:
        run(go())
    assert caught.value.code in ("no_tokens", "address")


# -- pages of other sites --------------------------------------------------------------------------


def test_a_change_that_a_page_of_another_site_asks_for_is_refused() -> None:
    async def go() -> None:
        async with serving() as door:

            async def check(headers: dict[str, str]) -> None:
                reply = await door.ask("POST", "/runs", body=START, **headers)
                assert (reply.status, reply.code) == (403, "wrong_origin")
                assert (await door.ask("GET", "/runs")).json["items"] == []

            assert (
                await wrong_answers(
                    [
                        {"Origin": "https://evil.example"},
                        {"Origin": "null"},
                        {"Origin": "http://localhost:1"},
                        {"Origin": "http://127.0.0.1.evil.example"},
                        {"Origin": "http://["},
                        {"Sec_Fetch_Site": "cross-site"},
                        {"Sec_Fetch_Site": "same-site"},
                    ],
                    check,
                )
                == []
            )

    run(go())


def test_a_form_of_another_site_is_refused_by_its_media_type_alone() -> None:
    """What a browser sends to anybody without asking first; one that says nothing of its site."""

    async def go() -> None:
        async with serving() as door:

            async def check(media: str) -> None:
                url = f"{door.server.url}/api/v1/runs"
                data = json.dumps(START).encode()
                async with door.session.post(
                    url, data=data, headers={"Content-Type": media}
                ) as reply:
                    assert reply.status == 415
                assert (await door.ask("GET", "/runs")).json["items"] == []

            assert (
                await wrong_answers(["text/plain", "application/x-www-form-urlencoded", ""], check)
                == []
            )

    run(go())


def test_a_page_of_another_site_learns_nothing_but_may_link_to_ours() -> None:
    async def go() -> None:
        async with serving(pages=True) as door:

            async def check(site: str) -> None:
                for mode in ("no-cors", "cors", "websocket", ""):
                    for path in ("/runs", "/runs/none", "//live/runs", "//runs", "/nowhere"):
                        reply = await door.ask(
                            "GET", path, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode
                        )
                        assert reply.status == 403, (mode, path)
                linked = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "navigate"}
                assert (await door.ask("GET", "//runs", **linked)).status == 200
                assert (await door.ask("POST", "/runs", body=START, **linked)).status == 403

            assert await wrong_answers(["cross-site", "same-site"], check) == []

    run(go())


def test_a_change_that_a_page_of_ours_asks_for_is_done() -> None:
    async def go() -> None:
        async with serving() as door:
            ours = {"Origin": door.server.url, "Sec_Fetch_Site": "same-origin"}
            assert (await door.ask("POST", "/runs", body=START, **ours)).status == 201

    run(go())


def test_the_port_that_goes_without_saying_makes_no_other_origin() -> None:
    assert same_origin("https://a.example", "a.example")
    assert same_origin("https://a.example:443", "a.example")
    assert same_origin("http://A.example", "a.example:80")
    assert not same_origin("https://a.example:444", "a.example")
    assert not same_origin("ftp://a.example", "a.example")
    assert not same_origin("a.example", "a.example")


# -- sessions --------------------------------------------------------------------------------------


async def signed_in(door: Door, token: str) -> str:
    """Sign in as a browser does; returns the cookie of the session."""
    page = await door.session.get(f"{door.server.url}/login", headers={"Accept": HTML})
    (secret,) = re.findall(r'name="csrf" value="([^"]+)"', await page.text())
    form = {"token": token, "csrf": secret, "next": "/runs"}
    reply = await door.session.post(
        f"{door.server.url}/login", data=form, allow_redirects=False,
        headers={"Origin": door.server.url, "Cookie": f"anabranch_form={secret}"},
    )  # fmt: skip
    assert reply.status == 303, await reply.text()
    cookie = reply.cookies["anabranch_session"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Strict"
    return f"anabranch_session={cookie.value}"


def csrf(door: Door, cookie: str) -> str:
    session = door.server.keeper.sessions.find(cookie.partition("=")[2])
    assert session is not None
    return session.csrf


def test_a_session_is_made_from_a_token_and_allows_what_the_token_does() -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            cookie = await signed_in(door, door.token("operate", name="ann"))
            me = await door.ask("GET", "/me", Cookie=cookie)
            assert (me.json["actor"], me.json["scopes"]) == ("ann", ["read", "operate"])
            secret = csrf(door, cookie)
            begun = await door.ask("POST", "/runs", body=START, Cookie=cookie, X_CSRF_Token=secret)
            assert begun.status == 201
            path = f"/runs/{begun.json['run']}/gates/ask/decide"
            body = {"verdict": "fulfil"}
            reply = await door.ask("POST", path, "", body, Cookie=cookie, X_CSRF_Token=secret)
            assert reply.code == "scope"

    run(go())


def test_a_change_by_a_session_without_its_secret_is_refused() -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            cookie = await signed_in(door, door.token("operate"))
            for given in ({}, {"X_CSRF_Token": "x"}, {"X_CSRF_Token": "ü"}):
                reply = await door.ask("POST", "/runs", body=START, Cookie=cookie, **given)
                assert (reply.status, reply.code) == (403, "csrf")
            assert (await door.ask("GET", "/runs", Cookie=cookie)).json["items"] == []

    run(go())


def test_a_session_ends_with_its_token_its_time_and_signing_out() -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            token = door.token("read")
            revoked, timed = await signed_in(door, token), await signed_in(door, door.token("read"))
            door.server.access.revoke(token.split("_")[1])
            assert (await door.ask("GET", "/runs", Cookie=revoked)).code == "token_revoked"
            assert (await door.ask("GET", "/runs", Cookie=timed)).status == 200
            door.later(13 * 3_600_000)
            door.server.keeper.sessions._now = door.server.keeper.now
            assert (await door.ask("GET", "/runs", Cookie=timed)).code == "token_missing"
            forged = "anabranch_session=" + "x" * 43
            assert (await door.ask("GET", "/runs", Cookie=forged)).code == "token_missing"

    run(go())


def test_people_without_a_session_are_sent_to_the_page_where_they_sign_in() -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            reply = await door.ask("GET", "//runs?status=failed", Accept=HTML)
            assert reply.status == 303
            location = urlsplit(reply.headers["Location"])
            assert location.path == "/login"
            assert parse_qs(location.query) == {"next": ["/runs?status=failed"]}
            assert (await door.ask("GET", "//login", Accept=HTML)).status == 200
            assert (await door.ask("POST", "//runs", Accept=HTML)).status in (401, 403)

    run(go())


def test_cookies_are_marked_secure_where_browsers_speak_tls() -> None:
    async def go(**settings: Any) -> list[bool]:
        async with serving(pages=True, **NEEDED, **settings) as door:
            token, marked = door.token("read"), []
            for proto in ("https", "http", ""):
                headers = {"X-Forwarded-Proto": proto} if proto else {}
                page = await door.ask("GET", "//login", **headers)
                (secret,) = re.findall(r'name="csrf" value="([^"]+)"', page.text)
                url = f"{door.server.url}/login"
                sent = {**headers, "Cookie": f"anabranch_form={secret}"}
                reply = await door.session.post(
                    url, data={"token": token, "csrf": secret}, headers=sent, allow_redirects=False
                )
                both = page.headers["Set-Cookie"], reply.headers["Set-Cookie"]
                assert all("HttpOnly" in one and "SameSite=Strict" in one for one in both)
                assert ("Strict-Transport-Security" in page.headers) is ("Secure" in both[0])
                marked.append(all("Secure" in one for one in both))
            return marked

    assert run(go(serve_proxies="127.0.0.1")) == [True, False, False]
    assert run(go()) == [False, False, False]  # anybody can say so


# -- headers ---------------------------------------------------------------------------------------


def test_every_answer_carries_the_headers_that_keep_browsers_careful() -> None:
    async def go() -> None:
        async with serving(pages=True) as door:

            async def check(path: str) -> None:
                headers = (await door.ask("GET", path)).headers
                assert "default-src 'none'" in headers["Content-Security-Policy"]
                assert "unsafe" not in headers["Content-Security-Policy"]
                assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
                assert headers["X-Content-Type-Options"] == "nosniff"
                assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
                assert headers["Server"] == "anabranch"
                assert headers["Cache-Control"] == "no-store"
                assert headers["X-Frame-Options"] == "DENY"
                assert headers["Referrer-Policy"] in ("no-referrer", "same-origin")
                assert "Access-Control-Allow-Origin" not in headers

            assert (
                await wrong_answers(
                    ["/runs", "/nothing", "/runs/none", "//runs", "//login", "//", "//nowhere"],
                    check,
                )
                == []
            )

    run(go())
