"""Secrets: values that the work may use and nobody may see, and who was given them.

A `Secret` shows its value only to who asks for it by name; printing, formatting or encoding it
gives stars or an error. Templates need the plain text: a `Keyring` hands it out, and tells the
scope of the job at work that it did. What a job was never given is not looked for in its answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec

from anabranch.errors import ExpressionError
from anabranch.expressions.budget import within_one_budget
from anabranch.work.evaluations import copied_names, evaluate, evaluate_with
from anabranch.work.scoped import scoped

STARS = "***"
LOOKUPS_MAX = 256  # credentials that one rendering may ask for, one after the other

T = TypeVar("T")


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


class GivenSecrets(Protocol):
    """What a job was given."""

    def learn(self, value: Any) -> None: ...

    def knows(self, text: str) -> bool: ...


_AT_WORK: ContextVar[Any] = ContextVar("anabranch.secrets", default=None)


def given_to_work() -> Any:
    """The scope of the job that is being done here, or None."""
    return _AT_WORK.get()


class giving(scoped[Any]):  # noqa: N801 - used like a function, as `scoped` is
    """Whatever is handed out inside is given to this scope."""

    __slots__ = ()

    def __init__(self, scope: GivenSecrets) -> None:
        self._variable = _AT_WORK
        self._value = scope


class Absent(msgspec.Struct, frozen=True):
    """In the place of a secret that cannot be had: why not, for whoever looks it up."""

    error: ExpressionError


class Unresolved(ExpressionError):
    """A template asks for a credential by a name that nobody has looked for yet."""

    def __init__(self, name: str, ring: Keyring) -> None:
        super().__init__(f"the credential {name!r:.60} cannot be looked up here")
        self.name = name
        self._ring = ring

    async def fetch(self) -> None:
        await self._ring.fetch(self.name)


async def with_credentials(
    render: Callable[[], T], apart: Callable[[], Callable[[], T]] | None = None
) -> T:
    """What `render` comes to, as `evaluate` does it. Templates cannot wait: where one asks for a
    credential by its name, that is fetched, and everything rendered again."""
    try:
        return await evaluate(render, apart)
    except Unresolved as asked:
        await asked.fetch()
    return await _render_again(render, apart)


async def render_with(names: Mapping[str, Any], work: Callable[[Mapping[str, Any]], T]) -> T:
    """The same for what is evaluated with these names."""
    try:
        return await evaluate_with(names, work)
    except Unresolved as asked:
        await asked.fetch()
    return await _render_again(partial(work, names), lambda: partial(work, copied_names(names)))


async def _render_again(render: Callable[[], T], apart: Callable[[], Callable[[], T]] | None) -> T:
    """Now that one credential is known. All the renderings share a budget."""
    with within_one_budget() as budget:
        for _ in range(LOOKUPS_MAX - 1):
            try:
                return await evaluate(render, apart)
            except Unresolved as asked:
                await asked.fetch()
                budget.renew()
        try:
            return await evaluate(render, apart)
        except Unresolved as asked:
            raise ExpressionError(
                f"this asks for more than {LOOKUPS_MAX} credentials ({asked.name!r:.60} is one too "
                "many): share them out among several tasks"
            ) from None


#: Finds a credential by its name: its fields with secrets among them, or an `Absent`.
Find = Callable[[str], Awaitable[Any]]


class Keyring(Mapping[str, Any]):
    """Secrets by name, nested like the entries they come from. Looking one up reveals it, and gives
    it to the job for which the keyring was made, in whatever thread that happens.

    With `find` other names than those of the entries are credentials (see `with_credentials`)."""

    __slots__ = ("_find", "_given", "_values")

    def __init__(
        self, values: Mapping[str, Any], given: GivenSecrets | None = None, find: Find | None = None
    ) -> None:
        self._values = dict(values) if find is not None else values
        self._given = given if given is not None else _AT_WORK.get()
        self._find = find

    async def fetch(self, name: str) -> None:
        """Look for the credential of this name, unless it is known."""
        if self._find is not None and name not in self._values:
            found = await self._find(name)
            assert isinstance(self._values, dict)
            self._values[name] = found

    @property
    def absent(self) -> Mapping[str, ExpressionError]:
        """The entries that cannot be had, and why."""
        values = self._values.items()
        return {name: value.error for name, value in values if isinstance(value, Absent)}

    @property
    def unrevealed(self) -> Mapping[str, Any]:
        return self._values

    def __getitem__(self, name: str) -> Any:
        if self._find is not None and isinstance(name, str) and name not in self._values:
            raise Unresolved(name, self)
        found = self._values[name]
        if isinstance(found, Absent):
            raise found.error
        if isinstance(found, Secret | list) and self._given is not None:
            self._given.learn(found)
        return self._revealed(found)

    def gave(self, text: str) -> bool:
        """Whether this very text is a secret that the job was given."""
        return self._given is not None and self._given.knows(text)

    def _revealed(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return Keyring(value, self._given)
        return revealed(value)

    def __contains__(self, name: object) -> bool:
        return name in self._values  # also what is absent: looking it up says why

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, value in self._values.items() if not isinstance(value, Absent)])

    def __len__(self) -> int:
        return sum(not isinstance(value, Absent) for value in self._values.values())

    def __repr__(self) -> str:
        return f"<keyring of {', '.join(self._values) or 'nothing'}>"


def revealed(value: Any) -> Any:
    """The value without the wrappers of its secrets."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, list):
        return [revealed(each) for each in value]
    return Keyring(value) if isinstance(value, Mapping) else value
