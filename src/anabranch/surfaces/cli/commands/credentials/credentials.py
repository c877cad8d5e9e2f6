"""`credential`: keep, list, rotate and remove what work finds by name; values are never shown."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec

from anabranch import files
from anabranch.errors import InputError
from anabranch.operations.access.rekey import rekey
from anabranch.operations.access.secret_key import SecretKey, key_of
from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.identity import who
from anabranch.surfaces.cli.backend.local.store import LocalStore
from anabranch.surfaces.cli.backend.port import CredentialBackend, Row
from anabranch.surfaces.cli.output import render
from anabranch.work.secrets.credential_sources import BYTES_MAX, Credential, read_credential

HEAD = ("NAME", "TYPE", "FIELDS", "VERSION", "CHANGED", "BY", "KEY")


async def credential(options: argparse.Namespace, settings: Settings) -> int:
    if options.action == "rekey":
        return await _rekey(options, settings)
    async with open_backend(options, settings) as at:
        return await ACTIONS[options.action](options, at.credentials)


async def _add(options: argparse.Namespace, kept: CredentialBackend) -> int:
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
    return _tell(options, await kept.add(draft), "kept")


async def _list(options: argparse.Namespace, kept: CredentialBackend) -> int:
    cards = await kept.all()
    rows = [
        (one["name"], one["type"], ",".join(one["fields"]), str(one["version"]),
         render.instant(one["updated_at"]), render.clean(one["updated_by"]), one["key"])
        for one in cards
    ]  # fmt: skip
    return render.tell_rows(options, cards, rows, HEAD, "no credentials")


async def _show(options: argparse.Namespace, kept: CredentialBackend) -> int:
    card = await kept.show(options.name)
    facts = {
        "fields": ", ".join(card["fields"]),
        "version": str(card["version"]),
        "description": card["description"],
        "added": f"{render.instant(card['created_at'])} by {card['created_by'] or '-'}",
        "changed": f"{render.instant(card['updated_at'])} by {card['updated_by'] or '-'}",
        "key": card["key"],
    }
    lines = [f"credential {card['name']} ({card['type']})", *render.fact_lines(facts)]
    return render.tell(options, card, "\n".join(lines))


async def _rotate(options: argparse.Namespace, kept: CredentialBackend) -> int:
    found = _given(options)
    card = await kept.rotate(options.name, found.data)
    return _tell(options, card, "rotated")


async def _remove(options: argparse.Namespace, kept: CredentialBackend) -> int:
    return _tell(options, await kept.remove(options.name), "removed")


async def _rekey(options: argparse.Namespace, settings: Settings) -> int:
    """At the store itself, which no engine may be using: keys do not travel."""
    if settings.server:
        raise InputError(
            "keys are not sent to a server: stop it, run `credential rekey` where its store is "
            "(--store FILE), and start it with the new key",
            code="usage",
        )
    local = LocalStore(settings, who(options))
    with local.writing() as store:
        new = _key(options.new_key_file, options.new_key_env)
        old = _key(options.old_key_file, options.old_key_env) or key_of(store, settings)
        assert new is not None, "the grammar asks for one"
        line = local.audit_line(store, "credentials.rekey", new.id)
        with line.follow():
            store.acquire("anabranch credential rekey")
            try:
                with line.commit():
                    done = rekey(store, old, new)
            finally:
                store.release()
    said = (
        f"encrypted with the key {done.new_key} now: {done.credentials} credentials, "
        f"{done.webhooks} secrets of webhooks (before: {done.old_key})\n"
        f"start with this key from now on: {_next(options, old.place)}"
    )
    return render.tell(options, msgspec.to_builtins(done), said)


def _key(file: str | None, variable: str | None) -> SecretKey | None:
    if file is not None:
        return SecretKey(file=Path(file), made=False)
    return None if variable is None else SecretKey.of_variable(variable)


def _next(options: argparse.Namespace, old: str) -> str:
    if options.new_key_env is not None:
        return f"set ANABRANCH_SECRET_KEY to what {options.new_key_env} holds"
    beside = f", or put it in the place of {old}" if old.endswith(".key") else ""
    return f"set secret_key_file to {options.new_key_file}{beside}"


def _tell(options: argparse.Namespace, card: Row, done: str) -> int:
    said = f"{done}: {card['name']} ({card['type']}: {', '.join(card['fields'])})"
    return render.tell(options, card, said)


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


ACTIONS = {
    "add": _add,
    "list": _list,
    "show": _show,
    "rotate": _rotate,
    "remove": _remove,
}
