"""PostgreSQL's errors as ours, each with the next step for the reader.

By SQLSTATE, never by text: texts change with the language of the server. Only a connection that is
refused has no SQLSTATE: libpq gives the text alone, and what its words do not tell is told in
general.
"""

from __future__ import annotations

import re

import psycopg

from anabranch.errors import StoreError, UnusableStore
from anabranch.store.outages import AWAY, READ_ONLY
from anabranch.store.relational.errors import CONSTRAINT

SETTING = "--store or ANABRANCH_STORE"  # where an address stands

# SQLSTATE or its class → (code for machines, what to do)
_ADVICE = {
    "23": (CONSTRAINT, "a value breaks a rule of the schema. Nothing was written; report it."),
    "22": ("store_value", "a value cannot be stored. Nothing was written."),
    "25006": (
        READ_ONLY,
        "the server only takes reads: it is a replica, or was set to read-only. Name the primary "
        f"in {SETTING}.",
    ),
    "28": (
        "store_password",
        f"the server refuses the user or the password. Check both in {SETTING}, or the variable "
        "PGPASSWORD or the file that libpq takes the password from.",
    ),
    "3D000": (
        "store_no_database",
        f"there is no such database. Create it, or name another one in {SETTING}.",
    ),
    "3F000": (
        "store_no_schema",
        f"there is no such schema, and it may not be created. Check ?schema= in {SETTING}.",
    ),
    "42501": (
        "store_rights",
        f"the user of {SETTING} lacks a right that is needed. docs/postgres.md lists them.",
    ),
    "42939": ("store_address", f"the server refuses this name. Check ?schema= in {SETTING}."),
    "53100": (
        "store_full",
        "the disk of the server is full. Nothing of this write was kept; free some space.",
    ),
    "53300": ("store_busy", "the server has no connection left for us. Raise max_connections."),
    "53": ("store_busy", "the server is short of memory or of places. Try again."),
    "55P03": ("store_busy", "another session kept a lock for too long. Try again."),
    "57014": ("store_slow", "the statement took longer than the server allows. Try again."),
    "40": ("store_busy", "it met another transaction on the same rows. Try again."),
    "25P": (AWAY, "the server has ended the session: a transaction stood still for too long."),
    "57P": (AWAY, "the server is stopping, starting or has ended the session."),
    "08": (AWAY, "the connection to the server is lost."),
}
_DAMAGED = ("XX001", "XX002")
# What libpq says of a connection that was refused → the SQLSTATE it has kept from us
_REFUSED = (
    ("28P01", r"password authentication failed|no password supplied|no pg_hba\.conf entry"),
    ("28P01", r"role \".*\" does not exist|role \".*\" is not permitted to log in"),
    ("3D000", r"database \".*\" does not exist"),
    ("42501", r"permission denied for database|does not have CONNECT privilege"),
    ("53300", r"too many (clients|connections)|remaining connection slots"),
)
_UNKNOWN_HOST = re.compile(r"failed to resolve host|could not translate host name")
_NOT_LISTENING = re.compile(r"Connection refused|No such file or directory|actively refused")


def translate(error: Exception, shown: str) -> StoreError:
    """What a caller of the store is told about an error of the driver."""
    state = getattr(error, "sqlstate", None) or ""
    diag = getattr(error, "diag", None)
    text = (getattr(diag, "message_primary", None) or type(error).__name__) if diag else str(error)
    if state in _DAMAGED:
        return UnusableStore(f"{shown} is damaged ({state}): {text}. Restore it from a backup.")
    if advice := _advice(state):
        code, words = advice
        return StoreError(f"store {shown}: {words} ({state}: {text})", code=code)
    if not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        words = _ADVICE["08"][1]
        return StoreError(f"store {shown}: {words} ({_first(error)})", code=AWAY)
    if isinstance(error, psycopg.DataError | UnicodeEncodeError | OverflowError):
        return StoreError(
            f"store {shown}: a value cannot be stored ({text}); nothing was written",
            code="store_value",
        )
    return StoreError(f"store {shown}: unexpected error {state}: {text}")


def not_connected(error: psycopg.Error, shown: str) -> StoreError:
    """Why there is no connection. `error` may have tried several addresses of one host."""
    text = _first(error)
    if state := getattr(error, "sqlstate", None):
        return translate(error, shown)
    for state, words in _REFUSED:
        if re.search(words, str(error)):
            code, advice = _advice(state) or (AWAY, "")
            return StoreError(f"store {shown}: {advice} ({text})", code=code)
    if _UNKNOWN_HOST.search(text):
        said = f"there is no such host. Check the host in {SETTING}"
    elif _NOT_LISTENING.search(text):
        said = f"no server answers there. Start it, or check host and port in {SETTING}"
    else:
        said = f"it cannot be reached. Check the server, and host and port in {SETTING}"
    return StoreError(f"store {shown}: {said}. ({text})", code=AWAY)


def _advice(state: str) -> tuple[str, str] | None:
    found = (_ADVICE.get(state[:length]) for length in (5, 3, 2))
    return next((each for each in found if each is not None), None)


def _first(error: Exception) -> str:
    """The first line of what libpq says; it names host and user, never the password."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
