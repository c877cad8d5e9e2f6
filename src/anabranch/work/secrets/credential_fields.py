"""What a credential is for work: its fields under the names that kinds of work ask for.

A type says which fields there have to be. Other names for the same, as other registries spell
them (`db_host`, `connection_string`), are understood and kept beside ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from anabranch.errors import InputError
from anabranch.net.problems import closest


class Type(msgspec.Struct, frozen=True):
    """One type of credential."""

    single: str = "value"  # the field that a single text is
    needs: tuple[tuple[str, ...], ...] = ()  # of each, one has to be there
    aliases: Mapping[str, str] | None = None


_POSTGRES = {
    "db_host": "host",
    "hostname": "host",
    "db_port": "port",
    "db_user": "user",
    "username": "user",
    "db_password": "password",
    "db_name": "dbname",
    "database": "dbname",
    "connection_string": "dsn",
    "uri": "dsn",
    "url": "dsn",
}
_HTTP = {"access_token": "token", "user": "username", "key": "api_key", "apiKey": "api_key"}

TYPES: Mapping[str, Type] = {
    "postgres": Type("dsn", (("dsn", "host", "service"),), _POSTGRES),
    "http": Type("token", (("token", "username", "headers", "api_key"),), _HTTP),
    "bearer": Type("token", (("token",),), {"access_token": "token"}),
    "basic": Type("value", (("username",), ("password",)), {"user": "username"}),
    "api_key": Type("api_key", (("api_key",),), {"key": "api_key", "value": "api_key"}),
    "oauth2": Type("value", (("endpoint", "url", "token_url"),)),
    "duckdb": Type("database"),
    "sqlite": Type("database"),
    "snowflake": Type(),
    "nats": Type("url"),
    "s3": Type(),
    "gcs": Type(),
    "secret": Type(),
}
_SPELLINGS = {
    "postgresql": "postgres",
    "pg": "postgres",
    "http_bearer": "bearer",
    "httpbearerauth": "bearer",
    "http_basic": "basic",
    "httpbasicauth": "basic",
    "apikey": "api_key",
    "api-key": "api_key",
    "generic": "secret",
    "static": "secret",
    "gcs_hmac": "gcs",
    "hmac": "gcs",
    "s3_hmac": "s3",
    "aws": "s3",
    "text": "secret",
}
FIELDS_MAX = 64


def type_of(word: str) -> str:
    """The type that is meant; "" stays "", which is: it follows from the fields."""
    name = word.strip().lower()
    name = _SPELLINGS.get(name, name)
    if name and name not in TYPES:
        close = closest(name, TYPES)
        hint = f" ({close})" if close else ""
        raise InputError(
            f"there is no type {word[:40]!r} of credentials{hint}: there are {', '.join(TYPES)}. "
            "`secret` takes any fields",
            code="credential_type",
        )
    return name


def checked_fields(kind: str, data: Any) -> dict[str, Any]:
    """The fields to keep; raises `InputError` where the type lacks one."""
    of = TYPES[kind]
    if isinstance(data, str):
        if not data:
            raise _wrong("the value is empty")
        fields: dict[str, Any] = {of.single: data}
    elif isinstance(data, Mapping):
        fields = {str(key): value for key, value in data.items() if key != "type"}
    else:
        raise _wrong(f"a credential is a text or a JSON object, not {type(data).__name__}")
    if not fields:
        raise _wrong("it has no fields")
    if len(fields) > FIELDS_MAX:
        raise _wrong(f"it has {len(fields)} fields, more than {FIELDS_MAX}")
    known = _with_aliases(of, fields)
    for one in of.needs:
        if not any(known.get(name) not in (None, "") for name in one):
            words = " or ".join(f"`{name}`" for name in one)
            raise _wrong(f"one of type {kind} needs {words}; it has {', '.join(sorted(fields))}")
    return fields


def _wrong(why: str) -> InputError:
    return InputError(f"this cannot be the credential: {why}", code="credential_value")


def for_work(kind: str, data: Any) -> Any:
    """What templates and `auth` get: one text, or fields with ours among their names."""
    kind = _SPELLINGS.get(kind.lower(), kind.lower())
    of = TYPES.get(kind, TYPES["secret"])
    if isinstance(data, str):
        if kind in ("", "secret"):
            return data
        data = {of.single: data}
    if kind == "secret" and set(data) == {"value"}:
        return data["value"]
    fields = _with_aliases(of, data)
    fields.pop("type", None)
    if kind == "postgres" and (password := password_in(fields.get("dsn"))):
        fields.setdefault("password", password)  # so that it is a secret by itself, too
    if kind == "nats" and not fields.keys() & {"user", "username", "password", "token"}:
        fields |= _login_in(fields.get("url"))
    shown = kind if kind in ("bearer", "basic", "api_key", "oauth2", "postgres") else ""
    return {**({"type": shown} if shown else {}), **fields}


def password_in(value: Any) -> str:
    """The password in an address such as `postgresql://user:password@host/name`."""
    if not isinstance(value, str) or "://" not in value or "@" not in value:
        return ""
    authority = value.partition("://")[2].partition("/")[0]
    return unquote(authority.rpartition("@")[0].partition(":")[2])


def logins_in(address: str) -> list[str]:
    """What is secret by itself in an address: the password, and as it is spelled there; of NATS the
    token."""
    found = password_in(address) or str(_login_in(address).get("token", ""))
    if not found or not (password_in(address) or address.startswith(("nats://", "tls://"))):
        return []
    return list(dict.fromkeys([found, quote(found, safe="")]))


def _login_in(url: Any) -> dict[str, str]:
    """What an address of NATS says before its host: the user and the password, or the token."""
    if not isinstance(url, str) or "@" not in url:
        return {}
    login = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    user, colon, password = (unquote(part) for part in login.partition(":"))
    return {"user": user, "password": password} if colon else {"token": user}


def _with_aliases(of: Type, fields: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(fields)
    for name, ours in (of.aliases or {}).items():
        if name in fields and ours not in fields:
            found.setdefault(ours, fields[name])
    return found
