"""Scripts at an address, transfers and NATS tasks find credentials by name as other tasks do."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anabranch import Engine
from anabranch.app import RunResult
from anabranch.operations.access.credentials import CredentialDraft
from anabranch.settings import Settings

from ..support import run, server

SECRET = "hunter2-hunter3-hunter4"
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\n"


async def done(body: str, *kept: CredentialDraft, **given: Any) -> tuple[RunResult, str]:
    """The run, and everything that anybody is shown of it."""
    async with Engine(":memory:", settings=Settings(poll_seconds=0.05)) as engine:
        for one in kept:
            engine.credentials.add(one)
        result = await engine.wait(await engine.start(HEAD + body, given, allow_extra_input=True))
        events = [event async for event in engine.events(result.run)]
        return result, repr((result, events, engine.read.show(result.run)))


def called(
    body: str, *kept: CredentialDraft, text: str = "select 7 as n", **given: Any
) -> tuple[RunResult, list[str]]:
    """The run, and the `Authorization` of each call that it made."""
    seen: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        if request.path == "/rows":
            return web.json_response([{"id": 1, "name": "Ada"}])
        return web.Response(text=text)

    async def scenario() -> RunResult:
        async with server(answer) as address:
            result, shown = await done(body, *kept, url=address, **given)
            assert SECRET not in shown
            return result

    return run(scenario()), seen


def api(kind: str = "http", data: Any = None) -> CredentialDraft:
    return CredentialDraft(name="api", type=kind, data=data or {"token": SECRET})


# -- scripts ---------------------------------------------------------------------------------

SCRIPT = 'script: {{uri: "{{{{ workload.url }}}}/s", source: {{type: http, auth: {auth}}}}}'
FETCH = (
    'workflow:\n  - step: load\n    tool: {{kind: sqlite, database: ":memory:", ' + SCRIPT + "}}\n"
)
KEYCHAIN = "keychain: [{name: own, kind: bearer, token: hunter2-hunter3-hunter4}]\n"


@pytest.mark.parametrize(
    "auth",
    [
        "api",
        '"{{ workload.which }}"',
        "{type: bearer, credential: api}",
        '"{{ keychain.api }}"',
        "own",
    ],
)
def test_the_credential_of_a_script_is_found_by_every_spelling_of_its_name(auth: str) -> None:
    result, seen = called(KEYCHAIN + FETCH.format(auth=auth), api(), which="api")
    assert result.status == "completed", result.problem
    assert seen == [f"Bearer {SECRET}"]


@pytest.mark.parametrize("tool", ["kind: python", "kind: script"])
def test_scripts_of_every_kind_look_their_credential_up(tool: str) -> None:
    body = f"workflow:\n  - step: load\n    tool: {{{tool}, {SCRIPT.format(auth='api')}}}\n"
    result, seen = called(body, api("secret", SECRET), text="result = 1")
    assert result.status == "completed", result.problem
    assert seen == [f"Bearer {SECRET}"]


@pytest.mark.parametrize("auth", ["apo", '"{{ workload.which }}"'])
def test_a_name_that_nobody_knows_fails_by_name_and_is_not_sent_as_a_token(auth: str) -> None:
    result, seen = called(FETCH.format(auth=auth), api(), which="apo")
    assert result.status == "failed"
    assert "apo" in str(result.problem)
    assert seen == []


@pytest.mark.parametrize(
    "script",
    [
        '"{{ workload.script }}"',
        '{uri: "{{ workload.url }}/s", source: "{{ workload.script.source }}"}',
    ],
)
def test_a_name_in_a_source_that_is_worked_out_is_not_sent_as_a_token(script: str) -> None:
    body = f"workflow:\n  - step: s\n    tool: {{kind: sqlite, database: x, script: {script}}}\n"
    given = {"uri": "http://127.0.0.1:1/s", "source": {"type": "http", "auth": "api"}}
    result, seen = called(body, api(), script=given)
    assert result.status == "failed"
    assert "script.source.auth is a text that was not looked up" in str(result.problem)
    assert seen == []


# -- transfers -------------------------------------------------------------------------------


def test_both_sides_of_a_transfer_find_their_credentials(tmp_path: Path) -> None:
    path = str(tmp_path / "to.db")
    with sqlite3.connect(path) as database:
        database.execute("create table people (id integer primary key, name text)")
    body = """workflow:
  - step: move
    tool:
      kind: transfer
      source: {tool: http, url: "{{ workload.url }}/rows", auth: api}
      target: {tool: sqlite, auth: "{{ workload.to }}", table: people}
