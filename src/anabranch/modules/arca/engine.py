"""The workflow engine as Arca has it: one kernel, with the work of Arca definitions done elsewhere.

Steps wait for other nodes, so any number of them may wait at once; no kind of work here occupies
anything scarce. Nobody posts to the store from outside, so it is not looked at for messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from anabranch.clock import Clock
from anabranch.errors import AnabranchError, InputError
from anabranch.kernel.state import State
from anabranch.modules.arca.work.attempts import Attempt, label_of
from anabranch.operations.definitions.input_check import require_input
from anabranch.operations.definitions.prepare import Prepared, compiler, path_in, prepare
from anabranch.operations.read.reader import Reader
from anabranch.operations.runs.verbs import Verbs
from anabranch.runtime.effects import DurableEvents
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.nets import Nets
from anabranch.runtime.recovery import unfinished
from anabranch.settings import Settings
from anabranch.store.ports import Head, Store
from anabranch.work.port import Performer
from anabranch.work.values.json_values import require_json

OWNER = "anabranch arca"
DIALECT = "arca"
MAIL_SECONDS = 3_600.0
#: Phases of a job that a result can still come for.
_OPEN = ("scheduled", "running", "backoff")


class ArcaEngine:
    """Runs of Arca definitions over a given store and clock."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        performers: Mapping[str, Performer],
        *,
        waiting_max: int,
    ) -> None:
        nets = Nets(store, compiler())
        settings = replace(
            Settings(), jobs_max=waiting_max, poll_seconds=MAIL_SECONDS, grace_seconds=0.0
        )
        self.store = store
        self.loop = EngineLoop(
            store,
            nets,
            performers,
            clock=clock,
            settings=settings,
            owner=OWNER,
            seconds=lambda: clock.now() / 1000,
        )
        self.loop.be_patient()
        self.verbs = Verbs(self.loop, lambda: ())

    @property
    def read(self) -> Reader:
        return self.verbs.read

    async def open(self) -> None:
        await self.loop.open()

    async def close(self) -> None:
        """What waits is handed back, and goes on with the next start."""
        await self.loop.close(grace_seconds=0)

    @property
    def is_open(self) -> bool:
        return self.loop.is_open and self.loop.failure is None

    def listen(self, listener: Callable[[DurableEvents], None]) -> None:
        self.loop.listen(listener)

    def prepared(self, definition: Any, given: Mapping[str, Any]) -> Prepared:
        """Everything that can be said against a run, before anything is begun. Raises
        `DefinitionError` with all problems, and `InputError`."""
        if not isinstance(definition, str | Mapping):
            raise InputError("`definition` is an object, or the text of one", code="definition")
        if isinstance(definition, str) and path_in(definition) is not None:
            raise InputError("`definition` is a text, and no name of a file", code="definition")
        found = prepare(definition)
        if found.net.dialect != DIALECT:
            said = f"{found.net.name!r} is a definition of another language ({found.net.dialect})"
            raise InputError(f"{said}; Arca runs workflow definitions", code="not_arca")
        self.verbs.preflight.require(found.net)
        require_input(found.net, require_json(dict(given), "the input"))
        return found

    def unfinished(self) -> Iterator[Head]:
        return unfinished(self.store)

    def is_attempt_open(self, attempt: Attempt) -> bool:
        """Whether the step is at this attempt, so that a result for it can still count."""
        try:
            state = self.loop.state(attempt.run)
        except AnabranchError:
            return False
        return not state.finished and any(
            job.step == attempt.step
            and job.slot >= 0
            and job.phase in _OPEN
            and label_of(job.id, job.failures + 1) == attempt.label
            for job in state.jobs.values()
        )

    def state(self, run: str) -> State:
        return self.loop.state(run)
