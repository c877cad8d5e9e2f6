"""`credential`: keep, list, rotate and remove what work finds by name; values are never shown."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from anabranch import files
from anabranch.clock import SystemClock
from anabranch.errors import InputError
from anabranch.operations.access.credentials import CredentialChange, CredentialDraft, Credentials
from anabranch.operations.access.rekey import rekey
from anabranch.operations.access.secret_key import SecretKey, key_of
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.audit import noted
from anabranch.surfaces.cli.backend.local.backend import Row, who
from anabranch.surfaces.cli.output import render
from anabranch.work.secrets.credential_sources import BYTES_MAX, Credential, read_credential

HEAD = ("NAME", "TYPE", "FIELDS", "VERSION", "CHANGED", "BY", "KEY")


async def credential(options: argparse.Namespace, settings: Settings) -> int:
    return await ACTIONS[options.action](options, settings)


# -- where it is asked -------------------------------------------------------------------------


class CredentialBackend(Protocol):
    async def add(self, draft: Row) -> Row: ...

    async def all(self) -> list[Row]: ...

    async def show(self, name: str) -> Row: ...

    async def rotate(self, name: str, data: Any) -> Row: ...

    async def remove(self, name: str) -> Row: ...


@asynccontextmanager
async def _target(
    options: argparse.Namespace, settings: Settings
) -> AsyncIterator[CredentialBackend]:
    if not settings.server:
        yield _Local(settings, who(options))
        return
    from anabranch.surfaces.cli.backend.http.backend import http_backend  # few talk to a server

    async with http_backend(options, settings) as at:
        yield _Remote(at.client)


class _Local:
    """A store of this machine; a server on it finds a change with the next job."""

    def __init__(self, settings: Settings, actor: str) -> None:
        self._settings = settings
        self._actor = actor

    @contextmanager
    def _kept(self, action: str = "", subject: str = "") -> Iterator[Credentials]:
        """With an action: what was asked for is written down, and what became of it."""
        if action != "create":
            values.require_store(self._settings)
        store = open_store(self._settings, read_only=not action)
        try:
            kept = Credentials(store, SystemClock().now, key_of(store, self._settings))
            if not action:
                yield kept
                return
            with noted(store, self._actor, f"credentials.{action}", subject):
                yield kept
        finally:
            store.close()

    async def add(self, draft: Row) -> Row:
        with self._kept("create", draft["name"]) as kept:
            return _row(kept.add(msgspec.convert(draft, CredentialDraft), self._actor))

    async def all(self) -> list[Row]:
        with self._kept() as kept:
            return [_row(one) for one in kept.all()]

    async def show(self, name: str) -> Row:
        with self._kept() as kept:
            return _row(kept.show(name))

    async def rotate(self, name: str, data: Any) -> Row:
        with self._kept("rotate", name) as kept:
            return _row(kept.rotate(name, CredentialChange(data=data), self._actor))

    async def remove(self, name: str) -> Row:
        with self._kept("delete", name) as kept:
            return _row(kept.remove(name))


class _Remote:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def add(self, draft: Row) -> Row:
        made: Row = await self._client.post("credentials", body=draft)
        return made

    async def all(self) -> list[Row]:
        return list((await self._client.get("credentials"))["items"])

    async def show(self, name: str) -> Row:
        found: Row = await self._client.get("credentials", name)
        return found

    async def rotate(self, name: str, data: Any) -> Row:
        changed: Row = await self._client.post("credentials", name, "rotate", body={"data": data})
        return changed

    async def remove(self, name: str) -> Row:
        gone: Row = await self._client.delete("credentials", name)
        return gone


def _row(card: msgspec.Struct) -> Row:
    shown: Row = msgspec.to_builtins(card)
    return shown


# -- the verbs ---------------------------------------------------------------------------------


async def _add(options: argparse.Namespace, settings: Settings) -> int:
    found = _given(options)
    kind = options.type or found.type
    if not kind:
        raise InputError("say what it is for: --type postgres, http, secret …", code="usage")
    draft = {
        "name": options.name,
        "type": kind,
        "data": found.data,
        "description": options.description,
    }
    async with _target(options, settings) as at:
        card = await at.add(draft)
    _tell(options, card, "kept")
    return 0


async def _list(options: argparse.Namespace, settings: Settings) -> int:
    async with _target(options, settings) as at:
        cards = await at.all()
    if options.json:
        print(render.json_line(cards))
        return 0
    rows = [
        (one["name"], one["type"], ",".join(one["fields"]), str(one["version"]),
         render.instant(one["updated_at"]), render.clean(one["updated_by"]), one["key"])
        for one in cards
    ]  # fmt: skip
    print("\n".join(render.table(rows, HEAD)) if rows else "no credentials")
    return 0


async def _show(options: argparse.Namespace, settings: Settings) -> int:
    async with _target(options, settings) as at:
        card = await at.show(options.name)
    if options.json:
        print(render.json_line(card))
        return 0
    facts = {
        "fields": ", ".join(card["fields"]),
        "version": str(card["version"]),
        "description": card["description"],
        "added": f"{render.instant(card['created_at'])} by {card['created_by'] or '-'}",
        "changed": f"{render.instant(card['updated_at'])} by {card['updated_by'] or '-'}",
        "key": card["key"],
    }
    print(f"credential {card['name']} ({card['type']})")
    print("\n".join(f"  {key}: {render.clean(said)}" for key, said in facts.items() if said))
    return 0


async def _rotate(options: argparse.Namespace, settings: Settings) -> int:
    found = _given(options)
    async with _target(options, settings) as at:
        card = await at.rotate(options.name, found.data)
    _tell(options, card, "rotated")
    return 0


async def _remove(options: argparse.Namespace, settings: Settings) -> int:
    async with _target(options, settings) as at:
        card = await at.remove(options.name)
    _tell(options, card, "removed")
    return 0


async def _rekey(options: argparse.Namespace, settings: Settings) -> int:
    """At the store itself, which no engine may be using: keys do not travel."""
    if settings.server:
        raise InputError(
            "keys are not sent to a server: stop it, run `credential rekey` where its store is "
            "(--store FILE), and start it with the new key",
            code="usage",
        )
    values.require_store(settings)
    new = _key(options.new_key_file, options.new_key_env)
    store = open_store(settings)
    try:
        old = _key(options.old_key_file, options.old_key_env) or key_of(store, settings)
        assert new is not None, "the grammar asks for one"
        with noted(store, who(options), "credentials.rekey", new.id):
            store.acquire("anabranch credential rekey")
            try:
                done = rekey(store, old, new)
            finally:
                store.release()
    finally:
        store.close()
    if options.json:
        print(render.json_line(msgspec.to_builtins(done)))
        return 0
    print(
        f"encrypted with the key {done.new_key} now: {done.credentials} credentials, "
        f"{done.webhooks} secrets of webhooks (before: {done.old_key})\n"
        f"start with this key from now on: {_next(options, old.place)}"
    )
    return 0


def _key(file: str | None, variable: str | None) -> SecretKey | None:
    if file is not None:
        return SecretKey(file=Path(file), made=False)
    return None if variable is None else SecretKey.of_variable(variable)


def _next(options: argparse.Namespace, old: str) -> str:
    if options.new_key_env is not None:
        return f"set ANABRANCH_SECRET_KEY to what {options.new_key_env} holds"
    beside = f", or put it in the place of {old}" if old.endswith(".key") else ""
    return f"set secret_key_file to {options.new_key_file}{beside}"


def _tell(options: argparse.Namespace, card: Row, done: str) -> None:
    said = f"{done}: {card['name']} ({card['type']}: {', '.join(card['fields'])})"
    print(render.json_line(card) if options.json else said)


def _given(options: argparse.Namespace) -> Credential:
    """The value; never from the command line, which everybody on this machine can read."""
    if options.from_env is not None:
        text = os.environ.get(options.from_env)
        if text is None:
            raise InputError(f"the environment has no variable {options.from_env}", code="usage")
        place = f"the variable {options.from_env}"
    elif options.from_file is not None:
        text = files.read_text(Path(options.from_file), BYTES_MAX)
        place = options.from_file
    else:
        text = sys.stdin.buffer.read(BYTES_MAX + 1).decode("utf-8", "replace")
        place = "standard input"
    return read_credential(text, place)


Action = Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, int]]

ACTIONS: dict[str, Action] = {
    "add": _add,
    "list": _list,
    "show": _show,
    "rotate": _rotate,
    "remove": _remove,
    "rekey": _rekey,
}
