"""The address of a PostgreSQL store: `postgresql://user@host/database?schema=anabranch`.

Everything libpq understands may stand in it; `schema` is ours. A password is never shown: messages
name host, port, database, user and schema, and quote nothing of an address that cannot be read,
since any part of it may be one of a password.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import msgspec
import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from anabranch.errors import StoreError
from anabranch.store.postgres.errors import SETTING

SCHEMA = "anabranch"
_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d*)?")  # with its port; there may be several
_EXAMPLE = "postgresql://user:password@host:5432/database?schema=anabranch"


class Address(msgspec.Struct, frozen=True):
    conninfo: str  # for libpq; may hold a password
    schema: str
    shown: str  # for people

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def read_address(text: str) -> Address:
    """Raises `StoreError` with the code `store_address` where it cannot be read."""
    try:
        parts = urlsplit(text)
    except ValueError:
        raise _unreadable() from None
    if not _well_formed(parts):
        raise _unreadable()
    given = [each.partition("=") for each in parts.query.split("&") if each]
    options = [(unquote(name), unquote(value)) for name, _, value in given]
    names = [name for name, _ in options]
    quoted = not any(name.endswith("password") for name in names)  # else: behind a & in it, perhaps
    _require_known(names, quoted=quoted)
    schema = _schema([value for name, value in options if name == "schema"], quoted=quoted)
    rest = "&".join("".join(each) for each in given if unquote(each[0]) != "schema")
    try:
        plain = urlunsplit((parts.scheme, parts.netloc, parts.path, rest, ""))
        found = conninfo_to_dict(plain)
        conninfo = make_conninfo(plain)
    except (psycopg.Error, ValueError):
        raise _unreadable() from None
    return Address(conninfo, schema, _shown(found, schema))


def _well_formed(parts: SplitResult) -> bool:
    """Whether the password ends where it seems to: one with a bare @ / ? or # in it does not."""
    user, at, hosts = parts.netloc.partition("@")
    behind = "" if at else f"{parts.path}{parts.query}"
    return (
        not parts.fragment
        and "@" not in hosts + behind
        and all(_HOST.fullmatch(one) for one in (hosts if at else user).split(","))
    )


def _require_known(names: list[str], *, quoted: bool) -> None:
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()} | {"schema"}
    for name in names:
        if name not in known:
            which = f"the option {name!r:.80}" if quoted else "an option"
            raise StoreError(
                f"the address of the store has {which}, which PostgreSQL does not know: mend it in "
                f"{SETTING}. Options are those of libpq, and schema; a & in a password is written "
                "as %26",
                code="store_address",
            )


def _schema(given: list[str], *, quoted: bool) -> str:
    schema = given[-1] if given else SCHEMA
    if not _NAME.fullmatch(schema) or schema == "information_schema":
        which = f"the schema {schema!r:.80}" if quoted else "the schema"
        raise StoreError(
            f"{which} of the store is not a name of at most 63 lower case "
            "letters, digits and underscores that begins with a letter and not with pg_: write "
            f"?schema=anabranch in {SETTING}, or leave it out",
            code="store_address",
        )
    return schema


def _unreadable() -> StoreError:
    return StoreError(
        f"the address of the store in {SETTING} cannot be read. It looks like {_EXAMPLE}; a "
        "character of : / ? # @ % or a space in a name or password is written as % and its code, "
        "@ as %40",
        code="store_address",
    )


def _shown(found: object, schema: str) -> str:
    given = found if isinstance(found, dict) else {}
    user = f"{given['user']}@" if given.get("user") else ""
    host, port = str(given.get("host") or "localhost"), given.get("port")
    database = given.get("dbname") or ""
    if host.startswith("/"):  # the folder of a socket has no place before the database
        more = f"host={host}&port={port}&" if port else f"host={host}&"
        return f"postgresql://{user}/{database}?{more}schema={schema}"
    place = f"{user}{host}:{port}" if port else f"{user}{host}"
    return f"postgresql://{place}/{database}?schema={schema}"


def identity_of(address: Address) -> str:
    """The same for the same store, whichever user asks for it."""
    found = conninfo_to_dict(address.conninfo)
    return _shown({**found, "user": None}, address.schema)
