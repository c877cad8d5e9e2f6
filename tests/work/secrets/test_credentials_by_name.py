"""Credentials by name: found by the steps that ask, shown to nobody, missed by name."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anabranch import Engine
from anabranch.app import RunResult
from anabranch.errors import Conflict, InputError, NotFound
from anabranch.operations.access.credentials import (
    CredentialCard,
    CredentialChange,
    CredentialDraft,
)
from anabranch.settings import Settings
from anabranch.testing import play
from anabranch.work.secrets import values
from anabranch.work.secrets.credential_fields import for_work
from anabranch.work.sql.postgres import conninfo

from ..support import server

SECRET = "hunter2-hunter3-hunter4"
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\n"
SETTINGS = Settings(poll_seconds=0.05)
#: Says what it got, as a careless step would.
TELL = 'args: {{got: "{{{{ keychain.{name} }}}}"}}, code: "result = dict(got)"'


def draft(name: str = "api", kind: str = "http", data: Any = None) -> CredentialDraft:
    return CredentialDraft(name=name, type=kind, data={"token": SECRET} if data is None else data)


async def done(engine: Engine, body: str, **given: Any) -> RunResult:
    run = await engine.start(HEAD + body, given, allow_extra_input=True)
    return await engine.wait(run)


def ran(body: str, *kept: CredentialDraft, settings: Settings = SETTINGS, **given: Any) -> Any:
    """The run, and everything that anybody is shown of it."""

    async def scenario() -> tuple[RunResult, str]:
        async with Engine(":memory:", settings=settings) as engine:
            for one in kept:
                engine.credentials.add(one)
            result = await done(engine, body, **given)
            events = [event async for event in engine.events(result.run)]
            return result, repr((result, events, engine.read.show(result.run)))

    return asyncio.run(scenario())


def called(body: str, *kept: CredentialDraft, **given: Any) -> list[Mapping[str, str]]:
    """The headers with which a step called a server."""
    seen: list[Mapping[str, str]] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(dict(request.headers))
        return web.json_response({})

    async def scenario() -> None:
        async with server(answer) as address, Engine(":memory:", settings=SETTINGS) as engine:
            for one in kept:
                engine.credentials.add(one)
            result = await done(engine, body, url=address, **given)
            assert result.status == "completed", result.problem

    asyncio.run(scenario())
    return seen


CALL = """workflow:
  - step: call
    tool: {{kind: http, url: "{{{{ workload.url }}}}", auth: {auth}}}
"""


@pytest.mark.parametrize(
    "auth",
    [
        "api",
        '"{{ workload.which }}"',
        "{type: bearer, credential: api}",
        '{type: bearer, credential: "{{ workload.which }}"}',
        "{main: {type: bearer, key: api}}",
        '"{{ keychain.api }}"',
    ],
)
def test_every_spelling_of_a_name_finds_the_credential(auth: str) -> None:
    (headers,) = called(CALL.format(auth=auth), draft(), which="api")
    assert headers["Authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("kind", "data", "name", "value"),
    [
        ("bearer", "tok-12345678", "Authorization", "Bearer tok-12345678"),
        ("secret", "tok-12345678", "Authorization", "Bearer tok-12345678"),
        ("api_key", "key-12345678", "X-API-Key", "key-12345678"),
        ("api_key", {"key": "key-12345678", "header": "X-K"}, "X-K", "key-12345678"),
        ("http", {"headers": {"X-Tenant": "t-12345678"}}, "X-Tenant", "t-12345678"),
        ("basic", {"username": "a", "password": "b"}, "Authorization", "Basic YTpi"),
    ],
)
def test_a_type_says_how_a_call_is_authorised(kind: str, data: Any, name: str, value: str) -> None:
    (headers,) = called(CALL.format(auth="api"), draft("api", kind, data))
    found = {key.lower(): text for key, text in headers.items()}
    assert found[name.lower()] == value


def test_a_keychain_entry_stands_for_a_credential() -> None:
    body = """keychain:
  - {name: plain, kind: credential, credential: api}
  - {name: api, kind: secret_manager, provider: gcp, map: {token: projects/1/secrets/t}}
  - {name: own, kind: static, map: {token: "x-{{ keychain.plain.token }}"}}
workflow:
  - step: tell
    tool:
      kind: python
      args: {all: ["{{ keychain.plain.token }}", "{{ keychain.api.token }}",
                   "{{ keychain.own.token }}"]}
      code: "result = [len(each) for each in all]"
"""
    result, _ = ran(body, draft())
    assert result.result == [len(SECRET), len(SECRET), len(SECRET) + 2]


def test_what_a_step_looked_up_is_starred_and_what_it_did_not_is_left_alone() -> None:
    body = f"""workflow:
  - step: tell
    tool: {{kind: python, {TELL.format(name="api")}}}
    next: {{arcs: [{{step: other}}]}}
  - step: other
    tool: {{kind: python, code: "result = '{SECRET}'"}}
