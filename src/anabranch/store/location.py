"""Where a store is: a file, the memory of the process, or a schema of a PostgreSQL database."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from anabranch.errors import StoreError

MEMORY = ":memory:"
SCHEMES = ("postgresql", "postgres")
SCHEMA_MARK = "anabranch store, version "  # how the comment of a schema with a store begins
_SECRET = ("password", "passfile", "sslpassword")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def require_known_scheme(store: str) -> None:
    """Raises for the address of a kind of store that there is none of."""
    found = _SCHEME.match(store)
    if found and not on_postgres(store):
        raise StoreError(
            f"there is no store at {found[1]}://…: --store and ANABRANCH_STORE take the path of a "
            "file, or an address postgresql://user@host/database",
            code="store_address",
        )


def on_postgres(store: str) -> bool:
    """Whether it is named by the address of a server, and not by a path."""
    return store.partition("://")[0] in SCHEMES and "://" in store


def has_file(store: str) -> bool:
    return store != MEMORY and not on_postgres(store)


def exists(store: str) -> bool:
    """Whether looking into it would not make it. A database answers that itself."""
    return on_postgres(store) or (store != MEMORY and Path(store).exists())


def tells_password(store: str) -> bool:
    """Whether the address holds one, for every reader of it."""
    if not on_postgres(store):
        return False
    before, _, options = store.partition("://")[2].partition("?")
    named = any(name.endswith("password") for name, _ in parse_qsl(options))
    return named or bool(before.rpartition("@")[0].partition(":")[2])


def shown(store: str) -> str:
    """For people and logs: an address without its password, and without what stands behind one: a
    & in it would make the rest of it look like options."""
    if not on_postgres(store):
        return store
    try:
        parts = urlsplit(store)
    except ValueError:
        return f"{store.partition('://')[0]}://…"
    if "@" not in parts.netloc and "@" in store:  # a password that ends early
        return f"{parts.scheme}://…"
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}@{host}" if user else host
    options = parse_qsl(parts.query, keep_blank_values=True)
    kept = list(takewhile(lambda option: option[0] not in _SECRET, options))
    rest = f"?{urlencode(kept, safe='/')}" if kept else ""
    return f"{parts.scheme}://{netloc}{parts.path}{rest}"
