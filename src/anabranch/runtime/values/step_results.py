"""The last result of a step, by the name of its run: what references to it lead to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.errors import NotFound
from anabranch.runtime.live_run import load_state
from anabranch.runtime.values.loading import Fetch
from anabranch.runtime.values.payloads import resolve
from anabranch.store.ports import Store


class StepResults:
    """`fetch_for` says how payloads are fetched that values of a run stand for."""

    def __init__(self, store: Store, fetch_for: Callable[[str], Fetch] | None = None) -> None:
        self._store = store
        self._fetch_for = fetch_for

    def __call__(self, run: str, step: str) -> Any:
        if self._store.head(run) is None:
            raise NotFound(f"there is no run {run:.80} in this store: was it purged?")
        snapshot, tail = self._store.read_many([run])[run]
        state = load_state(snapshot, tail, run)
        if step not in state.results:
            known = ", ".join(list(state.results)[:10]) or "none"
            raise NotFound(f"step {step!r:.80} of run {run} has no result; these have one: {known}")
        fetch = self._store.payload if self._fetch_for is None else self._fetch_for(run)
        return resolve(state.results[step], fetch)
