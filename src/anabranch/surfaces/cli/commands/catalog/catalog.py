"""`register` and `catalog`: definitions by path, kept and listed at a store or a server alike."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from anabranch import files
from anabranch.dialects.source import SourceLimits
from anabranch.errors import InputError
from anabranch.operations.definitions.catalog import Draft
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import CatalogBackend, Row
from anabranch.surfaces.cli.output import render

HEAD = ("PATH", "VERSION", "ID", "NAME", "DIALECT", "REGISTERED", "BY")


async def register(options: argparse.Namespace, settings: Settings) -> int:
    if options.path and len(options.files) > 1:
        raise InputError("--path is for one file, not for several", code="usage")
    drafts = [_draft(file, options.path or "") for file in options.files]
    async with open_backend(options, settings) as at:
        values.import_tools(options.tools)
        rows = await at.catalog.register(drafts)
    if options.json:
        print(render.json_line(rows))
        return 0
    for row in rows:
        state = "registered" if row["new"] else "known"
        print(f"{state}: {row['path']} version {row['version']} (catalog_id {row['catalog_id']})")
        for said in row["problems"]:
            print(said, file=sys.stderr)
    return 0


def _draft(file: str, path: str) -> Draft:
    source = values.source(file)
    if isinstance(source, str):
        return Draft(source, "<text>", path)
    data = files.read_limited(Path(file), SourceLimits().bytes_max)
    try:
        return Draft(data.decode("utf-8"), file, path)
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8", code="no_file") from None


# -- looking -------------------------------------------------------------------------------------


async def catalog(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        return await ACTIONS[options.action](options, at.catalog)


async def _list(options: argparse.Namespace, entries: CatalogBackend) -> int:
    return _print_rows(options, await entries.paths(options.prefix))


async def _versions(options: argparse.Namespace, entries: CatalogBackend) -> int:
    return _print_rows(options, await entries.versions(options.path))


async def _show(options: argparse.Namespace, entries: CatalogBackend) -> int:
    row = await entries.show(options.path)
    text = row["definition"]
    print(render.json_line(row) if options.json else text, end="" if text.endswith("\n") else "\n")
    if options.json:
        print()
    return 0


def _print_rows(options: argparse.Namespace, found: list[Row]) -> int:
    rows = [
        (one["path"], str(one["version"]), str(one["catalog_id"]), render.clean(one["name"]),
         one["dialect"], render.instant(one["created_at"]), render.clean(one["created_by"]))
        for one in found
    ]  # fmt: skip
    return render.tell_rows(options, found, rows, HEAD, "the catalog is empty")


ACTIONS = {"list": _list, "versions": _versions, "show": _show}
