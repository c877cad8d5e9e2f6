"""What `GET /runs/{run}` answers, as JSON. That of an ended run is kept: little of it changes.

The head, and who redrives it, are read each time, so a run that was purged, or whose row is
damaged, is not answered from memory. A loop that was open in the end tells how far it is at
present, and is not kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from anabranch.store.ports import Head
from anabranch.surfaces.http.io.readers import ReadHandle
from anabranch.surfaces.http.io.shapes import instant

LARGEST_BYTES = 64 * 1024  # of what is kept of one run
KEPT_BYTES = 4 * 1024 * 1024

_Known = tuple[Head, list[str]]  # and the runs that redrive it
_encode = msgspec.json.Encoder().encode


class EndedRuns:
    """Only for the event loop."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most = most
        self._kept: OrderedDict[str, tuple[_Known, bytes]] = OrderedDict()
        self._bytes = 0

    def show(self, by: ReadHandle, run: str) -> bytes:
        head = by.read.find(run)
        known = head, by.read.redriven_by([head])[head.run]
        kept = self._kept.get(head.run)
        if kept is not None and kept[0] == known:
            self._kept.move_to_end(head.run)
            return kept[1]
        shown = by.read.show_head(head)
        shown["created"] = instant(head.created_at)
        shown["updated"] = instant(head.updated_at)
        document = _encode(shown)
        if by.near and head.finished and not _is_open(shown):
            self._keep(known, document)
        return document

    def _keep(self, known: _Known, document: bytes) -> None:
        run = known[0].run
        if run in self._kept:
            self._drop(run)
        if len(document) > LARGEST_BYTES:
            return
        self._kept[run] = known, document
        self._bytes += len(document)
        while self._bytes > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, run: str) -> None:
        self._bytes -= len(self._kept.pop(run)[1])


def _is_open(shown: dict[str, Any]) -> bool:
    return any(loop["status"] == "open" for loop in shown["loops"])
