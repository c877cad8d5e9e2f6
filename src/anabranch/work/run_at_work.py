"""For which run the current work is done: what it may read depends on that, not on what it asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Empty where nobody works for a run: people who look, and the engine itself.
run_at_work: ContextVar[str] = ContextVar("anabranch_run", default="")


@contextmanager
def working_for(run: str) -> Iterator[None]:
    before = run_at_work.set(run)
    try:
        yield
    finally:
        run_at_work.reset(before)
