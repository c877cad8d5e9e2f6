"""The keychain: every kind of entry, tokens that renew themselves, errors without values."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anabranch import files
from anabranch.clock import ManualClock
from anabranch.expressions.jinja.jinja import Jinja
from anabranch.net.net import Net, Step
from anabranch.work.kinds.http.performer import Http
from anabranch.work.secrets import keyring
from anabranch.work.secrets.keychain import Keychain, KeychainError, absent_entries
from anabranch.work.secrets.redaction import Keyring, Redactor
from hangs import HANG_SECONDS

from ..support import run, server, task

ENVIRONMENT = {"USER_NAME": "ann", "DB_PASSWORD": "s3cret-pw", "API_TOKEN": "tok-abcdef"}
JINJA = Jinja()


def render(entry: Any, keychain: Mapping[str, Any]) -> Any:
    return JINJA.tree(entry).evaluate({"keychain": keychain, "env": ENVIRONMENT})


async def resolved(*entries: dict[str, Any], redactor: Redactor | None = None) -> Keyring:
    keychain = Keychain(redactor or Redactor(), environment=ENVIRONMENT)
    try:
        return await keychain.resolve(entries, render)
    finally:
        await keychain.close()


def plain(value: Any) -> Any:
    return (
        {key: plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value
    )


def ring(*entries: dict[str, Any]) -> Any:
    return plain(run(resolved(*entries)))


# -- entries ---------------------------------------------------------------------------------


def test_entries_from_the_environment() -> None:
    one = {"name": "pw", "kind": "env", "variable": "DB_PASSWORD"}
    many = {"name": "db", "kind": "env", "map": {"user": "USER_NAME", "password": "DB_PASSWORD"}}
    assert ring(one, many) == {"pw": "s3cret-pw", "db": {"user": "ann", "password": "s3cret-pw"}}


def test_entries_that_are_written_down() -> None:
    fixed = {"name": "fixed", "kind": "static", "map": {"region": "eu", "key": "abcdef", "n": 5}}
    bearer = {"name": "api", "kind": "bearer", "token": "{{ env.API_TOKEN }}"}
    one = {"name": "one", "kind": "static", "value": 12345}
    assert ring(fixed, bearer, one) == {
        "fixed": {"region": "eu", "key": "abcdef", "n": "5"},
        "api": {"type": "bearer", "token": "tok-abcdef"},
        "one": "12345",
    }


def test_entries_from_files(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("from a file\n")
    (tmp_path / "all.json").write_text('{"user": "ann", "password": "pw-123456"}')
    text = {"name": "text", "kind": "file", "path": str(tmp_path / "pw")}
    folder = {"name": "folder", "kind": "file", "path": str(tmp_path), "map": {"password": "pw"}}
    json = {"name": "json", "kind": "file", "path": str(tmp_path / "all.json"), "format": "json"}
    assert ring(text, folder, json, {**json, "name": "part", "map": {"p": "password"}}) == {
        "text": "from a file",
        "folder": {"password": "from a file"},
        "json": {"user": "ann", "password": "pw-123456"},
        "part": {"p": "pw-123456"},
    }


def test_entries_of_a_manager(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("from a file")
    env = {"name": "a", "kind": "secret_manager", "provider": "env", "map": {"p": "DB_PASSWORD"}}
    file = {
        "name": "b",
        "kind": "secret_manager",
        "provider": "file",
        "root": str(tmp_path),
        "map": {"p": "pw"},
    }
    fields = {
        "name": "c",
        "kind": "postgres_credential",
        "host": "h",
        "port": 5432,
        "password": "pw-123",
    }
    assert ring(env, file, fields) == {
        "a": {"p": "s3cret-pw"},
        "b": {"p": "from a file"},
        "c": {"host": "h", "port": 5432, "password": "pw-123"},
    }


def test_an_entry_may_use_those_before_it() -> None:
    first = {"name": "pw", "kind": "env", "variable": "DB_PASSWORD"}
    second = {"name": "dsn", "kind": "static", "value": "postgresql://u:{{ keychain.pw }}@h/d"}
    assert ring(first, second)["dsn"] == "postgresql://u:s3cret-pw@h/d"


def test_what_was_resolved_is_known_to_the_redactor() -> None:
    redactor = Redactor()
    fields = {"host": "db.internal", "user": "postgres", "password": "s3cret-pw", "pin": 123456}
    run(resolved({"name": "db", "kind": "static", "map": fields}, redactor=redactor))
    assert redactor.text("postgres@db.internal s3cret-pw 123456") == "postgres@db.internal *** ***"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "env"}, "an entry of the keychain has no name"),
        ({"name": "a", "kind": "carrier_pigeon"}, "keychain.a: kind 'carrier_pigeon' is not known"),
        ({"name": "a", "kind": "env"}, "keychain.a: it needs variable, or map"),
        ({"name": "a", "kind": "env", "variable": "NOPE"}, "the environment has no variable NOPE"),
        ({"name": "a", "kind": "static"}, "keychain.a: it needs map, or value"),
        ({"name": "a", "kind": "bearer"}, "keychain.a: token must be text"),
        (
            {"name": "a", "kind": "file", "path": "/nowhere"},
            "/nowhere cannot be read: No such file",
        ),
        (
            {"name": "a", "kind": "file", "path": __file__, "format": "json"},
            f"{__file__} is not JSON",
        ),
        (
            {"name": "a", "kind": "secret_manager", "provider": "gcp"},
            "provider 'gcp' cannot be reached",
        ),
        ({"name": "a", "kind": "oauth2"}, "keychain.a: no token: an http task needs url"),
    ],
)
def test_entries_that_cannot_be_resolved(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(KeychainError) as raised:
        run(resolved(entry))["a"]
    assert words in raised.value.message
    assert (raised.value.kind, raised.value.retryable) == ("config", False)


# -- tokens ----------------------------------------------------------------------------------


class Idp:
    """A token server that counts."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], str]] = []
        self.status = 200
        self.expires_in: Any = 600
        self.pause = 0.0

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        self.requests.append((dict(request.headers), await request.text()))
        await asyncio.sleep(self.pause)
        if self.status != 200:
            return web.json_response(
                {"error": "no", "echo": self.requests[-1][1]}, status=self.status
            )
        token = f"token-{len(self.requests)}"
        return web.json_response(
            {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in}
        )