"""
    result, shown = ran(body, draft())
    assert result.steps["tell"]["result"] == {"token": "***"}
    assert result.steps["other"]["result"] == SECRET
    assert shown.count(SECRET) >= 1


def test_a_password_inside_an_address_is_a_secret_of_its_own() -> None:
    data = "postgresql://loader:pass-word-1234@127.0.0.1:1/main"
    body = """workflow:
  - step: tell
    tool: {kind: python, args: {got: "{{ keychain.pg }}"}, code: "result = got['password'] + '!'"}
"""
    result, shown = ran(body, draft("pg", "postgres", data))
    assert result.result == "***!"
    assert "pass-word-1234" not in shown


def test_a_credential_that_is_missing_fails_the_step_that_asks_and_no_other() -> None:
    body = """keychain:
  - {name: gone, kind: env, variable: NO_SUCH_VARIABLE}
workflow:
  - step: fine
    tool: {kind: python, code: "result = 'fine'"}
    next: {arcs: [{step: asks}]}
  - step: asks
    tool: {kind: http, url: "http://127.0.0.1:1/", auth: nobody_has_it}
"""
    result, _ = ran(body)
    assert result.steps["fine"]["result"] == "fine"
    assert result.status == "failed"
    assert "there is no credential 'nobody_has_it'" in result.problem["message"]
    assert "anabranch credential add nobody_has_it" in result.problem["message"]


def test_more_credentials_than_a_task_may_ask_for_meet_a_limit_that_names_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(values, "LOOKUPS_MAX", 2)
    names = ("a", "b", "c")
    asks = " ".join(f"{{{{ keychain.{name}.token }}}}" for name in names)
    body = f"""workflow:
  - step: tell
    tool: {{kind: python, args: {{all: "{asks}"}}, code: "result = 1"}}
"""
    result, shown = ran(body, *(draft(name) for name in names))
    assert result.status == "failed"
    assert "asks for more than 2 credentials ('c' is one too many)" in shown


@pytest.mark.parametrize(
    "tool",
    [
        '{kind: http, url: "http://127.0.0.1:1/", auth: gone}',
        '{kind: noop, result: "{{ keychain.gone }}"}',
        "{kind: python, code: \"result = context['keychain']['gone']\"}",
    ],
)
def test_a_keychain_entry_that_is_missing_fails_the_step_that_uses_it_by_name(tool: str) -> None:
    body = f"""keychain:
  - {{name: gone, kind: env, variable: NO_SUCH_VARIABLE}}
  - {{name: here, kind: static, value: present-and-long}}
workflow:
  - step: fine
    tool: {{kind: python, code: "result = len(context['keychain']['here'])"}}
    next: {{arcs: [{{step: asks}}]}}
  - step: asks
    tool: {tool}
"""
    result, _ = ran(body)
    assert result.steps["fine"]["result"] == 16
    assert "keychain.gone: the environment has no variable" in result.problem["message"]


def test_a_loop_finds_the_credential_of_its_collection(tmp_path: Path) -> None:
    import sqlite3

    base = tmp_path / "items.db"
    with sqlite3.connect(base) as db:
        db.execute("CREATE TABLE t (id INTEGER)")
        db.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(5)])
    body = """workflow:
  - step: each
    loop: {in: {sql: {kind: sqlite, auth: base, query: "SELECT id FROM t", key: id}}, iterator: row}
    tool: {kind: noop, result: "{{ iter.row.id }}"}
"""
    result, _ = ran(body, draft("base", "sqlite", {"database": str(base)}))
    assert result.status == "completed", result.problem
    missing, _ = ran(body)
    assert "there is no credential 'base'" in missing.problem["message"]


def test_a_rotated_credential_is_what_the_next_step_gets(tmp_path: Path) -> None:
    body = """workflow:
  - step: tell
    tool: {kind: python, args: {got: "{{ keychain.api.token }}"}, code: "result = len(got)"}
"""

    async def scenario() -> list[Any]:
        async with Engine(tmp_path / "a.db", settings=SETTINGS) as engine:
            kept = engine.credentials
            kept.add(draft(data={"token": "first-token"}), "ann")
            before = (await done(engine, body)).result
            card = kept.rotate("api", CredentialChange(data={"token": "second-token-is-longer"}))
            after = (await done(engine, body)).result
            kept.remove("api")
            gone = (await done(engine, body)).status
            return [before, card.version, after, gone]

    assert asyncio.run(scenario()) == [11, 2, 22, "failed"]


def test_a_token_is_fetched_with_a_credential_of_type_oauth2() -> None:
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path == "/token":
            asked.append(await request.text())
            return web.json_response({"access_token": "fetched-token-1", "expires_in": 600})
        return web.json_response({"with": request.headers["Authorization"]})

    body = """workflow:
  - step: call
    tool: {kind: http, url: "{{ workload.url }}", auth: idp}
    next: {arcs: [{step: again}]}
  - step: again
    tool: {kind: http, url: "{{ workload.url }}", auth: idp}
