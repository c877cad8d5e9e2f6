"""For which run the current work is done: what it may read depends on that, not on what it asks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar

from anabranch.work.scoped import scoped

#: Empty where nobody works for a run: people who look, and the engine itself.
run_at_work: ContextVar[str] = ContextVar("anabranch_run", default="")


def working_for(run: str) -> AbstractContextManager[None]:
    return scoped(run_at_work, run)
