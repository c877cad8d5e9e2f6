"""`alias`: names that lead to a version of the catalog."""

from __future__ import annotations

import argparse

from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import AliasBackend, Row
from anabranch.surfaces.cli.output import render

HEAD = ("ALIAS", "LEADS TO", "NEWEST", "SINCE", "BY", "BEFORE")


async def alias(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        return await ACTIONS[options.action](options, at.aliases)


async def _list(options: argparse.Namespace, aliases: AliasBackend) -> int:
    found = await aliases.all()
    rows = [
        (one["name"], render.clean(one["target"]), _newest(one), render.instant(one["set_at"]),
         render.clean(one["set_by"]), render.clean(_before(one)))
        for one in found
    ]  # fmt: skip
    return render.tell_rows(options, found, rows, HEAD, "no aliases")


async def _show(options: argparse.Namespace, aliases: AliasBackend) -> int:
    one = await aliases.show(options.name)
    lines = [render.clean(f"alias {one['name']} leads to {one['target']} (newest: {_newest(one)})")]
    for at in (one, *one["history"]):
        since = at.get("set_at", at.get("at", 0))
        by = at.get("set_by", at.get("by", ""))
        said = f"  {render.instant(since)}  {_text(at)}"
        lines.append(render.clean(f"{said}  by {by}" if by else said))
    return render.tell(options, one, "\n".join(lines))


def _newest(one: Row) -> str:
    return "-" if one["newest"] is None else str(one["newest"])


def _before(one: Row) -> str:
    return _text(one["history"][0]) if one["history"] else "-"


def _text(at: Row) -> str:
    version = at.get("version")
    return at["path"] if version is None else f"{at['path']}@{version}"


async def _set(options: argparse.Namespace, aliases: AliasBackend) -> int:
    one = await aliases.set(options.name, options.target)
    return render.tell(options, one, render.clean(f"{one['name']} leads to {one['target']}"))


async def _rollback(options: argparse.Namespace, aliases: AliasBackend) -> int:
    one = await aliases.rollback(options.name)
    return render.tell(options, one, render.clean(f"{one['name']} leads to {one['target']} again"))


async def _remove(options: argparse.Namespace, aliases: AliasBackend) -> int:
    one = await aliases.remove(options.name)
    return render.tell(options, one, f"removed: {one['name']}")


ACTIONS = {
    "set": _set,
    "list": _list,
    "show": _show,
    "rollback": _rollback,
    "remove": _remove,
}