class Bench:
    """A keychain with one OAuth2 entry, a clock to turn, and the server behind it."""

    def __init__(self, address: str, **more: Any) -> None:
        self.clock = ManualClock(1_000_000)
        self.redactor = Redactor()
        self.keychain = Keychain(self.redactor, clock=self.clock)
        data = {
            "grant_type": "client_credentials",
            "client_id": "me",
            "client_secret": "cl13nt-s3cret",
        }
        self.entry = {
            "name": "idp",
            "kind": "oauth2",
            "endpoint": f"{address}/token",
            "data": data,
            **more,
        }

    async def token(self) -> str:
        ring = await self.keychain.resolve([self.entry], render)
        token: str = ring["idp"]["token"]
        return token

    def pass_seconds(self, seconds: float) -> None:
        self.clock.advance_to(self.clock.now() + int(seconds * 1000))


def test_a_token_is_fetched_once_and_renewed_before_it_expires() -> None:
    async def scenario() -> None:
        idp = Idp()
        async with server(idp) as address:
            bench = Bench(address)
            assert [await bench.token() for _ in range(3)] == ["token-1"] * 3
            bench.pass_seconds(539)
            assert await bench.token() == "token-1"
            bench.pass_seconds(2)  # a minute before its end
            assert await bench.token() == "token-2"
            assert "grant_type=client_credentials" in idp.requests[0][1]
            assert idp.requests[0][0]["Content-Type"] == "application/x-www-form-urlencoded"
            assert bench.redactor.text("token-1 token-2 cl13nt-s3cret me") == "*** *** *** me"
            await bench.keychain.close()

    run(scenario())


