"""Tokens and scopes: who may ask for what, and what everybody else is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.operations.access.tokens import SCOPES
from anabranch.settings import Settings
from anabranch.surfaces.http.serve import Server

from ...tables import wrong_answers
from ..access import START, serving
from ..support import run

NEEDED: Any = {"require_tokens": "yes"}


# -- with and without tokens -----------------------------------------------------------------------


def test_on_a_loopback_address_no_token_is_asked_for() -> None:
    async def go() -> None:
        async with serving() as door:
            me = await door.ask("GET", "/me", X_Actor="ann")
            assert me.json == {"actor": "ann", "scopes": list(SCOPES), "token": "", "pools": []}
            assert (await door.ask("GET", "/me")).json["actor"] == "local"
            assert (await door.ask("POST", "/runs", body=START)).status == 201

    run(go())


def test_a_token_that_is_shown_counts_even_where_none_is_asked_for() -> None:
    async def go() -> None:
        async with serving() as door:
            token = door.token("read")
            assert (await door.ask("GET", "/me", token)).json["actor"] == "ann"
            assert (await door.ask("POST", "/runs", token, START)).code == "scope"
            assert (await door.ask("GET", "/me", "anb_nonsense")).status == 401

    run(go())


def test_an_address_that_others_can_reach_needs_an_admin_token_first() -> None:
    async def refused() -> None:
        settings = Settings(store=":memory:", serve_port=0, serve_host="0.0.0.0")
        async with Server(settings, mounts=()):
            raise AssertionError("it listens")

    with pytest.raises(InputError, match="anabranch token create --scope admin") as caught:
        run(refused())
    assert caught.value.code == "no_tokens"


def test_a_server_that_others_can_reach_asks_for_a_token(tmp_path: Any) -> None:
    async def go() -> None:
        store = str(tmp_path / "s.db")
        async with serving(store=store) as door:
            admin = door.token("admin")
        async with serving(store=store, serve_host="0.0.0.0") as door:
            assert (await door.ask("GET", "/runs")).code == "token_missing"
            assert (await door.ask("GET", "/runs", X_Actor="ann")).code == "token_missing"
            assert (await door.ask("GET", "/runs", admin)).status == 200

    run(go())


# -- bad tokens ------------------------------------------------------------------------------------


def test_wrong_expired_and_revoked_tokens_are_refused_each_with_its_reason() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            good, short, revoked = (
                door.token("read"),
                door.token("read", days=1),
                door.token("read"),
            )
            head, token_id, secret = good.split("_")
            for wrong in (
                "",
                "x",
                secret,
                f"{head}_{token_id}",
                f"{head}_{token_id}_{secret[:-1]}",
                f"{head}_{token_id}_{'0' * 52}",
                f"{head}_{'0' * 12}_{secret}",
                good.upper(),
            ):
                reply = await door.ask("GET", "/runs", Authorization=f"Bearer {wrong}")
                assert (reply.status, reply.code) == (401, "token_wrong"), wrong
            assert (await door.ask("GET", "/runs", Authorization=good)).code == "token_form"
            door.server.access.revoke(revoked.split("_")[1])
            assert (await door.ask("GET", "/runs", revoked)).code == "token_revoked"
            assert (await door.ask("GET", "/runs", short)).status == 200
            door.later(86_400_000)
            assert (await door.ask("GET", "/runs", short)).code == "token_expired"
            assert (await door.ask("GET", "/runs", good)).status == 200

    run(go())


# -- scopes ----------------------------------------------------------------------------------------


def test_too_few_scopes_change_nothing_and_are_named() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            begun = await door.ask("POST", "/runs", door.token("operate"), START)
            run_id = begun.json["run"]
            reply = await door.ask("POST", f"/runs/{run_id}/cancel", door.token("decide"), {})
            assert "'operate'" in reply.json["detail"]
            assert "decide, read" in reply.json["detail"]
            shown = await door.ask("GET", f"/runs/{run_id}", door.token("read"))
            assert shown.json["status"] == "waiting"

    run(go())


def test_a_gate_is_answered_in_the_name_of_the_token() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            begun = await door.ask("POST", "/runs", door.token("operate"), START)
            path = f"/runs/{begun.json['run']}/gates/ask/decide"
            body = {"verdict": "fulfil"}
            stranger = door.token("decide", name="eve")
            refused = await door.ask("POST", path, stranger, body)
            assert refused.code == "not_allowed"
            assert refused.json["hint"] == "use a token of one of these names"
            assert (await door.ask("POST", path, stranger, body, X_Actor="ann")).code == "actor"
            ann = door.token("decide", name="ann")
            assert (await door.ask("POST", path, ann, body)).json["status"] == "completed"

    run(go())


# -- tokens over HTTP ------------------------------------------------------------------------------


def test_a_token_is_made_shown_once_listed_without_secret_and_revoked() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            admin = door.token("admin", name="root")
            body = {"name": "deploy", "scopes": ["read", "operate"], "lifetime_days": 2}
            made = await door.ask("POST", "/tokens", admin, body)
            assert made.status == 201
            new = made.json["token"]
            assert (await door.ask("GET", "/me", new)).json["actor"] == "deploy"
            listed = await door.ask("GET", "/tokens", admin)
            assert [one["name"] for one in listed.json["items"]] == ["root", "deploy"]
            assert new.split("_")[2] not in str(listed.json)
            assert "digest" not in str(listed.json)
            gone = await door.ask("DELETE", f"/tokens/{made.json['id']}", admin)
            assert gone.json["state"] == "revoked"
            assert (await door.ask("GET", "/me", new)).code == "token_revoked"
            assert (await door.ask("DELETE", "/tokens/nobody", admin)).status == 404

    run(go())


def test_a_token_that_makes_no_sense_is_not_made() -> None:
    async def go() -> None:
        async with serving() as door:

            async def check(body: dict[str, Any], code: str) -> None:
                reply = await door.ask("POST", "/tokens", body=body)
                assert (reply.status, reply.code) == (422, code)
                assert (await door.ask("GET", "/tokens")).json["items"] == []

            assert (
                await wrong_answers(
                    [
                        ({"name": "", "scopes": ["read"]}, "token_name"),
                        ({"name": "a\nb", "scopes": ["read"]}, "token_name"),
                        ({"name": "a" * 101, "scopes": ["read"]}, "token_name"),
                        ({"name": "a", "scopes": []}, "token_scope"),
                        ({"name": "a", "scopes": ["write"]}, "token_scope"),
                        ({"name": "a", "scopes": ["read"], "lifetime_days": 0}, "token_lifetime"),
                        ({"name": "a", "scopes": ["read"], "lifetime_days": 1e9}, "token_lifetime"),
                        ({"name": "a", "scopes": ["read"], "secret": "mine"}, "schema"),
                        ({"name": "a", "scopes": "read"}, "schema"),
                    ],
                    check,
                )
                == []
            )

    run(go())


def test_the_use_of_a_token_is_noted(tmp_path: Any) -> None:
    async def go() -> None:
        async with serving(store=str(tmp_path / "s.db"), **NEEDED) as door:
            token = door.token("read")
            await door.ask("GET", "/runs", token)
            while door.server.access.tokens()[0].last_used_at is None:
                await asyncio.sleep(0)

    run(go())


def test_a_token_made_beside_a_running_server_opens_it_at_once(tmp_path: Any) -> None:
    async def go() -> None:
        from anabranch.operations.access.tokens import AccessControl
        from anabranch.store.sqlite.store import SqliteStore

        store = tmp_path / "s.db"
        async with serving(store=str(store), **NEEDED) as door:
            beside = SqliteStore(store)
            try:
                access = AccessControl(beside, door.server.keeper.now)
                token, text = access.create("ann", ["read"])
                assert (await door.ask("GET", "/runs", text)).status == 200
                access.revoke(token.id)
                assert (await door.ask("GET", "/runs", text)).code == "token_revoked"
            finally:
                beside.close()

    run(go())
