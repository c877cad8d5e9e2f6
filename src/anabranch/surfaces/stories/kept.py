"""Nodes that a story has left running, to be looked at: where they are, and how they are stopped.

`story.json` in the folder of the story names the process of each node. A process is ended only if
it is the one that keeps the store of that node.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.node.folder import NodeFolder
from anabranch.store.sqlite.store import SqliteStore
from anabranch.surfaces.stories.market import StoryMarket
from anabranch.surfaces.stories.narration import Narrator
from anabranch.surfaces.stories.processes import START_SECONDS, STOP_SECONDS, until

FILE = "story.json"


async def keep_running(market: StoryMarket, narrator: Narrator) -> list[dict[str, Any]]:
    """Start the nodes so that they outlive the story."""
    nodes: list[dict[str, Any]] = []
    try:
        for node in market.nodes.values():
            pid = node.let_go()
            place = {"name": node.name, "url": node.url, "folder": str(node.folder.path)}
            nodes.append({**place, "token": str(node.folder.control_token), "pid": pid})
        (market.folder / FILE).write_bytes(msgspec.json.encode(nodes))
        for one in nodes:
            await until(_listening(one), START_SECONDS, f"{one['name']} to start again")
    except BaseException:
        for one in nodes:
            with suppress(ProcessLookupError):
                os.kill(one["pid"], signal.SIGKILL)
        raise
    narrator.title("The nodes go on")
    for one in nodes:
        narrator.line(f"  {one['name']:<9} {one['url']}  token: {one['token']}")
    narrator.line(f"  stop them: anabranch story stop {market.folder}")
    return nodes


def _listening(node: dict[str, Any]) -> Callable[[], Awaitable[bool]]:
    async def listens() -> bool:
        return NodeFolder(node["folder"]).url.exists() and _is_process_of(node)

    return listens


async def stop_kept(folder: Path) -> list[str]:
    """Stop the nodes of a story; the names of those that ran."""
    try:
        nodes = msgspec.json.decode((folder / FILE).read_bytes())
    except FileNotFoundError:
        raise InputError(f"no story has left nodes in {folder}", code="no_story") from None
    stopped = [one["name"] for one in nodes if _is_process_of(one)]
    for one in nodes:
        if one["name"] in stopped:
            with suppress(ProcessLookupError):
                os.kill(one["pid"], signal.SIGTERM)
    for one in nodes:

        async def is_gone(one: dict[str, Any] = one) -> bool:
            return not _is_process_of(one)

        await until(is_gone, STOP_SECONDS, f"{one['name']} to stop")
    (folder / FILE).unlink()
    return stopped


def _is_process_of(node: dict[str, Any]) -> bool:
    """Whether a process of this number keeps the store of the node."""
    store = SqliteStore(NodeFolder(node["folder"]).store)
    try:
        owner = store.owner() or ""
    finally:
        store.close()
    return f"(pid {node['pid']} on " in owner