def test_many_who_need_a_token_share_one_refresh() -> None:
    async def scenario() -> None:
        idp = Idp()
        idp.pause = 0.1
        async with server(idp) as address:
            bench = Bench(address)
            tokens = await asyncio.gather(*(bench.token() for _ in range(20)))
            assert (set(tokens), len(idp.requests)) == ({"token-1"}, 1)
            bench.pass_seconds(595)  # still good: nobody waits but the one that renews
            tokens = await asyncio.gather(*(bench.token() for _ in range(20)))
            assert (sorted(set(tokens)), len(idp.requests)) == (["token-1", "token-2"], 2)
            bench.pass_seconds(700)  # over: all wait for the same one
            first = asyncio.ensure_future(bench.token())
            others = [asyncio.ensure_future(bench.token()) for _ in range(5)]
            await asyncio.sleep(0.02)
            first.cancel()
            assert await asyncio.gather(*others) == ["token-3"] * 5
            await bench.keychain.close()

    run(scenario())


def test_a_failed_renewal_does_no_harm_while_the_old_token_is_good() -> None:
    async def scenario() -> None:
        idp = Idp()
        async with server(idp) as address:
            bench = Bench(address)
            await bench.token()
            idp.status = 503
            bench.pass_seconds(550)
            assert [await bench.token() for _ in range(5)] == ["token-1"] * 5
            assert len(idp.requests) == 2  # it is asked again after a while, not every time
            bench.pass_seconds(6)
            await bench.token()
            assert len(idp.requests) == 3
            bench.pass_seconds(60)
            with pytest.raises(KeychainError) as raised:
                await bench.token()
            assert (raised.value.kind, raised.value.retryable) == ("server_error", True)
            assert "cl13nt" not in raised.value.message
            assert raised.value.message.startswith("keychain.idp: no token: POST http://127.0.0.1:")
            await bench.keychain.close()

    run(scenario())


def test_refused_credentials_are_final() -> None:
    async def scenario() -> KeychainError:
        idp = Idp()
        idp.status = 401
        async with server(idp) as address:
            bench = Bench(address)
            with pytest.raises(KeychainError) as raised:
                await bench.token()
            await bench.keychain.close()
            return raised.value

    error = run(scenario())
    assert (error.kind, error.retryable) == ("auth", False)


def test_a_token_without_renewal_is_kept() -> None:
    async def scenario() -> None:
        async with server(Idp()) as address:
            bench = Bench(address, auto_renew=False)
            await bench.token()
            bench.pass_seconds(10_000)
            assert await bench.token() == "token-1"
            await bench.keychain.close()

    run(scenario())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (web.json_response({"expires_in": 5}), "has no access_token"),
        (web.json_response([1]), "is not JSON"),
        (web.Response(text="hello"), "is not JSON"),
        (
            web.json_response({"access_token": "tokxyz", "expires_in": -5}),
            "expires_in must be a time",
        ),
    ],
)
def test_answers_that_are_no_token(body: web.Response, words: str) -> None:
    async def handler(_: web.BaseRequest) -> web.Response:
        return web.Response(text=body.text, content_type=body.content_type)

    async def scenario() -> str:
        async with server(handler) as address:
            bench = Bench(address)
            with pytest.raises(KeychainError) as raised:
                await bench.token()
            await bench.keychain.close()
            return raised.value.message

    assert words in run(scenario())


