"""What a refused decision is told: who was first, or what can be done instead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec

from anabranch.errors import Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.runtime.live_run import history
from anabranch.store.ports import Store

#: The gate is not open any more: somebody was faster, its time was up, or the run has ended.
TOO_LATE = ("gate_not_open", "run_finished")
BY_CONTEXT = "context"  # the rules admitted it, and no person
_SOURCE_HINT = (
    "have it asked again (`anabranch decide --ask-again`, or `anabranch resume`), "
    "or answer in its place with --override"
)


class Earlier(msgspec.Struct, frozen=True):
    """The answer that was there first."""

    at: int
    actor: str
    verdict: str
    reason: str = ""

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.actor or 'an unnamed caller'} answered {self.verdict} at {when}{why}"


def earlier(store: Store, run: str, gate: str) -> Earlier | None:
    """The last answer to a gate, by its id or its step. Reads the whole log: in a thread."""
    found: Earlier | None = None
    steps: dict[str, str] = {}  # token → step
    for at, event in history(store.read(run), run=run):
        match event:
            case e.TokenCreated():
                steps[str(event.token)] = event.step
            case e.GateDecided() if gate in (event.gate, steps.get(_token(event.gate))):
                found = Earlier(at, event.actor, event.verdict, event.reason)
            case e.TokenAdmitted() if str(event.token) == _token(gate) or gate == steps.get(
                str(event.token)
            ):
                found = Earlier(at, event.by, "fulfil")
            case _:
                pass
    return found


def _token(gate: str) -> str:
    return gate.rpartition("-")[2]


@asynccontextmanager
async def decision_refusals(store: Store, run: str, said: s.Stimulus) -> AsyncIterator[None]:
    """A decision that comes too late is refused with the one that was in time, and one that is the
    source's with how to have the source asked."""
    try:
        yield
    except Refused as refusal:
        if refusal.code == "decided_by_source":
            raise Refused(f"{refusal.message}: {_SOURCE_HINT}", code=refusal.code) from None
        if not isinstance(said, s.Decide) or refusal.code not in TOO_LATE:
            raise
        first = await asyncio.to_thread(earlier, store, run, said.gate)
        if first is None or first.actor == BY_CONTEXT:
            raise
        raise Refused(f"{refusal.message}; {first}", code=refusal.code) from None