"""
    place = CredentialDraft(name="place", type="sqlite", data=path)
    result, seen = called(body, api(), place, to="place")
    assert result.status == "completed", result.problem
    assert seen == [f"Bearer {SECRET}"]
    with sqlite3.connect(path) as database:
        assert database.execute("select * from people").fetchall() == [(1, "Ada")]
    database.close()


# -- nats ------------------------------------------------------------------------------------


@asynccontextmanager
async def listener(seen: list[Mapping[str, Any]]) -> AsyncIterator[str]:
    """Notes how somebody logs in, and refuses it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {}\r\n")
        line = await reader.readline()
        seen.append(json.loads(line.removeprefix(b"CONNECT ")))
        writer.write(f"-ERR 'Authorization Violation of {SECRET}'\r\n".encode())
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("kind", "data", "login"),
    [
        ("nats", "nats://me:hunter2-hunter3-hunter4@{at}", {"user": "me", "pass": SECRET}),
        ("nats", "nats://hunter2-hunter3-hunter4@{at}", {"auth_token": SECRET}),
        (
            "nats",
            {"url": "nats://{at}", "user": "me", "password": SECRET},
            {"user": "me", "pass": SECRET},
        ),
        ("secret", SECRET, {"auth_token": SECRET}),
    ],
)
def test_a_nats_task_logs_in_with_the_credential_it_names(
    kind: str, data: Any, login: Mapping[str, str]
) -> None:
    seen: list[Mapping[str, Any]] = []
    body = """workflow:
  - step: tell
    tool: {kind: nats, auth: bus, operation: publish, subject: a.b, data: 1%s}
"""

    async def scenario() -> None:
        async with listener(seen) as at:
            value = json.loads(json.dumps(data).replace("{at}", at))
            url = f', url: "nats://{at}"' if kind == "secret" else ""
            bus = CredentialDraft(name="bus", type=kind, data=value)
            result, shown = await done(body % url, bus)
            assert result.status == "failed"
            assert SECRET not in shown

    run(scenario())
    assert [{name: each.get(name) for name in login} for each in seen] == [login]


# -- a template that gives the secret itself -----------------------------------------------------

#: `api` is a credential; `own` an entry of the definition.
CALLED = """workflow:
  - step: s
    tool: {{kind: http, url: "{{{{ workload.url }}}}", auth: {auth}}}
"""
SECRETS = [
    '"{{ keychain.api.token }}"',
    "\"{{ keychain['api'].token }}\"",
    '"{{ keychain[workload.which].token }}"',
    '"{{ keychain.own.token }}"',
    '"Bearer {{ keychain.own.token }}"',
    '"{{ keychain.own.token if workload.which else workload.which }}"',
    "\"{{ keychain.own.token | default('api') }}\"",
    '{type: bearer, token: "{{ keychain.own.token }}"}',
    '{bearer: "{{ keychain.own.token }}"}',
]
#: A name comes out of these, also where they look at the keychain.
NAMES = [
    '"{{ workload.which }}"',
    '"a{{ workload.rest }}"',
    '"{{ workload.which if workload.which else keychain.own.token }}"',
    "\"{{ 'api' if workload.which else keychain.own.token }}\"",
    '"{{ keychain.named.credential }}"',
    '"{{ workload.whole }}"',
]
GIVEN: dict[str, Any] = {
    "which": "api",
    "rest": "pi",
    "whole": {"type": "bearer", "credential": "api"},
}
OWN = """keychain:
  - {name: own, kind: bearer, token: hunter2-hunter3-hunter4}
  - {name: named, kind: static, map: {credential: api}}
"""


