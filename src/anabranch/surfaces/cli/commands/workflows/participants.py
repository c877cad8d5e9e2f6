"""`participants`: who can be asked, whether they are there, and the book of a server anew."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.operations.participants import book_from, rows
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.output import render
from anabranch.work.participants.book import Book

Row = dict[str, Any]


async def participants(options: argparse.Namespace, settings: Settings) -> int:
    return await _ACTIONS[options.action](options, settings)


async def _list(options: argparse.Namespace, settings: Settings) -> int:
    if settings.server:
        from anabranch.surfaces.cli.backend.http.backend import http_backend  # few talk to a server

        async with http_backend(options, settings) as at:
            found: list[Row] = (await at.client.get("participants"))["items"]
        return _print(options, found)
    return _print(options, rows(_book(settings)))


async def _probe(options: argparse.Namespace, settings: Settings) -> int:
    from anabranch.work.participants.probe import probe  # the client takes its time to load

    book = _book(settings)
    conditions = await probe(book, options.seconds)
    found = [
        {**row, **msgspec.to_builtins(conditions[row["participant"]])}
        for row in rows(book)
        if row["participant"] in conditions
    ]
    _print(options, found)
    return 0 if all(row["state"] == "up" for row in found) else 1


async def _reload(options: argparse.Namespace, settings: Settings) -> int:
    if not settings.server:
        message = "reload asks a server to read its book again: name one with --server"
        raise InputError(message, code="usage")
    from anabranch.surfaces.cli.backend.http.backend import http_backend

    async with http_backend(options, settings) as at:
        told = await at.client.post("participants", "reload", once=True)
    if options.json:
        print(render.json_line(told))
    else:
        print(f"{told['participants']} participants, {told['capabilities']} capabilities")
    return 0


def _book(settings: Settings) -> Book:
    if not settings.participants:
        message = "name a book of participants with --participants FILE, or a server"
        raise InputError(message, code="usage")
    values.look_here()
    return book_from(None, settings)


def _print(options: argparse.Namespace, found: list[Row]) -> int:
    if options.json:
        for row in found:
            print(render.json_line(row))
        return 0
    head = ("PARTICIPANT", "STATE", "ANSWERED", "NO", "ODD", "AWAY", "WHERE", "")
    cells = [
        (
            render.clean(row["participant"]),
            row["state"],
            *(str(row[key]) for key in ("answered", "negative", "nonsense", "unreachable")),
            render.clean(row["place"]),
            render.clean(row["problem"])[:80],
        )
        for row in found
    ]
    print("\n".join(render.table(cells, head)))
    return 0


_ACTIONS = {"list": _list, "probe": _probe, "reload": _reload}