"""

    async def scenario() -> RunResult:
        async with server(answer) as address, Engine(":memory:", settings=SETTINGS) as engine:
            data = {
                "endpoint": f"{address}/token",
                "client_id": "loader",
                "client_secret": "very-secret-client",
            }
            engine.credentials.add(draft("idp", "oauth2", data))
            return await done(engine, body, url=address)

    result = asyncio.run(scenario())
    assert result.status == "completed", result.problem
    assert result.steps["again"]["result"]["data"] == {"with": "Bearer ***"}
    assert asked == [
        "grant_type=client_credentials&client_id=loader&client_secret=very-secret-client"
    ]


def test_an_entry_for_a_token_names_the_credential_that_it_is_asked_for_with() -> None:
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append(request.headers["Authorization"])
        return web.json_response({"access_token": "fetched-token-1"})

    body = """keychain:
  - {name: idp, kind: oauth2, endpoint: "{{ workload.url }}", auth: "{{ workload.who }}",
     data: {grant_type: client_credentials}}
workflow:
  - step: tell
    tool: {kind: python, args: {got: "{{ keychain.idp.token }}"}, code: "result = len(got)"}
"""

    async def scenario() -> RunResult:
        async with server(answer) as address, Engine(":memory:", settings=SETTINGS) as engine:
            engine.credentials.add(draft("me", "basic", {"username": "a", "password": "b"}))
            return await done(engine, body, url=address, who="me")

    assert asyncio.run(scenario()).result == len("fetched-token-1")
    assert asked == ["Basic YTpi"]


def test_variables_of_a_step_may_look_a_credential_up() -> None:
    body = """workflow:
  - step: tell
    vars: {long: "{{ keychain.api.token | length }}"}
    tool: [{kind: noop, result: "{{ vars.long }}"}]
"""
    result, _ = ran(body, draft())
    assert result.result == len(SECRET)


# -- at rest ---------------------------------------------------------------------------------------


def test_nothing_of_a_credential_is_in_the_files_of_the_store_and_the_key_is_private(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with Engine(tmp_path / "a.db", settings=SETTINGS) as engine:
            engine.credentials.add(draft())

    asyncio.run(scenario())
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert not [name for name, content in files.items() if SECRET.encode() in content]
    assert stat.S_IMODE((tmp_path / "a.db.key").stat().st_mode) == 0o600


def test_with_a_wrong_key_nothing_is_written_and_the_error_names_both_keys(
    tmp_path: Path,
) -> None:
    right = replace(SETTINGS, secret_key="r" * 40)
    wrong = replace(SETTINGS, secret_key="w" * 40)
    body = CALL.format(auth="api")

    async def scenario() -> None:
        store = tmp_path / "a.db"
        async with Engine(store, settings=right) as engine:
            engine.credentials.add(draft())
        async with Engine(store, settings=wrong) as engine:
            kept = engine.credentials
            changes: list[Callable[[], CredentialCard]] = [
                lambda: kept.add(draft("other")),
                lambda: kept.rotate("api", CredentialChange(data="another-token")),
            ]
            for change in changes:
                with pytest.raises(InputError) as raised:
                    change()
                assert raised.value.code == "secret_key"
                assert "the key in the setting secret_key is" in raised.value.message
                assert "were encrypted with the key" in raised.value.message
            assert [(one.name, one.version, one.key) for one in kept.all()] == [
                ("api", 1, "other key")
            ]
            result = await done(engine, body, url="http://127.0.0.1:1/")
            assert result.problem is not None
            assert "credential 'api'" in result.problem["message"]
            assert "were encrypted with the key" in result.problem["message"]
            assert kept.remove("api").name == "api"  # what nobody can read can still go

    asyncio.run(scenario())


def test_a_key_that_was_lost_is_not_made_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Engine(tmp_path / "a.db", settings=SETTINGS) as engine:
            engine.credentials.add(draft())
        (tmp_path / "a.db.key").unlink()
        async with Engine(tmp_path / "a.db", settings=SETTINGS) as engine:
            with pytest.raises(InputError, match="cannot be read"):
                engine.credentials.add(draft("other"))
            assert engine.credentials.show("api").key == "no key"
        assert not (tmp_path / "a.db.key").exists()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (draft(name="no such name"), "credential_name", "cannot be the name"),
        (draft(name="-rf"), "credential_name", "cannot be the name"),
        (draft(kind="postgress"), "credential_type", "did you mean 'postgres'?"),
        (draft(kind="postgres", data={"user": "u"}), "credential_value", "`dsn` or `host`"),
        (draft(kind="basic", data={"username": "u"}), "credential_value", "`password`"),
        (draft(kind="secret", data={}), "credential_value", "no fields"),
        (draft(kind="secret", data=""), "credential_value", "empty"),
        (draft(kind="secret", data="x" * 70_000), "credential_value", "more than 65,536"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(
    given: CredentialDraft, code: str, words: str
) -> None:
    async def scenario() -> None:
        async with Engine(":memory:", settings=SETTINGS) as engine:
            with pytest.raises(InputError) as raised:
                engine.credentials.add(given)
            assert (raised.value.code, words in raised.value.message) == (code, True), (
                raised.value.message
            )
            assert engine.credentials.all() == []

    asyncio.run(scenario())


def test_a_second_one_of_a_name_and_one_that_is_not_there_are_refused() -> None:
    async def scenario() -> None:
        async with Engine(":memory:", settings=SETTINGS) as engine:
            engine.credentials.add(draft())
            with pytest.raises(Conflict, match="rotate api"):
                engine.credentials.add(draft())
            for verb in (engine.credentials.show, engine.credentials.remove):
                with pytest.raises(NotFound, match="there is no credential 'nope'"):
                    verb("nope")

    asyncio.run(scenario())


# -- stores outside --------------------------------------------------------------------------------

LENGTH = """workflow:
  - step: tell
    tool:
      kind: python
      args: {got: "{{ keychain['pg-main'].password }}"}
      code: "result = {'long': len(got), 'said': got}"
