"""`credential`: kept, listed, rotated and removed, at a store and at a server alike."""

from __future__ import annotations

import json

import pytest

from anabranch.store.access_ports import AuditFilter
from anabranch.store.sqlite.store import SqliteStore

from ..server_in_thread import served
from ..support import HEAD, Here

SECRET = "pass-word-1234"
PG = json.dumps({"host": "db", "user": "loader", "password": SECRET})
ASKS = f"""{HEAD}metadata: {{name: asks}}
workflow:
  - step: load
    tool: {{kind: postgres, auth: pg_main, query: select 1}}
"""


@pytest.fixture
def target(here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setenv("PG_MAIN", PG)
    here.write("asks.yaml", ASKS)
    here.write("pg.json", json.dumps({"name": "x", "type": "postgres", "data": json.loads(PG)}))
    return here


def audit_log(here: Here) -> list[tuple[str, str, str, str]]:
    store = SqliteStore(here.store, read_only=True)
    try:
        found = store.audit(AuditFilter())
    finally:
        store.close()
    return [(one.actor, one.action, one.subject, one.outcome) for one in reversed(found)]


def test_a_credential_is_kept_listed_rotated_and_removed_and_every_change_is_in_the_trail(
    target: Here,
) -> None:
    by = ("--actor", "ann")
    made = target.run(
        "credential", "add", "pg_main", "--type", "postgres", "--from-env", "PG_MAIN", *by
    )
    assert (made.code, made.out) == (0, "kept: pg_main (postgres: host, password, user)\n")
    listed = target.run("credential", "list")
    assert "pg_main  postgres  host,password,user  1" in listed.out
    again = target.run(
        "credential",
        "rotate",
        "pg_main",
        "--value-stdin",
        "--json",
        *by,
        stdin="postgresql://u:p@h/d\n",
    )
    card = json.loads(again.out)
    assert (card["version"], card["fields"], card["updated_by"]) == (2, ["dsn"], "ann")
    assert "version: 2" in target.run("credential", "show", "pg_main").out
    assert target.run("credential", "remove", "pg_main", *by).out.startswith("removed: pg_main")
    assert target.run("credential", "list").out == "no credentials\n"
    refused = target.run("credential", "remove", "pg_main", *by)
    assert (refused.code, "there is no credential 'pg_main'" in refused.err) == (2, True)
    assert audit_log(target) == [
        ("ann", "credentials.create", "pg_main", "done"),
        ("ann", "credentials.rotate", "pg_main", "done"),
        ("ann", "credentials.delete", "pg_main", "done"),
        ("ann", "credentials.delete", "pg_main", "refused: no_credential"),
    ]
    assert SECRET not in made.out + listed.out + again.out + made.err + again.err


def test_a_file_in_the_form_of_other_registries_says_the_type_itself(target: Here) -> None:
    made = target.run("credential", "add", "pg_main", "--from-file", "pg.json", "--json")
    assert json.loads(made.out)["type"] == "postgres"
    untyped = target.run("credential", "add", "other", "--from-env", "PG_MAIN")
    assert (untyped.code, "--type postgres" in untyped.err) == (2, True)
    unset = target.run("credential", "add", "other", "--type", "http", "--from-env", "NOPE_NOPE")
    assert (unset.code, "no variable NOPE_NOPE" in unset.err) == (2, True)


def test_check_warns_of_a_credential_only_where_it_can_know(
    target: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = target.run("check", "asks.yaml", "--json")
    assert "credential-by-name" in unknown.out  # there is no store yet
    assert "unknown-credential" not in unknown.out
    target.run("credential", "add", "other", "--type", "secret", "--from-env", "PG_MAIN")
    missing = target.run("check", "asks.yaml")
    assert "unknown-credential: warning: there is no credential 'pg_main'" in missing.out
    monkeypatch.setenv("ANABRANCH_CREDENTIAL_COMMAND", "true")
    assert "unknown-credential" not in target.run("check", "asks.yaml").out  # it may have it
    monkeypatch.delenv("ANABRANCH_CREDENTIAL_COMMAND")
    target.run("credential", "add", "pg_main", "--from-file", "pg.json")
    assert "unknown-credential" not in target.run("check", "asks.yaml").out


def test_check_warns_of_a_credential_that_only_a_template_names(target: Here) -> None:
    asks = ASKS.replace("auth: pg_main", 'auth: "{{ keychain.pg_main.dsn }}"')
    target.write("asks.yaml", asks)
    target.run("credential", "add", "other", "--type", "secret", "--from-env", "PG_MAIN")
    missing = target.run("check", "asks.yaml")
    assert "unknown-credential: warning: there is no credential 'pg_main'" in missing.out
    target.run("credential", "add", "pg_main", "--from-file", "pg.json")
    assert target.run("check", "asks.yaml").out == "asks.yaml: no problems\n"


def test_the_same_verbs_ask_a_server(target: Here) -> None:
    with served(target.store) as server:
        at = ("--server", server.url)
        made = target.run("credential", "add", "pg_main", "--from-file", "pg.json", "--json", *at)
        card = json.loads(made.out)
        assert (card["name"], card["version"], card["key"]) == ("pg_main", 1, "ok")
        assert "unknown-credential" not in target.run("check", "asks.yaml", *at).out
        again = target.run(
            "credential", "rotate", "pg_main", "--from-env", "PG_MAIN", "--json", *at
        )
        assert json.loads(again.out)["version"] == 2
        twice = target.run("credential", "add", "pg_main", "--from-file", "pg.json", *at)
        assert (twice.code, "rotate pg_main" in twice.err) == (2, True)
        assert "pg_main" in target.run("credential", "list", *at).out
        assert target.run("credential", "remove", "pg_main", *at).code == 0
        assert "there is no credential" in target.run("check", "asks.yaml", *at).out
        assert SECRET not in made.out + again.out
    actions = [(action, subject, outcome) for _, action, subject, outcome in audit_log(target)]
    assert ("credentials.create", "pg_main", "done") in actions
    assert ("credentials.delete", "pg_main", "done") in actions
