"""`token`: make, list and revoke the tokens of a store, or of a server."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from anabranch.operations.access.tokens import AccessControl, Caller, entry
from anabranch.settings import Settings
from anabranch.store.access_ports import AccessToken
from anabranch.store.factory import open_store
from anabranch.store.ports import Store
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.backend import Row, who
from anabranch.surfaces.cli.output import render

HEAD = ("ID", "NAME", "SCOPES", "POOLS", "STATE", "MADE", "EXPIRES", "LAST USED")


async def token(options: argparse.Namespace, settings: Settings) -> int:
    return await ACTIONS[options.action](options, settings)


def _now() -> int:
    return int(time.time() * 1000)


@contextmanager
def _access(
    settings: Settings, *, read_only: bool = False
) -> Iterator[tuple[AccessControl, Store]]:
    """The tokens of the store. A server on it sees a change with the next request."""
    if read_only:
        values.require_store(settings)
    store = open_store(settings, read_only=read_only)
    try:
        yield AccessControl(store, _now), store
    finally:
        store.close()


def _shown(access: AccessControl, one: AccessToken) -> Row:
    fields: Row = msgspec.to_builtins(one)
    del fields["digest"]
    return {**fields, "state": access.state_of(one)}


def _record(options: argparse.Namespace, store: Store, action: str, token_id: str) -> None:
    caller = Caller(who(options), frozenset())
    store.add_audit([entry(caller, action, _now(), subject=token_id, address="command line")])


async def _create(options: argparse.Namespace, settings: Settings) -> int:
    name = options.name or who(options)
    if settings.server:
        body: Row = {"name": name, "scopes": options.scope, "lifetime_days": options.days}
        if options.pool:  # a server of before does not know the word
            body["pools"] = options.pool
        made = await _at_server(options, settings, "POST", body=body)
    else:
        with _access(settings) as (access, store):
            one, text = access.create(name, options.scope, options.days, options.pool)
            _record(options, store, "tokens.create", one.id)
            made = {**_shown(access, one), "token": text}
    if options.json:
        print(render.json_line(made))
        return 0
    print(made["token"])
    scopes = ", ".join(made["scopes"])
    pools = f", for {_pools(made)}" if made.get("pools") else ""
    told = f"token {made['id']} of {made['name']} ({scopes}{pools}); it is shown this once"
    print(told, file=sys.stderr)
    return 0


async def _list(options: argparse.Namespace, settings: Settings) -> int:
    if settings.server:
        rows = (await _at_server(options, settings, "GET"))["items"]
    else:
        with _access(settings, read_only=True) as (access, _):
            rows = [_shown(access, one) for one in access.tokens()]
    if options.json:
        print(render.json_line(rows))
        return 0
    cells = [
        (row["id"], row["name"], ",".join(row["scopes"]), _pools(row), row["state"],
         _instant(row["created_at"]), _instant(row["expires_at"]), _instant(row["last_used_at"]))
        for row in rows
    ]  # fmt: skip
    print("\n".join(render.table(cells, HEAD)) if cells else "no tokens")
    return 0


async def _revoke(options: argparse.Namespace, settings: Settings) -> int:
    if settings.server:
        row = await _at_server(options, settings, "DELETE", options.token_id)
    else:
        values.require_store(settings)
        with _access(settings) as (access, store):
            row = _shown(access, access.revoke(options.token_id))
            _record(options, store, "tokens.delete", options.token_id)
    print(render.json_line(row) if options.json else f"revoked: {row['id']} of {row['name']}")
    return 0


async def _at_server(
    options: argparse.Namespace, settings: Settings, method: str, *path: str, body: Any = None
) -> Any:
    from anabranch.surfaces.cli.backend.http.backend import http_backend

    async with http_backend(options, settings) as target:
        match method:
            case "POST":
                return await target.client.post("tokens", body=body)
            case "DELETE":
                return await target.client.delete("tokens", *path)
            case _:
                return await target.client.get("tokens")


def _pools(row: Row) -> str:
    return ",".join(row.get("pools") or ()) or "all" if "work" in row["scopes"] else "-"


def _instant(at: int | None) -> str:
    return render.instant(at) if at else "-"


Action = Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, int]]

ACTIONS: dict[str, Action] = {"create": _create, "list": _list, "revoke": _revoke}
