"""`anabranch node serve` for stories that kill: it waits at an arrow until it is let go.

    python -m anabranch.surfaces.stories.held_node FOLDER

While the file `hold` in the folder of the node names an arrow, the commit of that arrow makes the
file `held` and waits, before or after it is durable, until `hold` is gone. Whoever made `hold`
kills a process meanwhile, this one or another.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

import msgspec

from anabranch.market.node.folder import NodeFolder
from anabranch.store.ports import Batch
from anabranch.store.sqlite.store import SqliteStore
from anabranch.surfaces.cli import stop_signals
from anabranch.surfaces.cli.commands.node.local import serve_until_told
from anabranch.surfaces.cli.output import logs
from anabranch.surfaces.http.node.server import NodeServer
from anabranch.surfaces.stories.arrows import BY_NAME, Hold, When

HOLD, HELD = "hold", "held"
HELD_SECONDS_MAX = 120.0  # then it goes on: the story that held it is gone
_LOOK_SECONDS = 0.005


class HeldStore(SqliteStore):
    """A store whose commits can be held. Blocking the whole process is what is wanted."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._hold_file = path.parent / HOLD
        self._held_file = path.parent / HELD

    def commit(self, batch: Batch) -> None:
        named = self._named(batch)
        if named == "before":
            self._wait()
        super().commit(batch)
        if named == "after":
            self._wait()

    def _named(self, batch: Batch) -> When | None:
        """When this batch is to be held, if it is."""
        try:
            hold = msgspec.json.decode(self._hold_file.read_bytes(), type=Hold)
        except FileNotFoundError:
            return None
        return hold.when if BY_NAME[hold.arrow].is_in(batch) else None

    def _wait(self) -> None:
        self._held_file.touch()
        end = time.monotonic() + HELD_SECONDS_MAX
        while self._hold_file.exists() and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        self._held_file.unlink(missing_ok=True)


def main(folder: str) -> int:
    logs.begin()
    server = NodeServer(NodeFolder(folder), open_store=HeldStore)
    try:
        return asyncio.run(serve_until_told(argparse.Namespace(json=True), server))
    finally:
        stop_signals.restore()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
