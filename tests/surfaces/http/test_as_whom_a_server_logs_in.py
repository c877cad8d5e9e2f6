"""Tasks of a server log in to PostgreSQL with what they were given, and never as the server."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sqlite3
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.pools import task_environment
from anabranch.settings import Settings
from anabranch.surfaces.cli.commands.serve.worker import worker
from anabranch.surfaces.http.serve import Server
from anabranch.work.from_settings import work_settings
from hangs import HANG_SECONDS
from postgres_server import PostgresServer, shared_postgres

from .support import run

WORD = "word-of-the-house"
WHO = "select 'i am ' || current_user as who"


def playbook(tool: dict[str, Any], place: dict[str, Any] | None = None, **step: Any) -> str:
    steps = [{"step": "start", "tool": tool, **step}]
    keys = [{"name": "db", "kind": "static", "map": place}] if place else []
    return json.dumps({"metadata": {"name": "asks"}, "keychain": keys, "workflow": steps})


def asks(place: dict[str, Any], query: str = WHO) -> str:
    return playbook({"kind": "postgres", "auth": "db", "query": query}, place)


def reads(place: dict[str, Any]) -> str:
    source = {"tool": "postgres", "auth": "db", "query": WHO}
    target = {"tool": "sqlite", "database": "out.db", "query": "insert into t values (?)"}
    return playbook({"kind": "transfer", "source": source, "target": target}, place)


def writes(place: dict[str, Any]) -> str:
    source = {"tool": "sqlite", "database": ":memory:", "query": "select 'a' as n"}
    target = {"tool": "postgres", "auth": "db", "query": "select %s"}
    return playbook({"kind": "transfer", "source": source, "target": target}, place)


def loops(place: dict[str, Any]) -> str:
    rows = {"sql": {"kind": "postgres", "auth": "db", "query": WHO, "key": "who"}}
    return playbook({"kind": "noop"}, place, loop={"in": rows, "iterator": "row"})


WAYS = [asks, reads, writes, loops]


class Place:
    """A database, and two roles that need a password where they come over TCP: the one of the
    server, which may do everything, and one of an author."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.name = f"login_{os.getpid()}_{secrets.token_hex(3)}"
        self.house, self.author = f"{self.name}_house", f"{self.name}_author"
        server.sql(
            f"create role {self.house} superuser login password '{WORD}'",
            f"create role {self.author} login password 'author-of-a-book'",
            f"create database {self.name} owner {self.house}",
        )

    def tcp(self, user: str, more: str = "") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.server.port}/{self.name}{more}"

    @property
    def socket(self) -> dict[str, str]:
        return {"host": str(self.server.folder), "port": str(self.server.port), "dbname": self.name}

    def own(self, user: str, password: str, more: str = "") -> dict[str, str]:
        return {"dsn": self.server.tcp_uri(user, password, self.name, more)}

    def drop(self) -> None:
        self.server.sql(f"drop database {self.name} with (force)")
        self.server.sql(f"drop role {self.house}", f"drop role {self.author}")


@pytest.fixture(scope="module")
def place(run_folder: Path) -> Iterator[Place]:
    with shared_postgres(run_folder) as server:
        found = Place(server)
        yield found
        found.drop()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("out.db")) as out:
        out.execute("create table t (who)")
    return Settings(store=str(tmp_path / "runs.db"), serve_port=0, no_inline="shell python")


