"""The pages about credentials, for admins and without values, and about participants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.operations.access.credentials import CredentialChange, CredentialDraft
from anabranch.operations.definitions.catalog import Draft

from .plain import PlainPage
from .support import NASTY, Server

VALUES = ("first-value-1234", "second-value-5678")
LOAD = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: load, path: etl/load}
workflow:
  - step: load
    tool: {kind: postgres, auth: pg_main, query: select 1}
"""
BOOK = {
    "participants": {
        "near": {"function": "json:dumps", "service_types": ["text/summarise"]},
        "away": {"url": "http://u:secret-1234@127.0.0.1:1/", "price": 3, "labels": {"a": NASTY}},
    },
    "capabilities": {"verify": {"url": "http://127.0.0.1:1/"}},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(Path(tmp_path_factory.mktemp("server")), BOOK) as running:
        kept, now = running.parts.credentials, running.parts.engine.clock.now()
        data = {"host": "db.example", "password": VALUES[0]}
        main = CredentialDraft(name="pg_main", type="postgres", data=data, description=NASTY)
        kept.add(main, "ann")
        kept.add(CredentialDraft(name="main", type="secret", data=VALUES[0]), "ann")
        kept.rotate("main", CredentialChange(data=VALUES[1]), "bob")
        running.parts.catalog.register([Draft(LOAD, "<text>")], now, "ann")
        yield running


def test_credentials_are_listed_with_their_fields_and_users_and_without_values(
    plain: PlainPage, server: Server
) -> None:
    plain.goto("/credentials")
    main, pg_main = (plain.locator("tbody tr").nth(at).inner_text() for at in (0, 1))
    assert "main" in main
    assert "by bob" in main
    assert "etl/load" not in main  # `pg_main` is another one
    for words in ("postgres", "host", "password", "never", "ok", "etl/load", NASTY):
        assert words in pg_main
    assert not any(value in plain.content() for value in VALUES)
    plain.get_by_role("link", name="etl/load").click()
    plain.get_by_role("heading", name="Versions of etl/load").wait_for()


def test_participants_are_listed_with_their_health_and_looked_at_when_asked(
    plain: PlainPage, server: Server
) -> None:
    plain.goto("/participants")
    assert plain.locator("tbody .badge").all_inner_texts() == ["unknown", "unknown"]
    assert "verify" in plain.locator("main").inner_text()
    plain.get_by_role("button", name="Look whether they are there").click()
    plain.get_by_text("2 can be asked · 1 down · 1 up.").wait_for()
    away, near = (plain.locator("tbody tr").nth(at).inner_text() for at in (0, 1))
    assert "down" in away
    assert "Connection refused" in away
    assert NASTY in away
    assert "text/summarise" in near
    assert "secret-1234" not in plain.content()
