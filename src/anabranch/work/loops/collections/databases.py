"""What collections that come from a database have in common: where it is, what it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.work.kinds import inputs
from anabranch.work.loops.collections.asking import asked, entry_of
from anabranch.work.loops.collections.port import Descriptor, Keyring
from anabranch.work.port import Performer
from anabranch.work.secrets.redaction import brief
from anabranch.work.sql.text import FLAVOURS, Statement, split

NAMED = {"sqlite": ":{}", "postgres": "%({})s", "duckdb": "${}"}
_PLACES = frozenset(
    {"database", "path", "dsn", "connection", "host", "port", "user", "username", "dbname"}
    | {"sslmode", "read_only"}
)
_SECRETS = ("password", "passfile", "sslkey")


def kind_of(given: Mapping[str, Any], what: str) -> str:
    """Which kind of database it is."""
    kind = given.get("kind", "sqlite")
    if kind not in FLAVOURS:
        raise InputError(f"{what}.kind must be one of {', '.join(FLAVOURS)}, not {brief(kind)}")
    return str(kind)


def described(
    given: Mapping[str, Any], what: str, own: frozenset[str], kept: tuple[str, ...]
) -> dict[str, Any]:
    """The part of a descriptor that is about the database; those of `kept` that were given."""
    plain: dict[str, Any] = {
        "database": kind_of(given, what),
        "place": _place(given, own | _PLACES, what),
    }
    params = given.get("params")
    if params is not None and not isinstance(params, Mapping):
        raise InputError(f"{what}.params must be a mapping: here parameters need names")
    return plain | {name: given[name] for name in kept if given.get(name) is not None}


def one_statement(value: Any, what: str, kind: str) -> Statement | None:
    """The statement that a text is; None where it is none, or several."""
    statements = split(inputs.text(value, what), FLAVOURS[kind])
    return statements[0] if len(statements) == 1 else None


async def ask(
    performers: Mapping[str, Performer],
    descriptor: Descriptor,
    given: Mapping[str, Any],
    ring: Keyring,
    what: str,
) -> list[dict[str, Any]]:
    """The rows that a statement returns, from the database of the descriptor."""
    whole = {**descriptor["place"], **given}
    whole |= {"auth": entry_of(descriptor, ring), "timeout": descriptor.get("timeout")}
    whole = {name: value for name, value in whole.items() if value is not None}
    work = asked(performers, descriptor["database"], f"read {what}", f"{what} failed")
    rows: list[dict[str, Any]] = (await work(whole))["rows"]
    return rows


def _place(given: Mapping[str, Any], known: frozenset[str], what: str) -> dict[str, Any]:
    """Where the database is, without anything that must not be recorded."""
    for name in given:
        if name in _SECRETS:
            raise InputError(
                f"{what}.{name} would be recorded; name an entry of the keychain instead "
                f"({what}.auth: NAME)"
            )
        if name not in known:
            words = ", ".join(sorted(known))
            raise InputError(f"{what}: '{name}' is not known; there are {words}")
    if not isinstance(given.get("auth", ""), str):
        raise InputError(f"{what}.auth must be the name of a keychain entry")
    place = {name: given[name] for name in _PLACES & given.keys()}
    for name in ("dsn", "connection"):
        text = str(place.get(name, ""))
        user = text.partition("://")[2].partition("/")[0].rpartition("@")[0]
        if "password" in text.lower() or user.partition(":")[2]:
            raise InputError(
                f"{what}.{name} has a password in it, which would be recorded; name an entry of "
                f"the keychain instead ({what}.auth: NAME)"
            )
    return place
