"""A store before whose nth call somebody else does all they want, as another server may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Interrupted:
    """Others use the store itself meanwhile."""

    def __init__(self, store: Any, moment: int, meanwhile: Callable[[], None]) -> None:
        self._store = store
        self._left = moment
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        called = getattr(self._store, name)
        if not callable(called):
            return called

        def call(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if not self._left:
                self._meanwhile()
            return called(*args, **named)

        return call

    @property
    def was_interrupted(self) -> bool:
        return self._left <= 0
