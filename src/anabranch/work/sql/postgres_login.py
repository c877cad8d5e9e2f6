"""As whom tasks log in to PostgreSQL where those who write them are not those whose machine it is.

libpq adds to the address of a task what it finds on the machine: variables (`PG*`), `~/.pgpass`, a
service file, certificates in `~/.postgresql`, a Kerberos ticket. At a socket the database asks the
system who calls (`peer`). A task that names a user and a host would so log in with the passwords of
the engine, be it to the engine's own store, or send them to whom it likes. On servers and workers
everything that says who calls, and where to, comes from the task. What the machine demands of a
connection (`PGSSLMODE`, `PGSSLROOTCERT`) holds: it gives nothing away.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.store.location import SCHEMA_MARK

#: What may come from the environment: how to talk, and not as whom nor to whom.
_OF_THE_MACHINE = frozenset(
    {"sslmode", "sslrootcert", "sslcrl", "sslcrldir", "sslsni", "sslcompression", "requirepeer"}
    | {"sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version"}
    | {"min_protocol_version", "max_protocol_version", "channel_binding"}
    | {"target_session_attrs", "load_balance_hosts", "connect_timeout", "application_name"}
)
_WITH_A_PASSWORD = ("scram-sha-256", "md5", "password")  # no Kerberos, no OAuth of the machine
_PASSWORDS = ("password", "passfile", "scram_client_key")
_NOWHERE = os.path.join(os.devnull, "none")  # libpq looks for no other file, and says nothing
_SERVICE = "PGSERVICE"
_SETTING = "postgres_identity is task"
_WITH_STORES = 140_000  # an older server, or what only speaks like one, has no store
#: A store that this user, or one that they may become, can look into. What counts is who came in,
#: and not who an option of the address made of them; every name is said in full, so that no path of
#: searching puts another in its place.
_STORE = f"""
SELECT n.nspname FROM pg_catalog.pg_namespace n
WHERE pg_catalog.starts_with(
    pg_catalog.obj_description(n.oid, 'pg_namespace'), '{SCHEMA_MARK}'
) AND EXISTS (
    SELECT 1 FROM pg_catalog.pg_roles me, pg_catalog.pg_roles r
    WHERE me.rolname OPERATOR(pg_catalog.=) ANY (ARRAY[%s::pg_catalog.name, session_user])
    AND pg_catalog.pg_has_role(me.oid, r.oid, 'MEMBER')
    AND pg_catalog.has_schema_privilege(r.oid, n.oid, 'USAGE')
) LIMIT 1
"""


def of_the_task_alone(psycopg: Any, parts: Mapping[str, str]) -> dict[str, str]:
    """The parts of an address, with nothing in place of what libpq would add from the machine."""
    known = psycopg.pq.Conninfo.get_defaults()
    _require_of_task(parts, {option.keyword.decode() for option in known})
    made = {**parts, **_login(parts)}
    for option in known:
        name, variable = option.keyword.decode(), (option.envvar or b"").decode()
        if name not in made and name not in _OF_THE_MACHINE and variable in os.environ:
            made[name] = (option.compiled or b"").decode()
    return made


def _require_of_task(parts: Mapping[str, str], known: set[str]) -> None:
    if "require_auth" not in known:
        raise InputError(f"postgres needs libpq 16 or newer where {_SETTING}")
    if _SERVICE in os.environ:
        raise InputError(f"{_SERVICE} is set here, and libpq would add what it names: unset it")
    for name in ("service", "servicefile"):
        if name in parts:
            raise InputError(f"the address names a {name}, which is one of this machine{_WHY}")
    if not parts.get("user"):
        raise InputError(f"the address names no user{_WHY}")
    if _at_a_socket(parts) and not any(map(parts.get, _PASSWORDS)):
        raise InputError(
            f"the address is a socket, where the database asks who this machine is{_WHY}: give a "
            "password, or an address with a host"
        )
    if parts.get("sslcert") and not parts.get("sslkey"):
        raise InputError("the address has sslcert, and needs sslkey with it")
    if parts.get("gssencmode") == "require":
        raise InputError(f"the address asks for Kerberos, which is the login of this machine{_WHY}")


_WHY = f", and {_SETTING} here: the task itself says who it is"


def _login(parts: Mapping[str, str]) -> dict[str, str]:
    """What has no variable, or one that cannot be empty."""
    ways = _WITH_A_PASSWORD if _at_a_socket(parts) else (*_WITH_A_PASSWORD, "none")
    asked = parts.get("require_auth")
    if asked and not set(asked.split(",")) <= set(ways):
        raise InputError(f"require_auth can be {', '.join(ways)} here")
    return {
        "require_auth": asked or ",".join(ways),
        "gssencmode": "disable",
        "passfile": parts.get("passfile") or _NOWHERE,
        "sslcertmode": parts.get("sslcertmode", "allow") if parts.get("sslcert") else "disable",
    }


def _at_a_socket(parts: Mapping[str, str]) -> bool:
    """Or at one of several. Without a host libpq takes the socket of this machine."""
    if parts.get("hostaddr"):
        return "" in parts["hostaddr"].split(",")
    return any(not host or host[0] in "/@" for host in parts.get("host", "").split(","))


async def refuse_store(connection: Any) -> None:
    """A store of an engine is opened by engines, here as in files: whoever writes there decides
    what runs."""
    if connection.info.server_version < _WITH_STORES:
        return
    cursor = await connection.execute(_STORE, [connection.info.user])
    if found := await cursor.fetchone():
        raise InputError(
            f"this user may look into the schema {found[0]}, which is a store of Anabranch: "
            "connect as another user, without rights in it"
        )


def without_login(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program with a libpq of its own, such as DuckDB with an extension."""
    kept = {name: text for name, text in environment.items() if not name.startswith("PG")}
    return {
        **kept,
        "PGPASSFILE": _NOWHERE,
        "PGSSLCERTMODE": "disable",
        "PGGSSENCMODE": "disable",
        "PGREQUIREAUTH": ",".join((*_WITH_A_PASSWORD, "none")),
    }
