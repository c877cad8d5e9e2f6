"""`node init`, `serve`, `check` and `id`: what is done to the folder of a node itself."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.errors import InputError, StoreInUse
from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.surfaces.cli import stop_signals
from anabranch.surfaces.cli.output import render

if TYPE_CHECKING:
    from anabranch.surfaces.http.node.server import NodeServer


def init(options: argparse.Namespace) -> int:
    from anabranch.market.node.keys import KeyFolder
    from anabranch.modules.kit.entries import executor_entry

    path = Path(options.folder)
    name = options.name or path.absolute().name
    folder = NodeFolder(path)
    modules = dict(options.modules)
    if len(modules) < len(options.modules):
        raise InputError("--with: a node hosts a module once", code="usage")
    entries = tuple(executor_entry(module, port=port) for module, port in modules.items())
    seeds = tuple(options.seed_url)
    # Others look for offers at nodes with this passport.
    directory = {"passports": ["offer-catalog"]} if "dator" in modules else {}
    folder.create(
        NodeFile(name=name, port=options.port, seeds=seeds, modules=entries, directory=directory)
    )
    roles = ("node", "participant", *(("org",) if options.org else ()))
    keys = KeyFolder.create(folder.keys, roles)
    facts = {"name": name, "folder": str(folder.path), **keys.identities()}
    lines = [f"a node in {folder.path}", *(f"  {id_}" for id_ in keys.identities().values())]
    for module in modules:
        lines.append(f"settings of {module}: {options.folder}/config/{module}.json")
    lines.append(f"start it: anabranch node serve --node {options.folder}")
    return render.tell(options, facts, "\n".join(lines))


async def serve(options: argparse.Namespace, folder: NodeFolder) -> int:
    from anabranch.surfaces.http.node.server import NodeServer

    return await serve_until_told(options, NodeServer(folder))


async def serve_until_told(options: argparse.Namespace, serving: NodeServer) -> int:
    folder = serving.folder
    stopping = asyncio.Event()
    stop_signals.on_stop(stopping.set)
    async with serving as server:
        status = {"url": server.url, "node_id": server.node.context.signer.node_id,
                  "folder": str(folder.path), "pid": os.getpid()}  # fmt: skip
        name = server.node.context.config.name
        render.tell(options, status, f"node {name} listens at {server.url}")
        sys.stdout.flush()
        told = asyncio.ensure_future(stopping.wait())
        broken = asyncio.ensure_future(server.broken())
        await asyncio.wait({told, broken}, return_when=asyncio.FIRST_COMPLETED)
        failed = str(broken.result()) if broken.done() else ""
        await cancel_and_wait(told, broken)
        print("stopping: modules and deliveries end in order (again to stop at once)",
              file=sys.stderr)  # fmt: skip
    if failed:
        print(f"anabranch: the node could not write its state: {failed}", file=sys.stderr)
        return 1
    return 0


async def check(options: argparse.Namespace, folder: NodeFolder) -> int:
    from anabranch.market.node.check import StreamCheck, check_streams
    from anabranch.market.node.parts import all_families
    from anabranch.store.sqlite.store import SqliteStore
    from anabranch.surfaces.http.node.server import in_use

    folder.read()
    if not folder.store.exists():
        return render.tell(options, msgspec.to_builtins(StreamCheck()), "it has never been served")
    store = SqliteStore(folder.store)
    try:
        try:
            store.acquire("anabranch node check")  # cards and events are read one after the other
        except StoreInUse:
            raise in_use(folder, store.owner()) from None
        streams = store.node_streams
        assert streams is not None, "a file has streams"
        found = check_streams(streams, all_families())
    finally:
        store.close()
    lines = [f"{one.stream}: {one.message}" for one in found.problems]
    lines.append(f"{found.streams:,} streams, {found.events:,} events, {len(lines)} problems")
    render.tell(options, msgspec.to_builtins(found), render.clean("\n".join(lines)))
    return 1 if found.problems else 0


async def identity(options: argparse.Namespace, folder: NodeFolder) -> int:
    from anabranch.market.node.keys import KeyFolder

    folder.read()
    keys = KeyFolder.open(folder.keys)
    found = keys.key(options.role).identity(options.role)
    return render.tell(options, {"role": options.role, "id": found}, found)


ACTIONS: dict[str, Callable[[argparse.Namespace, NodeFolder], Awaitable[int]]] = {
    "serve": serve,
    "check": check,
    "id": identity,
}
