"""`register` and `catalog`: definitions by path, kept and listed at a store or a server alike."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from anabranch import files
from anabranch.clock import SystemClock
from anabranch.dialects.source import SourceLimits
from anabranch.errors import InputError
from anabranch.operations.definitions.catalog import Catalog, Draft, wanted
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.audit import noted
from anabranch.surfaces.cli.backend.local.backend import Row, who
from anabranch.surfaces.cli.output import render
from anabranch.work.kinds.callables import default_toolbox

HEAD = ("PATH", "VERSION", "ID", "NAME", "DIALECT", "REGISTERED", "BY")
PAGE = 500


async def register(options: argparse.Namespace, settings: Settings) -> int:
    if options.path and len(options.files) > 1:
        raise InputError("--path is for one file, not for several", code="usage")
    drafts = [_draft(file, options.path or "") for file in options.files]
    if settings.server:
        rows = await _registered_there(options, settings, drafts)
    else:
        rows = _registered_here(options, settings, drafts)
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


def _registered_here(
    options: argparse.Namespace, settings: Settings, drafts: list[Draft]
) -> list[Row]:
    values.import_tools(options.tools)
    store = open_store(settings)
    try:
        catalog = Catalog(store, settings.catalog, default_toolbox.signatures)
        subject = ", ".join(draft.file for draft in drafts)
        with noted(store, who(options), "catalog.create", subject):
            found = catalog.register(drafts, SystemClock().now(), who(options))
    finally:
        store.close()
    return [msgspec.to_builtins(one) for one in found]


async def _registered_there(
    options: argparse.Namespace, settings: Settings, drafts: list[Draft]
) -> list[Row]:
    from anabranch.surfaces.cli.backend.http.backend import http_backend

    sent = [
        {"definition": one.text, "file": Path(one.file).name, "path": one.path} for one in drafts
    ]
    async with http_backend(options, settings) as target:
        told = await target.client.post("catalog", body={"definitions": sent})
    return list(told["items"])


# -- looking -------------------------------------------------------------------------------------


async def catalog(options: argparse.Namespace, settings: Settings) -> int:
    return await ACTIONS[options.action](options, settings)


async def _list(options: argparse.Namespace, settings: Settings) -> int:
    found: list[Row] = []
    if settings.server:
        after: str | None = None
        while True:
            page = await _asked(options, settings, prefix=options.prefix, limit=PAGE, cursor=after)
            found += page["items"]
            after = page["next"]
            if after is None:
                break
    else:
        with _looking(settings) as kept:
            found = [msgspec.to_builtins(one) for one in kept.paths(options.prefix, limit=100_000)]
    _print_rows(options, found)
    return 0


async def _versions(options: argparse.Namespace, settings: Settings) -> int:
    if settings.server:
        found = (await _asked(options, settings, options.path, "versions"))["items"]
    else:
        with _looking(settings) as kept:
            found = [msgspec.to_builtins(one) for one in kept.versions(options.path)]
    _print_rows(options, found)
    return 0


async def _show(options: argparse.Namespace, settings: Settings) -> int:
    if settings.server:
        asked = wanted(options.path)
        row = await _asked(options, settings, asked.path, version=asked.version)
    else:
        with _looking(settings) as kept:
            entry, definition = kept.show(options.path)
            row = {**msgspec.to_builtins(entry), "definition": definition.source}
    text = row["definition"]
    print(render.json_line(row) if options.json else text, end="" if text.endswith("\n") else "\n")
    if options.json:
        print()
    return 0


def _print_rows(options: argparse.Namespace, found: list[Row]) -> None:
    if options.json:
        print(render.json_line(found))
        return
    rows = [
        (one["path"], str(one["version"]), str(one["catalog_id"]), render.clean(one["name"]),
         one["dialect"], render.instant(one["created_at"]), render.clean(one["created_by"]))
        for one in found
    ]  # fmt: skip
    print("\n".join(render.table(rows, HEAD)) if rows else "the catalog is empty")


class _looking:  # noqa: N801 - used like a function
    """The catalog of a store, for reading."""

    def __init__(self, settings: Settings) -> None:
        values.require_store(settings)
        self._store = open_store(settings, read_only=True)

    def __enter__(self) -> Catalog:
        return Catalog(self._store)

    def __exit__(self, *_exc: object) -> None:
        self._store.close()


async def _asked(options: argparse.Namespace, settings: Settings, *path: str, **query: Any) -> Any:
    from anabranch.surfaces.cli.backend.http.backend import http_backend

    async with http_backend(options, settings) as target:
        return await target.client.get("catalog", *path, **query)


Action = Callable[[argparse.Namespace, Settings], Coroutine[Any, Any, int]]

ACTIONS: dict[str, Action] = {"list": _list, "versions": _versions, "show": _show}