def test_the_short_form_and_json_bodies() -> None:
    async def scenario() -> None:
        idp = Idp()
        async with server(idp) as address:
            short = {
                "name": "a",
                "kind": "oauth2",
                "token_url": address,
                "client_id": "me",
                "client_secret": "cs-1234",
                "scope": "read",
            }
            json = {
                "name": "b",
                "kind": "oauth2",
                "endpoint": address,
                "headers": {"Content-Type": "application/json"},
                "data": {"client_id": "me"},
            }
            keychain = Keychain(Redactor())
            await keychain.resolve([short, json], render)
            bodies = [body for _, body in idp.requests]
            assert (
                bodies[0]
                == "grant_type=client_credentials&client_id=me&client_secret=cs-1234&scope=read"
            )
            assert bodies[1] == '{"client_id":"me"}'
            await keychain.close()

    run(scenario())


def test_an_entry_can_be_the_auth_of_a_call() -> None:
    seen: list[str] = []

    async def handler(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response()

    async def scenario() -> None:
        idp = Idp()
        async with server(idp) as tokens, server(handler) as api:
            bench = Bench(tokens)
            keyring = await bench.keychain.resolve([bench.entry], render)
            auth = JINJA.value("{{ keychain.idp }}").evaluate({"keychain": keyring})
            http = Http()
            await http.perform(task("http", url=api, auth=auth))
            await http.close()
            await bench.keychain.close()

    run(scenario())
    assert seen == ["Bearer token-1"]


def test_why_an_entry_is_missing_tells_no_other_secret() -> None:
    first = {"name": "pw", "kind": "env", "variable": "DB_PASSWORD"}
    second = {"name": "gone", "kind": "env", "variable": "{{ keychain.pw }}"}
    ((name, why),) = absent_entries([first, second], render, environment=ENVIRONMENT)
    assert (name, "s3cret-pw" in why) == ("gone", False)
    assert "the environment has no variable" in why


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "db", "kind": "credential"},
        {"name": "db", "kind": "secret_manager", "provider": "store"},
        {"name": "db", "kind": "secret_manager", "provider": "gcp", "map": {"password": "x/1"}},
        {"name": "db", "kind": "postgres_credential", "credential": "{{ 'warehouse' }}"},
        {"name": "db", "kind": "bearer", "token": "{{ keychain.warehouse.token }}"},
    ],
    ids=["by its name", "store", "gcp", "named", "in a template"],
)
def test_what_stands_for_a_credential_is_taken_to_be_there(entry: dict[str, Any]) -> None:
    """Whoever does the work looks for it; also what is made of it may be had then."""
    made_of_it = {"name": "token", "kind": "bearer", "token": "{{ keychain.db.password }}"}
    lost = {"name": "gone", "kind": "env", "variable": "NOBODY_SET_THIS"}
    absent = absent_entries([entry, made_of_it, lost], render, environment=ENVIRONMENT)
    assert [name for name, _ in absent] == ["gone"]


def test_what_is_made_of_a_missing_entry_is_missing_too() -> None:
    lost = {"name": "gone", "kind": "env", "variable": "NOBODY_SET_THIS"}
    made_of_it = {"name": "token", "kind": "bearer", "token": "{{ keychain.gone }}"}
    absent = absent_entries([lost, made_of_it], render, environment=ENVIRONMENT)
    assert [name for name, _ in absent] == ["gone", "token"]


def test_a_keychain_file_without_an_answer_is_neither_here_nor_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a dead mount does it; whoever begins or opens a run goes on after the limit."""
    released = threading.Event()

    def never(*_given: Any, **_more: Any) -> bytes:
        released.wait(HANG_SECONDS)
        return b""

    monkeypatch.setattr(files, "read_limited", never)
    monkeypatch.setattr(keyring, "LOOK_SECONDS", 0.01)
    dead = {"name": "pw", "kind": "file", "path": "/dead/file"}
    net = Net("n", "test", "n", steps={"a": Step("a")}, entry="a", keychain=(dead,))
    secrets = keyring.Secrets()
    asyncio.run(secrets.look(net, {}))
    released.set()
    assert secrets.absent(net, {}) == []
    assert secrets.not_seen(net, {}) == ["pw"]