def said(settings: Settings, *definitions: str) -> list[str]:
    """What comes of each on a server: "completed", or what went wrong."""

    async def ended(server: Server, definition: str) -> str:
        verbs = server.parts.verbs
        begun = await verbs.start(definition, {})
        state = await verbs.wait(begun)
        summary = verbs.read.summary(begun, state)
        return "completed" if summary["status"] == "completed" else json.dumps(summary, default=str)

    async def scenario() -> list[str]:
        async with asyncio.timeout(HANG_SECONDS), Server(settings, mounts=()) as server:
            return [await ended(server, definition) for definition in definitions]

    return run(scenario())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place) -> Path:
    """Everything that libpq looks for, with the password of the server."""
    line = f"*:*:*:*:{WORD}\n"
    folder = tmp_path / "home"
    folder.mkdir()
    for name in (".pgpass", "other.pgpass"):
        (folder / name).write_text(line)
        (folder / name).chmod(0o600)
    (folder / ".pg_service.conf").write_text(
        f"[house]\nuser={place.house}\npassword={WORD}\nhost=127.0.0.1\nport={place.server.port}\n"
        f"dbname={place.name}\n"
    )
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("found", ["PGPASSWORD", "PGPASSFILE", "~/.pgpass"])
def test_no_password_of_the_machine_lets_a_task_in(
    found: str,
    way: Callable[[dict[str, Any]], str],
    place: Place,
    settings: Settings,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if found != "~/.pgpass":
        (home / ".pgpass").unlink()
    if found == "PGPASSWORD":
        monkeypatch.setenv("PGPASSWORD", WORD)
    if found == "PGPASSFILE":
        monkeypatch.setenv("PGPASSFILE", str(home / "other.pgpass"))
    (told,) = said(settings, way({"dsn": place.tcp(place.house)}))
    assert "no password supplied" in told, told
    (told,) = said(
        replace(settings, postgres_identity="machine"), asks({"dsn": place.tcp(place.house)})
    )
    assert told == "completed"


def test_a_task_with_a_login_of_its_own_comes_in(place: Place, settings: Settings) -> None:
    mine = place.own(place.author, "author-of-a-book")
    fields = {"host": "127.0.0.1", "port": str(place.server.port), "dbname": place.name}
    parts = {**fields, "user": place.author, "password": "author-of-a-book"}
    every = [way(mine) for way in WAYS]
    assert said(settings, *every, asks(parts)) == ["completed"] * 5


def test_nothing_is_filled_in_for_what_an_address_leaves_out(
    place: Place, settings: Settings, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "PGHOST": str(place.server.folder),
        "PGHOSTADDR": "127.0.0.1",
        "PGPORT": str(place.server.port),
        "PGUSER": place.house,
        "PGDATABASE": place.name,
        "PGPASSWORD": WORD,
        "PGOPTIONS": "-c search_path=house",
        "PGREQUIREAUTH": "gss",
    }
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    mine = place.own(place.author, "author-of-a-book")
    nobody, at_home, own, service = said(
        settings,
        asks({"dsn": "sslmode=prefer"}),
        asks({"user": place.house, "dbname": place.name}),
        asks(mine, "select 1 / (current_setting('search_path') <> 'house')::int as n"),
        asks({"dsn": "service=house"}),
    )
    assert "names no user" in nobody
    assert "is a socket" in at_home
    assert own == "completed"
    assert "names a service" in service


def test_a_service_of_the_machine_adds_nothing(
    place: Place, settings: Settings, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSERVICE", "house")
    (told,) = said(settings, asks({"dsn": place.tcp(place.house)}))
    assert "PGSERVICE is set here" in told


def test_no_socket_lets_a_task_in_as_who_the_machine_is(place: Place, settings: Settings) -> None:
    """The socket of this server lets everybody in, as one with `peer` does for the user of the
    engine."""
    bare, with_word, of_two = said(
        settings,
        asks({**place.socket, "user": place.house}),
        asks({**place.socket, "user": place.author, "password": "author-of-a-book"}),
        asks({**place.socket, "user": place.house, "host": f"127.0.0.1,{place.server.folder}"}),
    )
    assert "is a socket" in bare
    assert "authentication method requirement" in with_word
    assert '"auth"' in with_word
    assert "is a socket" in of_two


def test_no_password_of_the_machine_is_sent_to_who_asks_for_it(
    settings: Settings, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", WORD)
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            size = int.from_bytes(await reader.readexactly(4))
            await reader.readexactly(size - 4)
            writer.write(b"R\0\0\0\x08\0\0\0\x03")  # the password in clear, please
            while some := await reader.read(4096):
                heard.append(some)
        writer.close()

    async def scenario() -> str:
        listening = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with asyncio.timeout(HANG_SECONDS), listening, Server(settings, mounts=()) as server:
            verbs = server.parts.verbs
            dsn = f"host=127.0.0.1 port={port} user=u dbname=d sslmode=disable"
            begun = await verbs.start(asks({"dsn": dsn}), {})
            state = await verbs.wait(begun)
            return str(verbs.read.summary(begun, state)["status"])

    assert run(scenario()) == "failed"
    assert WORD.encode() not in b"".join(heard)


@pytest.mark.parametrize("more", ["", "?options=-c%20role%3DAUTHOR"])
def test_no_task_opens_a_store_of_an_engine(more: str, place: Place, settings: Settings) -> None:
    store = f"{place.server.tcp_uri(place.house, WORD, place.name)}?schema=kept"
    settings = replace(settings, store=store)
    house = place.own(place.house, WORD, more.replace("AUTHOR", place.author))
    author = place.own(place.author, "author-of-a-book")
    *opened, beside = said(settings, *(way(house) for way in WAYS), asks(author))
    assert all("a store of Anabranch" in told for told in opened), opened
    assert beside == "completed"  # it has no rights in the schema


def test_nor_does_one_that_may_become_who_can(place: Place, settings: Settings) -> None:
    store = f"{place.server.tcp_uri(place.house, WORD, place.name)}?schema=kept"
    said(replace(settings, store=store), playbook({"kind": "noop"}))
    role = f"{place.name}_reader"
    place.server.sql(
        f"create role {role} noinherit",
        f"grant usage on schema kept to {role}",
        f"grant {role} to {place.author}",
        database=place.name,
    )
    try:
        (told,) = said(settings, asks(place.own(place.author, "author-of-a-book")))
    finally:
        place.server.sql(f"drop owned by {role}", f"drop role {role}", database=place.name)
    assert "a store of Anabranch" in told


def test_the_password_of_the_store_is_in_no_keychain(
    place: Place, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", WORD)
    by_task = playbook({"kind": "secrets", "name": "PGPASSWORD"})
    assert said(settings, by_task) == ["completed"]  # of tasks, where the store has no use for it
    settings = replace(settings, store=place.tcp(place.house, "?schema=kept"))
    for told in said(settings, by_task):
        assert "PGPASSWORD belongs to Anabranch itself" in told


@pytest.mark.parametrize(("given", "of_machine"), [("", False), ("machine", True)])
def test_a_worker_logs_in_as_a_server_does(
    given: str, of_machine: bool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []

    class Enough(Exception):
        pass

    def environment(_services: object, chosen: Settings, *_more: object) -> None:
        found.append(work_settings(chosen).sql.login_of_machine)
        raise Enough

    monkeypatch.setattr(task_environment, "TaskEnvironment", environment)
    options = Namespace(pool="gpu", tools=(), concurrency=1, lease=30.0, once=True, grace=None)
    options.name, options.discover, options.json = "w1", False, False
    chosen = replace(settings, server="http://127.0.0.1:1", postgres_identity=given)
    with pytest.raises(Enough):
        run(worker(options, chosen))
    assert found == [of_machine]
