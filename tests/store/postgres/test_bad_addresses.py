"""What is wrong with the address of a store, or with what is found there, is told at once: which
setting, what to do, and never the password."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from anabranch.errors import AnabranchError, StoreError
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.location import shown, tells_password
from anabranch.store.postgres.address import read_address
from anabranch.store.postgres.connections import require_version
from anabranch.store.postgres.store import PostgresStore
from postgres_server import PostgresServer

PASSWORD = "xyzzy-37"
SETTING = "--store or ANABRANCH_STORE"


def refused(call: Callable[[], Any], code: str) -> str:
    """The message; neither it nor the traceback tells the password."""
    with pytest.raises(AnabranchError) as raised:
        call()
    error = raised.value
    assert error.code == code, error.message
    assert PASSWORD not in "".join(traceback.format_exception(error))
    return error.message


@pytest.fixture(scope="module")
def people(server: PostgresServer) -> PostgresServer:
    """A user with a password, and one who may do nothing."""
    server.sql(
        f"CREATE ROLE owner LOGIN PASSWORD '{PASSWORD}'",
        f"CREATE ROLE nobody LOGIN PASSWORD '{PASSWORD}'",
        "CREATE DATABASE shop OWNER owner",
        "REVOKE ALL ON DATABASE shop FROM PUBLIC",
        "CREATE DATABASE closed OWNER owner",
        "GRANT CONNECT ON DATABASE closed TO nobody",
    )
    return server


# -- the address itself ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:a@{PASSWORD}@host/db",
        f"postgresql://me:a/{PASSWORD}@host/db",
        f"postgresql://me:a?{PASSWORD}@host/db",
        f"postgresql://me:a#{PASSWORD}@host/db",
        f"postgresql://me:%zz{PASSWORD}@host/db",
        f"postgresql://me:{PASSWORD}@host:port/db",
        f"postgresql://me:{PASSWORD}@[::1/db",
    ],
)
def test_an_address_that_cannot_be_read_is_not_quoted(address: str) -> None:
    message = refused(lambda: read_address(address), "store_address")
    assert SETTING in message
    assert "%40" in message
    assert PASSWORD not in shown(address)


def test_options_reach_libpq_as_they_were_written() -> None:
    """A space is %20 there, and a + is a +."""
    address = read_address("postgresql://h/db?options=-c%20jit%3Doff&schema=mine&password=a+b%26c")
    found = conninfo_to_dict(address.conninfo)
    assert (found["options"], found["password"]) == ("-c jit=off", "a+b&c")
    assert address.schema == "mine"


def test_an_unknown_option_is_named() -> None:
    address = f"postgresql://me:{PASSWORD}@host/db?sslmod=require"
    message = refused(lambda: read_address(address), "store_address")
    assert "'sslmod'" in message
    assert SETTING in message


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://host/db?password=a&{PASSWORD}",
        f"postgresql://host/db?sslpassword=a&{PASSWORD}=b",
        f"postgresql://host/db?password=a&schema={PASSWORD}",
    ],
)
def test_what_may_be_the_rest_of_a_password_is_not_quoted(address: str) -> None:
    assert SETTING in refused(lambda: read_address(address), "store_address")
    assert PASSWORD not in shown(address)


@pytest.mark.parametrize("name", ["", "Upper", "a-b", "1a", 'a"b', "pg_mine", "x" * 64, "a%3Bb"])
def test_a_schema_name_that_is_none_is_named(name: str) -> None:
    message = refused(lambda: read_address(f"postgresql://h/db?schema={name}"), "store_address")
    assert "?schema=" in message
    assert SETTING in message


@pytest.mark.parametrize("scheme", ["mysql", "sqlite", "PostgreSQL", "postgresql+psycopg"])
def test_an_unknown_scheme_is_no_name_of_a_file(scheme: str) -> None:
    store = f"{scheme}://me:{PASSWORD}@host/db"
    message = refused(lambda: open_store(Settings(store=store)), "store_address")
    assert f"{scheme}://…" in message
    assert "--store and ANABRANCH_STORE" in message


def test_an_address_is_shown_without_its_password() -> None:
    address = f"postgresql://me:{PASSWORD}@h1:5433,h2/db?schema=mine&connect_timeout=3"
    assert read_address(address).shown == "postgresql://me@h1,h2:5433,/db?schema=mine"
    assert PASSWORD not in repr(read_address(address))
    assert PASSWORD not in repr(Settings(store=address))
    assert shown(address) == "postgresql://me@h1:5433,h2/db?schema=mine&connect_timeout=3"
    assert tells_password(address)
    assert tells_password(f"postgresql://h/db?password={PASSWORD}")
    assert not tells_password("postgresql://me@h/db?schema=mine")
    assert not tells_password("postgresql://me:@h/db")
    assert not tells_password("postgresql://me@/db?host=%2Ftmp%2Fpg&port=5433")
    assert not tells_password("runs.db")
    assert shown(f"postgresql:///db?password={PASSWORD}") == "postgresql:///db"


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for module in [name for name in sys.modules if name.startswith("anabranch.store.postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    message = refused(lambda: open_store(Settings(store="postgresql://h/db")), "missing_extra")
    assert "anabranch[postgres]" in message
    assert SETTING in message


# -- what is found there -----------------------------------------------------------------------


def test_a_wrong_password(people: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    address = people.tcp_uri("owner", f"{PASSWORD}x", "shop")
    message = refused(lambda: PostgresStore(address), "store_password")
    assert "owner@127.0.0.1" in message
    assert SETTING in message
    assert "PGPASSWORD" in message
    assert PASSWORD not in caplog.text


def test_an_unknown_user(people: PostgresServer) -> None:
    address = people.uri(user="stranger")
    assert SETTING in refused(lambda: PostgresStore(address), "store_password")


def test_an_unknown_host() -> None:
    address = f"postgresql://me:{PASSWORD}@no-such-host.invalid/db"
    message = refused(lambda: PostgresStore(address), "store_away")
    assert "there is no such host" in message
    assert SETTING in message


def test_a_port_where_nothing_listens(people: PostgresServer) -> None:
    address = f"postgresql://me:{PASSWORD}@127.0.0.1:1/db"
    message = refused(lambda: PostgresStore(address), "store_away")
    assert "no server answers there" in message
    assert "host and port" in message
    assert SETTING in message


def test_a_database_that_does_not_exist(people: PostgresServer) -> None:
    address = people.tcp_uri("owner", PASSWORD, "missing")
    message = refused(lambda: PostgresStore(address), "store_no_database")
    assert "/missing" in message
    assert SETTING in message


def test_a_database_without_rights(people: PostgresServer) -> None:
    """Neither to connect, nor to create a schema, nor to look into one."""
    closed = people.tcp_uri("nobody", PASSWORD, "shop")
    assert "docs/postgres.md" in refused(lambda: PostgresStore(closed), "store_rights")
    empty = people.tcp_uri("nobody", PASSWORD, "closed")
    assert "docs/postgres.md" in refused(lambda: PostgresStore(empty), "store_rights")
    PostgresStore(people.tcp_uri("owner", PASSWORD, "closed"), partitions=2).close()
    message = refused(lambda: PostgresStore(empty), "store_rights")
    assert "USAGE on schema anabranch" in message
    people.sql("GRANT USAGE ON SCHEMA anabranch TO nobody", database="closed")
    message = refused(lambda: PostgresStore(empty), "store_rights")
    assert "on admissions" in message
    assert "and more" in message


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_with_another_encoding(people: PostgresServer, encoding: str) -> None:
    name = encoding.lower()
    people.sql(
        f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' "
        "TEMPLATE template0"
    )
    message = refused(lambda: PostgresStore(people.uri(database=name)), "store_encoding")
    assert f"the encoding {encoding}" in message
    assert "ENCODING 'UTF8'" in message
    assert SETTING in message


def test_a_server_that_is_too_old() -> None:
    address = read_address(f"postgresql://me:{PASSWORD}@host/db")
    message = refused(lambda: require_version(130_014, address), "store_too_old")
    assert "PostgreSQL 13; 14 or newer" in message
    assert SETTING in message
    require_version(140_000, address)


def test_a_server_that_only_takes_reads(people: PostgresServer) -> None:
    address = people.uri(database="shop", schema="replica")
    PostgresStore(address, partitions=2).close()
    people.sql("ALTER DATABASE shop SET default_transaction_read_only = on")
    try:
        message = refused(lambda: PostgresStore(address), "store_read_only")
        assert "default_transaction_read_only" in message
        assert SETTING in message
        PostgresStore(address, read_only=True).close()
    finally:
        people.sql("ALTER DATABASE shop RESET default_transaction_read_only")


def test_a_replica(people: PostgresServer) -> None:
    PostgresStore(people.uri(), partitions=2).close()
    with people.standby() as address:
        message = refused(lambda: PostgresStore(address), "store_read_only")
        assert "is a replica" in message
        assert "Name the primary" in message
        assert SETTING in message
        looking = PostgresStore(address, read_only=True)
        assert looking.partitions == 2
        looking.close()


def test_a_number_of_partitions_that_the_store_does_not_have(people: PostgresServer) -> None:
    address = people.uri(schema="counted")
    PostgresStore(address, partitions=8).close()
    message = refused(lambda: PostgresStore(address, partitions=16), "store_partitions")
    assert "8 partitions, not 16" in message
    assert "ANABRANCH_STORE_PARTITIONS" in message
    PostgresStore(address).close()
    for wrong in (-1, 5000):
        call = lambda wrong=wrong: PostgresStore(address, partitions=wrong)  # noqa: E731
        assert "1 to 4096" in refused(call, "store_partitions")


def test_a_schema_of_others_is_left_alone(people: PostgresServer) -> None:
    people.sql("CREATE SCHEMA theirs", "CREATE TABLE theirs.log (line text)")
    message = refused(lambda: PostgresStore(people.uri(schema="theirs")), "unusable_store")
    assert "?schema=" in message
    assert SETTING in message
    tables = people.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'theirs'")
    assert tables == [("log",)]


def test_a_store_that_is_only_looked_at_is_not_made(people: PostgresServer) -> None:
    address = people.uri(schema="unmade")
    message = refused(lambda: PostgresStore(address, read_only=True), "store_missing")
    assert SETTING in message
    assert people.sql("SELECT 1 FROM pg_namespace WHERE nspname = 'unmade'") == []


def test_errors_of_the_driver_are_chained_without_the_password(people: PostgresServer) -> None:
    store = PostgresStore(people.tcp_uri("owner", PASSWORD, "shop"), partitions=2)
    try:
        with pytest.raises(StoreError) as raised:
            store.post("r\0un", b"", 0)
        told = "".join(traceback.format_exception(raised.value))
        assert PASSWORD not in told
    finally:
        store.close()
