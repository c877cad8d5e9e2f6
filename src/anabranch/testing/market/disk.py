"""The store of a node of the world: it outlives the node, and can fail at any commit.

Each life of a node gets a disk of its own over the same store. A disk of a dead process writes
nothing more, whatever the tasks of that process still try while they end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from anabranch.errors import StoreError
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Store


class Died(SystemExit):
    """The process of a node ends here: no task of it may catch this."""


class Disk:
    """Everything but `commit` and the lock goes straight to the store."""

    def __init__(self, store: MemoryStore, on_commit: Callable[[str], None]) -> None:
        self._store = store
        self._on_commit = on_commit  # told "before" and "after"; may raise `Died`
        self.dead = False
        self._owner: str | None = None

    @property
    def as_store(self) -> Store:
        return cast(Store, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def acquire(self, owner: str) -> None:
        """The lock of a process ends with it, and no two processes have one disk."""
        self._owner = owner

    def release(self) -> None:
        self._owner = None

    def owner(self) -> str | None:
        return self._owner

    def commit(self, batch: Batch) -> None:
        if self.dead:
            raise StoreError("the process has ended", code="process_ended")
        self._on_commit("before")
        self._store.commit(batch)
        self._on_commit("after")
