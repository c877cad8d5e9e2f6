"""Guessing and addresses: who shows wrong tokens is not heard, and nobody else pays for it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from anabranch.surfaces.http.guard.origins import OriginPolicy, network_of

from ..access import START, Door, serving
from ..support import run

NEEDED: Any = {"require_tokens": "yes"}


def wrong(n: int) -> str:
    return f"anb_{n:012}_{'0' * 52}"


def near(token: str, n: int) -> str:
    """A guess at the secret of a token whose id is known."""
    return f"{token.rpartition('_')[0]}_{n:052}"


async def guess(door: Door, times: int = 10, **headers: str) -> None:
    for n in range(times):
        await door.ask("GET", "/runs", wrong(n), **headers)


# -- guessing --------------------------------------------------------------------------------------


def test_whoever_guesses_is_not_heard_for_a_while() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            for n in range(10):
                assert (await door.ask("GET", "/runs", wrong(n))).code == "token_wrong"
            locked = await door.ask("GET", "/runs", wrong(10))
            assert (locked.status, locked.code) == (429, "too_many_guesses")
            assert 0 < int(locked.headers["Retry-After"]) <= 60
            door.later(60_000)
            assert (await door.ask("GET", "/runs", wrong(11))).code == "token_wrong"

    run(go())


def test_a_guesser_does_not_lock_out_the_others_at_the_same_address() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            ann, bob = door.token("read"), door.token("read", name="bob")
            for n in range(30):  # and it goes on: the lock never ends
                await door.ask("GET", "/runs", wrong(n))
            for token in (ann, bob, door.token("read", name="new")):
                assert (await door.ask("GET", "/runs", token)).status == 200
            assert (await door.ask("GET", "/runs", wrong(31))).status == 429

    run(go())


def test_the_secret_of_a_known_id_is_guessed_a_few_times_at_most() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            ann, bob = door.token("read"), door.token("read", name="bob")
            looked_at = []
            real = door.server.access.check

            def check(text: str) -> Any:
                looked_at.append(text)
                return real(text)

            door.server.access.check = check  # type: ignore[method-assign]
            for n in range(50):
                await door.ask("GET", "/runs", near(ann, n))
            assert len(looked_at) == 10
            # Whoever knows an id and shares the address can keep out that one, and no other.
            assert (await door.ask("GET", "/runs", ann)).status == 429
            assert (await door.ask("GET", "/runs", bob)).status == 200
            door.later(60_000)
            assert (await door.ask("GET", "/runs", ann)).status == 200

    run(go())


def test_a_locked_address_is_not_told_which_ids_exist() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            ann = door.token("read")
            await guess(door)
            known = await door.ask("GET", "/runs", near(ann, 1))
            unknown = await door.ask("GET", "/runs", wrong(99))
            assert (known.status, known.json) == (429, unknown.json)

    run(go())


def test_many_guessers_take_no_more_memory_than_a_few() -> None:
    async def go() -> None:
        async with serving(serve_proxies="127.0.0.1", **NEEDED) as door:
            door.server.keeper.guesses._most = 20
            for n in range(60):
                await door.ask("GET", "/runs", wrong(n), X_Forwarded_For=f"192.0.2.{n}")
            assert len(door.server.keeper.guesses) == 20

    run(go())


def test_a_wrong_token_is_logged_without_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            await door.ask("GET", "/runs", near(door.token("read"), 7))

    with caplog.at_level(logging.WARNING):
        run(go())
    assert "127.0.0.1" in caplog.text
    assert f"{7:052}" not in caplog.text


# -- proxies ---------------------------------------------------------------------------------------


def test_behind_a_proxy_that_is_believed_the_address_it_names_counts() -> None:
    async def go() -> None:
        async with serving(serve_proxies="127.0.0.1 192.0.2.9", **NEEDED) as door:
            good = door.token("admin")
            for n in range(10):
                await door.ask("GET", "/runs", wrong(n), X_Forwarded_For=f"10.0.0.{n}, 192.0.2.1")
            locked = await door.ask("GET", "/runs", wrong(11), X_Forwarded_For="192.0.2.1")
            assert locked.code == "too_many_guesses"
            # What comes through a second proxy that is believed: the one before it counts.
            other = {"X_Forwarded_For": "192.0.2.1, 192.0.2.2, 192.0.2.9"}
            assert (await door.ask("GET", "/runs", wrong(12), **other)).code == "token_wrong"
            assert (await door.ask("POST", "/runs", good, START, **other)).status == 201
            (line,) = (await door.ask("GET", "/audit", good, **other)).json["items"]
            assert line["address"] == "192.0.2.2"

    run(go())


@pytest.mark.parametrize("said", ["nonsense", "<script>", "1.2.3.4:5", "", "unknown"])
def test_what_a_proxy_says_that_is_no_address_is_not_taken_for_one(said: str) -> None:
    async def go() -> None:
        async with serving(serve_proxies="127.0.0.1", **NEEDED) as door:
            admin = door.token("admin")
            await door.ask("POST", "/runs", admin, START, X_Forwarded_For=said)
            (line,) = (await door.ask("GET", "/audit", admin)).json["items"]
            assert line["address"] == "127.0.0.1"

    run(go())


def test_a_header_that_is_sent_twice_is_read_to_its_end() -> None:
    async def go() -> None:
        async with serving(serve_proxies="127.0.0.1", **NEEDED) as door:
            admin = door.token("admin")
            url = f"{door.server.url}/api/v1/runs"
            headers = [
                ("Authorization", f"Bearer {admin}"),
                ("X-Forwarded-For", "10.0.0.1"),  # by the client
                ("X-Forwarded-For", "192.0.2.7"),  # by the proxy
            ]
            async with door.session.post(url, json=START, headers=headers) as reply:
                assert reply.status == 201
            (line,) = (await door.ask("GET", "/audit", admin)).json["items"]
            assert line["address"] == "192.0.2.7"

    run(go())


def test_an_address_that_nobody_believes_cannot_be_claimed() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            for n in range(10):
                await door.ask("GET", "/runs", wrong(n), X_Forwarded_For=f"10.0.0.{n}")
            reply = await door.ask("GET", "/runs", wrong(11), X_Forwarded_For="10.0.0.11")
            assert reply.status == 429

    run(go())


FORWARDED = ("X_Forwarded_For", "X_Forwarded_Host", "X_Real_IP", "Forwarded", "Via")


@pytest.mark.parametrize("header", FORWARDED)
def test_nobody_who_comes_through_a_proxy_is_taken_for_a_local_user(header: str) -> None:
    """Somebody put a proxy before a server that requires no token: it stays closed."""

    async def go() -> None:
        async with serving() as door:
            given = {header: "192.0.2.1"}
            reply = await door.ask("GET", "/runs", **given)
            assert (reply.status, reply.code) == (401, "token_missing")
            assert "proxy" in reply.json["detail"]
            assert (await door.ask("POST", "/runs", body=START, **given)).status == 401
            assert (await door.ask("GET", "/runs", door.token("read"), **given)).status == 200

    run(go())


def test_whoever_names_a_proxy_asks_for_tokens() -> None:
    assert OriginPolicy().open
    assert not OriginPolicy(proxies=frozenset({"127.0.0.1"})).open
    assert not OriginPolicy(loopback=False).open

    async def go() -> None:
        async with serving(serve_proxies="127.0.0.1") as door:
            assert (await door.ask("GET", "/runs")).code == "token_missing"

    run(go())


def test_one_guesser_is_one_address_or_one_network_of_ipv6() -> None:
    assert network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("2001:db8:1:2::1") == network_of("2001:db8:1:2:ffff::9")
    assert network_of("2001:db8:1:2::1") != network_of("2001:db8:1:3::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
