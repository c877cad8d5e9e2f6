"""What of a server is open, and what of that `docs/security.md` calls risky.

A report is made from facts that are looked at anew: settings, tokens, files and their modes. Every
check gives findings, each with what is so; a risk says in one line why, and what to set.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec

from anabranch.operations.access.secret_key import key_of
from anabranch.operations.access.tokens import IMPLIED, AccessControl
from anabranch.settings import PREFIX, SECRETS, Settings
from anabranch.store.location import has_file
from anabranch.store.ports import Store
from anabranch.store.private_file import exposure
from anabranch.work.file_policy import folders_of_server, read_roots
from anabranch.work.from_settings import for_others, login_of_machine
from anabranch.work.kinds.switched_off import SWITCHABLE_KINDS, switched_off
from anabranch.work.network.addresses import read_policy
from anabranch.work.network.loopback import is_loopback_url

Level = Literal["ok", "risk"]
HTTP_ADDRESSES_FOR_OTHERS = "public private"  # neither this machine nor metadata services

_CODE_KINDS = ("shell", "python", "script", "container")
_CONTAINER_COMMANDS = ("podman", "docker")
#: Variables that give whoever reads them what they are for.
_SECRET_VARIABLES = (*(PREFIX + name.upper() for name in SECRETS), "PGPASSWORD")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ANY_HOST = ("", "0.0.0.0", "::")  # all addresses of a machine
_INSIDE = ("127.0.0.1", "::1", "169.254.169.254", "fd00:ec2::254")  # this machine, metadata
#: Settings that name a file with a secret in it, and what that is.
_SECRET_FILES = {
    "secret_key_file": "the key of the store",
    "token_file": "a token",
    "tls_key": "the key of the certificate",
    "chain_signer_key_file": "the key that signs transactions",
    "rule_keys_file": "keys of encrypted rules",
    "credential_folder": "credentials",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    topic: str  # address, token, inline, files, databases, calls, rpc, key, store, pool
    level: Level
    what: str
    why: str = ""  # of a risk: what it means
    change: str = ""  # of a risk: what to set or do


class SecurityReport(msgspec.Struct, frozen=True, kw_only=True):
    status: Level
    place: str  # the URL of the server; "" where none was asked
    findings: list[Finding]


class ServerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """How a server can be reached, or could be with its settings."""

    url: str = ""
    host: str
    loopback: bool
    tokens: bool  # callers need one
    tls: bool
    proxies: bool


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    store: Store
    now: int
    address: ServerAddress


def report(settings: Settings, store: Store, now: int, address: ServerAddress) -> SecurityReport:
    """Every finding, risks first. It looks at files: call it in a thread."""
    settings = as_served(settings, loopback=address.loopback)
    facts = _Facts(settings=settings, store=store, now=now, address=address)
    found = [finding for check in CHECKS for finding in check(facts)]
    found.sort(key=lambda one: one.level == "ok")
    risky = any(one.level == "risk" for one in found)
    return SecurityReport(status="risk" if risky else "ok", place=address.url, findings=found)


def as_served(settings: Settings, *, loopback: bool) -> Settings:
    """The settings of a server: what was left open is narrower there. Callers name files in what
    they start, and are not always those who may read what the server can; where other machines
    reach it, its tokens are held by people who have no account on this one."""
    settings = for_others(settings)
    if not settings.files_allowed:
        settings = replace(settings, files_allowed=folders_of_server(settings))
    if loopback or settings.http_addresses:
        return settings
    return replace(settings, http_addresses=HTTP_ADDRESSES_FOR_OTHERS)


def would_listen(settings: Settings) -> ServerAddress:
    """How a server with these settings would be reached."""
    host = settings.serve_host
    loopback = host not in _ANY_HOST and is_loopback_url(
        f"//[{host}]" if ":" in host else f"//{host}"
    )
    proxies = bool(settings.serve_proxies.split())
    return ServerAddress(
        host=host,
        loopback=loopback,
        tokens=not loopback or proxies or settings.require_tokens == "yes",
        tls=bool(settings.tls_cert),
        proxies=proxies,
    )


def _ok(topic: str, what: str) -> Finding:
    return Finding(topic=topic, level="ok", what=what)


def _risk(topic: str, what: str, why: str, change: str) -> Finding:
    return Finding(topic=topic, level="risk", what=what, why=why, change=change)


# -- who gets in -----------------------------------------------------------------------------


def check_address(facts: _Facts) -> Iterator[Finding]:
    at = facts.address
    if not at.tokens:
        yield _risk(
            "address",
            f"{at.host} answers without a token",
            "every user and every program of this machine may do everything",
            "require_tokens = yes, and `anabranch token create`",
        )
    elif not at.loopback and not at.tls and not at.proxies:
        yield _risk(
            "address",
            f"{at.host} is reached from other machines without TLS",
            "tokens, and the secrets of jobs for workers, travel in clear",
            "tls_cert and tls_key, or a proxy with TLS and serve_proxies",
        )
    else:
        how = "TLS" if at.tls else "a proxy" if at.proxies else "this machine only"
        yield _ok("address", f"{at.host} answers callers with a token ({how})")


def check_tokens(facts: _Facts) -> Iterator[Finding]:
    access = AccessControl(facts.store, lambda: facts.now)
    for token in filter(access.usable, access.tokens()):
        what = f"{token.id} of {token.name} ({', '.join(token.scopes)})"
        if token.expires_at is not None:
            yield _ok("token", f"{what} expires on {_day(token.expires_at)}")
            continue
        scopes = frozenset[str]().union(*(IMPLIED.get(one, frozenset()) for one in token.scopes))
        code = ", and to run code on the server" if "operate" in scopes else ""
        made = " ".join(f"--scope {scope}" for scope in token.scopes)
        yield _risk(
            "token",
            f"{what} never expires",
            f"a copy of it that is lost opens the server for good{code}",
            f"`anabranch token create {made} --days 90`, then `anabranch token revoke {token.id}`",
        )


def _day(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).date().isoformat()


def check_rpc(facts: _Facts) -> Iterator[Finding]:
    heard = {"off": "no caller", "token": "callers with a token", "permit": "holders of a permit"}
    yield _ok("rpc", f"/rpc hears {heard[facts.settings.rpc_access]} (rpc_access)")


# -- what definitions may do -----------------------------------------------------------------


def check_inline(facts: _Facts) -> Iterator[Finding]:
    settings = facts.settings
    off = switched_off(settings.no_inline, SWITCHABLE_KINDS)
    code = [kind for kind in _CODE_KINDS if kind not in off]
    if not code:
        yield _ok("inline", f"no definition runs code ({', '.join(_CODE_KINDS)} are off)")
    elif settings.inline_user:
        yield _ok("inline", f"{', '.join(code)} run as the user {settings.inline_user}")
    else:
        yield _risk(
            "inline",
            f"definitions run code: {', '.join(code)}",
            "a caller who may start one reads the store, its key and the environment of the server",
            "inline_user = NAME, or no_inline = shell python",
        )
    command = settings.container_command or next(filter(shutil.which, _CONTAINER_COMMANDS), "")
    if "container" not in off and command:
        yield _risk(
            "inline",
            f"definitions start containers with {command}",
            "who may start containers is root on most machines",
            "no_inline = container",
        )
    passed = [
        name
        for name in _SECRET_VARIABLES
        if any(fnmatchcase(name, each) for each in settings.inline_environment.split())
    ]
    if code and passed:
        yield _risk(
            "inline",
            f"code of definitions inherits {', '.join(passed)}",
            "inline_environment hands the secrets of the server to every definition",
            "inline_environment without them",
        )


def check_files(facts: _Facts) -> Iterator[Finding]:
    """Which files definitions may name."""
    roots = read_roots(facts.settings.files_allowed)
    if roots is None:
        yield _risk(
            "files",
            "definitions name every file that the server may read",
            "a definition can put the files of others into its results",
            "files_allowed = the folders that definitions need, or none",
        )
    else:
        folders = ", ".join(roots) or "no folder"
        yield _ok("files", f"definitions name files below {folders} only")


def check_databases(facts: _Facts) -> Iterator[Finding]:
    """As whom tasks log in to PostgreSQL."""
    off = switched_off(facts.settings.no_inline, SWITCHABLE_KINDS)
    if "postgres" not in off and login_of_machine(facts.settings):
        yield _risk(
            "databases",
            "tasks log in to PostgreSQL as the server: with its PG variables, ~/.pgpass and socket",
            "a definition opens every database that the server may, the store included",
            "postgres_identity = task",
        )


def check_calls(facts: _Facts) -> Iterator[Finding]:
    settings = facts.settings
    for name in ("http_addresses", "rule_addresses"):
        policy = read_policy(getattr(settings, name), name)
        if any(policy.allows(each) for each in _INSIDE):
            yield _risk(
                "calls",
                f"{name} lets definitions call {policy.text} addresses",
                "they reach services of this machine, or the metadata service of a cloud",
                f"{name} = {HTTP_ADDRESSES_FOR_OTHERS}",
            )
        else:
            yield _ok("calls", f"{name}: {policy.text}")
    for name, open_to in (("webhook_addresses", "any"), ("chain_rule_urls", "allow")):
        if getattr(settings, name) == open_to:
            yield _risk(
                "calls",
                f"{name} is {open_to}",
                "a caller who may name an address reaches the networks of this machine",
                f"leave {name} out",
            )


# -- what lies on this machine ---------------------------------------------------------------


def check_store(facts: _Facts) -> Iterator[Finding]:
    file = facts.settings.store
    if not has_file(file):
        return
    if exposure(Path(file)):
        yield _risk(
            "store",
            f"{file} is open to others",
            "other users of this machine get at its runs, secrets and token hashes",
            f"chmod 600 {file}*",
        )
    else:
        yield _ok("store", f"{file} is for its owner alone")


def check_keys(facts: _Facts) -> Iterator[Finding]:
    settings = facts.settings
    if settings.secret_key:
        yield _ok("key", "the key of the store is in the environment or in the settings file")
    places = {name: str(getattr(settings, name)) for name in _SECRET_FILES}
    if not settings.secret_key and not settings.secret_key_file and has_file(settings.store):
        places["secret_key_file"] = key_of(facts.store, settings).place
    for name, place in places.items():
        if place:
            yield from _mode_of(_SECRET_FILES[name], Path(place))


def _mode_of(what: str, path: Path) -> Iterator[Finding]:
    try:
        about = path.stat()
    except OSError:
        return  # it was not made yet, or its reader says what is wrong
    mode = stat.S_IMODE(about.st_mode)
    if mode & _OTHERS and os.name == "posix":
        wanted = "700" if stat.S_ISDIR(about.st_mode) else "600"
        yield _risk(
            "key",
            f"{what}: {path} has the mode {mode:04o}",
            "other users of this machine can get at it",
            f"chmod {wanted} {path}",
        )
    else:
        yield _ok("key", f"{what}: {path} has the mode {mode:04o}")


# -- clusters --------------------------------------------------------------------------------


def check_pools(facts: _Facts) -> Iterator[Finding]:
    for pool in facts.settings.pools.replace(",", " ").split():
        name, _, address = pool.partition("=")
        scheme = address.partition(":")[0]
        if scheme == "dask+tls" or (scheme == "ray" and os.environ.get("RAY_USE_TLS") == "1"):
            yield _ok("pool", f"{name} is on a cluster with TLS")
        elif is_loopback_url(address):
            yield _ok("pool", f"{name} is on a cluster of this machine")
        else:
            yield _risk(
                "pool",
                f"{name} is on a cluster without TLS",
                "who reaches its scheduler runs code there and reads what jobs are given",
                "dask+tls://, or RAY_USE_TLS=1 on all sides",
            )


#: What a new setting opens gets a check of its own, or a part in one of these.
CHECKS: Sequence[Callable[[_Facts], Iterator[Finding]]] = (
    check_address,
    check_tokens,
    check_rpc,
    check_inline,
    check_files,
    check_databases,
    check_calls,
    check_store,
    check_keys,
    check_pools,
)