@pytest.mark.parametrize("auth", [*SECRETS, *NAMES])
def test_a_secret_that_a_template_gives_is_the_token_and_a_name_is_looked_up(auth: str) -> None:
    result, seen = called(OWN + CALLED.format(auth=auth), api(), **GIVEN)
    assert result.status == "completed", result.problem
    assert seen == [f"Bearer {SECRET}"]


@pytest.mark.parametrize("auth", NAMES)
def test_a_name_that_is_worked_out_and_not_kept_is_never_sent(auth: str) -> None:
    result, seen = called(OWN + CALLED.format(auth=auth), **GIVEN)
    assert "there is no credential 'api'" in str(result.problem)
    assert seen == []


@pytest.mark.parametrize("auth", ["_prev", "got", "results.got"])
def test_what_a_secrets_task_has_got_is_the_token_of_the_next_one(
    auth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_TEST", SECRET)
    body = f"""workflow:
  - step: s
    tool:
      - {{name: got, kind: secrets, provider: env, secret_name: TOKEN_OF_TEST}}
      - {{kind: http, url: "{{{{ workload.url }}}}", auth: "{{{{ {auth} }}}}"}}
"""
    result, seen = called(body)
    assert result.status == "completed", result.problem
    assert seen == [f"Bearer {SECRET}"]


@pytest.mark.parametrize("auth", ['"{{ keychain.api.token }}"', '"{{ keychain.own.token }}"'])
@pytest.mark.parametrize("kind", ["script", "python"])
def test_scripts_are_fetched_with_the_secret_that_a_template_gives(kind: str, auth: str) -> None:
    body = f"workflow:\n  - step: s\n    tool: {{kind: {kind}, {SCRIPT.format(auth=auth)}}}\n"
    result, seen = called(OWN + body, api(), text="result = 1")
    assert result.status == "completed", result.problem
    assert seen == [f"Bearer {SECRET}"]


def test_each_side_of_a_transfer_takes_the_secret_that_a_template_gives(tmp_path: Path) -> None:
    path = str(tmp_path / "to.db")
    with sqlite3.connect(path) as database:
        database.execute("create table people (id integer primary key, name text)")
    database.close()
    body = """workflow:
  - step: move
    tool:
      kind: transfer
      source: {tool: http, url: "{{ workload.url }}/rows", auth: "{{ keychain.api.token }}"}
      target: {tool: sqlite, auth: "{{ keychain.place.database }}", table: people}
"""
    place = CredentialDraft(name="place", type="sqlite", data=path)
    result, seen = called(body, api(), place)
    assert result.status == "completed", result.problem
    assert seen == [f"Bearer {SECRET}"]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_file_database_is_what_a_template_gives_and_never_has_the_name_of_a_token(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "duckdb":
        pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    ask = (
        'workflow:\n  - step: s\n    tool: {kind: %s, auth: "{{ keychain.%s }}", query: select 7}\n'
    )
    place = CredentialDraft(name="place", type=kind, data=str(tmp_path / "x.db"))
    sqlite3.connect(tmp_path / "y.db").close()

    async def scenario() -> None:
        result, _ = await done(ask % (kind, "place.database"), place)
        assert result.status == "completed", result.problem
        result, shown = await done(OWN + ask % (kind, "own.token"))
        assert "this kind takes a database there" in str(result.problem)
        assert SECRET not in shown

    run(scenario())
    assert not [each for each in tmp_path.iterdir() if SECRET in each.name]


@pytest.mark.parametrize(
    ("value", "login"),
    [("{url}", {"user": "me", "pass": SECRET}), (SECRET, {"auth_token": SECRET})],
)
def test_a_nats_task_logs_in_with_the_secret_that_a_template_gives(
    value: str, login: Mapping[str, str]
) -> None:
    seen: list[Mapping[str, Any]] = []
    tool = (
        '{kind: nats, %sauth: "{{ keychain.bus.value }}", operation: publish, subject: a, data: 1}'
    )

    async def scenario() -> None:
        async with listener(seen) as at:
            text = value.format(url=f"nats://me:{SECRET}@{at}")
            url = "" if "://" in text else f'url: "nats://{at}", '
            bus = CredentialDraft(name="bus", type="secret", data={"value": text, "more": "x"})
            result, shown = await done(f"workflow:\n  - step: s\n    tool: {tool % url}\n", bus)
            assert result.status == "failed"
            assert SECRET not in shown

    run(scenario())
    assert [{name: each.get(name) for name in login} for each in seen] == [login]


@pytest.mark.parametrize(
    ("field", "place", "said"),
    [
        ("dsn", "", "postgres 127.0.0.1:1/d"),
        ("password", 'dsn: "postgresql://me@127.0.0.1:1/d", ', "postgres 127.0.0.1:1/d"),
        ("password", "", "a postgres task needs dsn, or host and dbname"),
    ],
)
def test_a_postgres_task_takes_the_address_or_the_password_that_a_template_gives(
    field: str, place: str, said: str
) -> None:
    pytest.importorskip("psycopg")
    body = f"""workflow:
  - step: s
    tool: {{kind: postgres, {place}auth: "{{{{ keychain.pg.{field} }}}}", query: select 1}}
"""
    data = {"dsn": f"postgresql://me:{SECRET}@127.0.0.1:1/d"}
    kept = CredentialDraft(name="pg", type="postgres", data=data)

    async def scenario() -> None:
        result, shown = await done(body, kept)
        assert said in str(result.problem)
        assert SECRET not in shown

    run(scenario())


# -- the kind `secrets` --------------------------------------------------------------------------

GOT = """workflow:
  - step: s
    tool:
      - {{name: got, kind: secrets, {how}}}
      - {{kind: http, url: "{{{{ workload.url }}}}", auth: "{{{{ got }}}}"}}
"""
TEXT = CredentialDraft(name="api", type="secret", data=SECRET)
ENTRY = "keychain: [{name: api, kind: static, value: of-the-keychain}]\n"


@pytest.mark.parametrize(
    ("how", "keychain", "variable", "sent"),
    [
        ("secret_name: api", "", "", SECRET),
        ("secret_name: api", "", "of-the-environment", "of-the-environment"),
        ("secret_name: api", ENTRY, "", "of-the-keychain"),
        ("secret_name: api, provider: store", "", "of-the-environment", SECRET),
        ("secret_name: api, provider: store", ENTRY, "", "of-the-keychain"),
        ("secret_name: api, provider: google", "", "", SECRET),
        ('secret_name: "{{ workload.which }}"', "", "", SECRET),
    ],
)
def test_a_secrets_task_looks_in_the_documented_order(
    how: str, keychain: str, variable: str, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv("api", variable)
    result, seen = called(keychain + GOT.format(how=how), TEXT, which="api")
    assert result.status == "completed", result.problem
    assert seen == [f"Bearer {sent}"]


def test_a_secrets_task_gives_the_fields_of_a_credential_and_no_answer_shows_them() -> None:
    body = """workflow:
  - step: s
    tool:
      - {name: got, kind: secrets, provider: store, secret_name: api}
      - {kind: noop, result: "{{ got.token }} of {{ got.host }}"}
"""
    kept = CredentialDraft(name="api", type="secret", data={"token": SECRET, "host": "h.example"})
    result, shown = run(done(body, kept))
    assert result.result == "*** of h.example"
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("secret_name: nope", "the environment has no such variable, and there is no credential"),
        ("secret_name: nope, provider: store", "there is no credential 'nope' (looked in"),
        ("secret_name: nope, provider: vault", "the provider 'vault' cannot be reached from here"),
        ("secret_name: nope, provider: env", "(looked in env)"),
    ],
)
def test_a_secret_that_is_nowhere_is_missed_by_name(how: str, said: str) -> None:
    result, seen = called(GOT.format(how=how), TEXT)
    assert "there is no secret 'nope'" in str(result.problem)
    assert said in str(result.problem)
    assert seen == []
