"""The part of the store in memory that numbers the sessions of each owner."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.store.ports import Head


class MemorySessionNumbers:
    """A part of `MemoryStore`."""

    _session_runs: dict[str, dict[int, str]]

    if TYPE_CHECKING:

        def _open(self) -> AbstractContextManager[object]: ...

        def head(self, run: str) -> Head | None: ...

    def next_session_number(self, owner: str) -> int:
        with self._open():
            return max(self._session_runs.get(owner, ()), default=0) + 1

    def take_session_number(self, owner: str, run: str, wanted: int | None = None) -> int | None:
        with self._open():
            number = max(self._session_runs.get(owner, ()), default=0) + 1
            if wanted is not None and wanted != number:
                return None
            self._session_runs.setdefault(owner, {})[number] = run
            return number

    def give_back_session_number(self, owner: str, number: int, run: str) -> None:
        begun = self.head(run) is not None
        with self._open():
            taken = self._session_runs.get(owner, {})
            if not begun and taken.get(number) == run and number == max(taken):
                del taken[number]

    def session_run(self, owner: str, number: int) -> str | None:
        with self._open():
            return self._session_runs.get(owner, {}).get(number)
