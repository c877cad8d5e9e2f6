"""Performers that are made when their first task comes: nobody uses all kinds in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.kernel.values import Answer
from anabranch.work.kinds.python.places import Places
from anabranch.work.port import Parked, Performer, Task
from anabranch.work.secrets.redaction import given_to_work


class LazyPerformer:
    """Stands for a performer until it is needed. What it works with may be secret: then every job
    of it is given these secrets."""

    def __init__(
        self,
        make: Callable[[], Performer],
        secrets: Sequence[str] = (),
        places: Places | None = None,
    ) -> None:
        self._make = make
        self._secrets = secrets
        self.places = places  # how many jobs it does at once, where it says so itself
        self._made: Performer | None = None

    async def perform(self, task: Task) -> Answer | Parked:
        scope = given_to_work()
        if scope is not None:
            for secret in self._secrets:
                scope.learn(secret)
        made = self.made()
        if not self._secrets:
            self.perform = made.perform  # type: ignore[method-assign] # the next one without us
        return await made.perform(task)

    def made(self) -> Performer:
        """The performer itself, made now where it is not yet."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def itself(self) -> Performer:
        """What else can be asked than to perform a task: the performer, made now; or this one,
        where each job is given secrets on the way."""
        return self if self._secrets else self.made()

    async def close(self) -> None:
        close = getattr(self._made, "close", None)
        if close is not None:
            await close()
