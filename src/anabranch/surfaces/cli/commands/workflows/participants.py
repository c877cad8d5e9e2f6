"""`participants`: who can be asked, whether they are there, and the book of a server anew."""

from __future__ import annotations

import argparse

import msgspec

from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.cli.output import render


async def participants(options: argparse.Namespace, settings: Settings) -> int:
    return await _ACTIONS[options.action](options, settings)


async def _list(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        return _print(options, await at.participants.all())


async def _probe(options: argparse.Namespace, settings: Settings) -> int:
    from anabranch.operations.participants import rows
    from anabranch.surfaces.cli.backend.local.participants import book_of
    from anabranch.work.participants.probe import probe  # the client takes its time to load

    book = book_of(settings)
    conditions = await probe(book, options.seconds)
    found = [
        {**row, **msgspec.to_builtins(conditions[row["participant"]])}
        for row in rows(book)
        if row["participant"] in conditions
    ]
    _print(options, found)
    return 0 if all(row["state"] == "up" for row in found) else 1


async def _reload(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        told = await at.participants.reload()
    said = f"{told['participants']} participants, {told['capabilities']} capabilities"
    return render.tell(options, told, said)


def _print(options: argparse.Namespace, found: list[Row]) -> int:
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
    return render.tell_lines(options, found, cells, head)


_ACTIONS = {"list": _list, "probe": _probe, "reload": _reload}