"""


def test_a_credential_comes_from_the_environment_a_folder_or_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"type": "postgres", "data": {"db_host": "h", "db_password": "word-of-16-chars"}}
    monkeypatch.setenv("CRED_PG_MAIN", json.dumps(fields))
    (tmp_path / "pg-main.json").write_text(json.dumps(fields))
    command = tmp_path / "ask"
    command.write_text(f'#!/bin/sh\n[ "$1" = pg-main ] && cat {tmp_path}/pg-main.json\nexit 0\n')
    command.chmod(0o755)
    for settings in (
        replace(SETTINGS, credential_env_prefix="CRED_"),
        replace(SETTINGS, credential_folder=str(tmp_path)),
        replace(SETTINGS, credential_command=str(command)),
    ):
        result, shown = ran(LENGTH, settings=settings)
        assert result.result == {"long": 16, "said": "***"}, result.problem
        assert "word-of-16-chars" not in shown


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", "ended with exit status 3"),
        ("sleep 60", "took longer than credential_command_seconds (0.2 s)"),
        ("exit 0", "there is no credential 'pg-main'"),
        ("echo '{'", "starts with { and is not valid JSON"),
        ("head -c 70000 /dev/zero | tr '\\0' x", "more than 65,536 bytes"),
    ],
)
def test_a_command_that_gives_no_credential_fails_the_step_with_the_reason(
    script: str, words: str, tmp_path: Path
) -> None:
    command = tmp_path / "ask"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    settings = replace(SETTINGS, credential_command=str(command), credential_command_seconds=0.2)
    if "sleep" not in script:
        settings = replace(settings, credential_command_seconds=60.0)
    result, _ = ran(LENGTH, settings=settings)
    assert words in result.problem["message"], result.problem


# -- plays -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keychain", ["", "keychain: [{name: api, kind: env, variable: NOPE}]\n"])
def test_a_play_needs_no_secrets(keychain: str) -> None:
    body = """workflow:
  - step: call
    tool: {kind: http, url: "http://127.0.0.1:1/", auth: api}
    next: {arcs: [{step: several}]}
  - step: several
    tool:
      - {kind: http, url: "http://127.0.0.1:1/", auth: "{{ workload.which }}"}
      - {kind: noop, result: "{{ keychain.api.token }}"}
"""
    played = play(HEAD + keychain + body, {"which": "api"}, script={"call": {"ok": True}})
    assert played.status == "completed", played.problem
    assert played.result == "api.token"


def test_the_fields_of_other_registries_reach_the_database() -> None:
    psycopg = pytest.importorskip("psycopg")
    data = {"db_host": "h", "db_port": "5433", "db_user": "u", "db_password": "p", "db_name": "d"}
    address = conninfo(psycopg, {"auth": for_work("postgres", data)}, 3.0)
    found = psycopg.conninfo.conninfo_to_dict(address)
    assert {key: found[key] for key in ("host", "port", "user", "password", "dbname")} == {
        "host": "h", "port": "5433", "user": "u", "password": "p", "dbname": "d",
    }  # fmt: skip
