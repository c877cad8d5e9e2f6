"""What the parts of the reference store use of the whole."""

from __future__ import annotations

from threading import RLock

from anabranch.errors import StoreError


class MemoryPart:
    """A part of `MemoryStore`. All of them have one lock, and are closed together."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._closed = False

    def _open(self) -> RLock:
        """The lock, for a store that is still open."""
        if self._closed:
            raise StoreError("the store is closed", code="store_closed")
        return self._lock
