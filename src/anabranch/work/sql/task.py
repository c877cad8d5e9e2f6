"""What a SQL task asks for: its inputs read once.

    command | commands | query    text, also as base64 under `command_b64` and so on; `commands` is
                                  a list of texts or of {command, params}
    params                        a list for one statement, a mapping for any number of them
    auth                          fields of the connection, such as an entry of the keychain
    autocommit                    true: no transaction around the commands
    timeout                       the commands are cancelled after that

Placeholders are those of the database: `?` and `:name` in SQLite, `%s`, `%(name)s` and `$1` in
PostgreSQL, `?`, `$1` and `$name` in DuckDB.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.work.kinds import inputs
from anabranch.work.secrets.redaction import brief
from anabranch.work.sql.text import (
    Flavour,
    Statement,
    split,
    take_apart,
    within_one_transaction,
)

_NAMES = ("command", "commands", "query")
_ENCODED = tuple(f"{name}_b64" for name in _NAMES)
_CONNINFO = re.compile(r"\b(host|hostaddr|port|dbname|user|password|service)\s*=")
_DATABASES = (".db", ".sqlite", ".sqlite3", ".duckdb", ".ddb")

Params = list[Any] | dict[str, Any] | None


class SqlCommand(msgspec.Struct, frozen=True):
    statement: Statement
    params: Params


class SqlTask(msgspec.Struct, frozen=True, kw_only=True):
    commands: tuple[SqlCommand, ...]
    autocommit: bool = False
    timeout_seconds: float | None = None

    @property
    def reads(self) -> bool:
        return all(command.statement.reads for command in self.commands)


async def read_task_aside(given: Mapping[str, Any], flavour: Flavour) -> SqlTask:
    """The same, beside the event loop where the statements are long."""
    texts = [given.get(name) for name in (*_NAMES, *_ENCODED)]
    return await take_apart(texts, read_task, given, flavour)


def read_task(given: Mapping[str, Any], flavour: Flavour) -> SqlTask:
    """The commands of a task, or an `InputError` that names the input at fault."""
    autocommit = inputs.flag(given.get("autocommit", False), "autocommit")
    commands = _commands(given, flavour, autocommit)
    if not commands:
        raise InputError("there is no SQL statement in it")
    return SqlTask(
        commands=tuple(commands),
        autocommit=autocommit,
        timeout_seconds=inputs.timeout(given),
    )


def connection_fields(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What the task says about its connection; its own fields win over those of `auth`."""
    auth = given.get("auth", given.get("credential"))
    if isinstance(auth, str):
        auth = _one_text(auth, names, placed=any(given.get(name) is not None for name in names))
    fields = dict(inputs.mapping(auth, "auth"))
    fields |= {name: given[name] for name in names if given.get(name) is not None}
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _one_text(text: str, names: tuple[str, ...], *, placed: bool) -> dict[str, str]:
    """A secret that is one text: a whole address, or else the password to one that the task has. Of
    a kind without passwords it is the database; no file is made with the name of a token."""
    if "password" in names:
        return {"dsn" if "://" in text or _CONNINFO.search(text) else "password": text}
    if text == ":memory:" or text.lower().endswith(_DATABASES) or text.startswith(("/", "./")):
        return {"database": text}
    if placed:
        return {}
    raise InputError(
        "auth is one text, and this kind takes a database there: a path such as data/shop.db, or a "
        "mapping {database: …}"
    )


def _commands(given: Mapping[str, Any], flavour: Flavour, autocommit: bool) -> list[SqlCommand]:
    params = _params(given.get("params"))
    commands: list[SqlCommand] = []
    for text, own in _scripts(given):
        found = split(text, flavour)
        statements = found if autocommit else within_one_transaction(found)
        chosen = params if own is None else own
        if isinstance(chosen, list) and len(statements) > 1:
            raise InputError("a list of params fits one statement; give them names instead")
        commands += [SqlCommand(statement, chosen) for statement in statements]
    if isinstance(params, list) and len(commands) > 1:
        raise InputError("a list of params fits one statement; give them names instead")
    return commands


def _scripts(given: Mapping[str, Any]) -> list[tuple[str, Params]]:
    written = [name for name in (*_NAMES, *_ENCODED) if given.get(name) is not None]
    if len(written) != 1:
        found = f"it has {' and '.join(written)}" if written else "it has none of them"
        raise InputError(f"a SQL task takes one of {', '.join(_NAMES)} (or with _b64); {found}")
    name = written[0]
    value = _decoded(given[name], name) if name.endswith("_b64") else given[name]
    if isinstance(value, list):
        return [_script(each, f"{name}[{index}]") for index, each in enumerate(value)]
    return [(inputs.text(value, name), None)]


def _script(each: Any, what: str) -> tuple[str, Params]:
    if not isinstance(each, Mapping):
        return inputs.text(each, what), None
    for name in ("command", "query", "sql"):
        if each.get(name) is not None:
            return inputs.text(each[name], f"{what}.{name}"), _params(each.get("params"))
    raise InputError(f"{what} has no command")


def _decoded(value: Any, what: str) -> Any:
    if isinstance(value, list):
        return [_decoded(each, what) for each in value]
    try:
        return base64.b64decode(inputs.text(value, what), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InputError(f"{what} is not base64 of UTF-8 text: {error}") from None


def _params(value: Any) -> Params:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return list(value)
    raise InputError(f"params must be a list or a mapping, not {brief(value)}")
