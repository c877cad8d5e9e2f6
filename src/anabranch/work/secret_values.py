"""Secrets: values that the work may use and nobody may see, and who was given them.

A `Secret` shows its value only to who asks for it by name; printing, formatting or encoding it
gives stars or an error. Templates need the plain text: a `Keyring` hands it out, and tells the
scope of the job at work that it did. What a job was never given is not looked for in its answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NoReturn, Protocol

from anabranch.work.scoped import scoped

STARS = "***"


class Secret:
    """A text that shows itself only through `reveal()`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({STARS})"

    def __str__(self) -> str:
        return STARS

    def __format__(self, _: str) -> str:
        return STARS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be copied into a file or another process")


class Given(Protocol):
    """What a job was given."""

    def learn(self, value: Any) -> None: ...


_AT_WORK: ContextVar[Any] = ContextVar("anabranch.secrets", default=None)


def given_to_work() -> Any:
    """The scope of the job that is being done here, or None."""
    return _AT_WORK.get()


def giving(scope: Given) -> AbstractContextManager[None]:
    """Whatever is handed out inside is given to this scope."""
    return scoped(_AT_WORK, scope)


class Keyring(Mapping[str, Any]):
    """Secrets by name, nested like the entries they come from. Looking one up reveals it, and gives
    it to the job for which the keyring was made, in whatever thread that happens."""

    __slots__ = ("_given", "_values")

    def __init__(self, values: Mapping[str, Any], given: Given | None = None) -> None:
        self._values = values
        self._given = given if given is not None else _AT_WORK.get()

    @property
    def unrevealed(self) -> Mapping[str, Any]:
        return self._values

    def __getitem__(self, name: str) -> Any:
        found = self._values[name]
        if isinstance(found, Secret | list) and self._given is not None:
            self._given.learn(found)
        return self._revealed(found)

    def _revealed(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return Keyring(value, self._given)
        return revealed(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<keyring of {', '.join(self._values) or 'nothing'}>"


def revealed(value: Any) -> Any:
    """The value without the wrappers of its secrets."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, list):
        return [revealed(each) for each in value]
    return Keyring(value) if isinstance(value, Mapping) else value
