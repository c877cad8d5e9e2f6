"""Signals as people and programs send them: checked here, taken by the waits of a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import msgspec

from anabranch.dialects.durations import parse_duration
from anabranch.errors import InputError, Refused
from anabranch.kernel import stimuli as s
from anabranch.kernel.signals import sent_before
from anabranch.kernel.state import State
from anabranch.net.waits import SIGNAL_NAME
from anabranch.operations.read.waiting import SignalStatus, signal_status
from anabranch.operations.runs.verbs import Verbs
from anabranch.store.ports import Head
from anabranch.work.values.json_values import require_json

ID_LETTERS = 200


class SignalSent(msgspec.Struct, frozen=True, kw_only=True):
    """`signal` says what became of it: a wait has taken it, or the run keeps it for one."""

    run: str
    id: str
    name: str
    signal: SignalStatus
    status: str  # of the run


def signal(
    name: str,
    payload: Any = None,
    *,
    actor: str = "",
    ttl: float | str | None = None,
    id: str = "",  # noqa: A002 - the word users know
    decoded: bool = False,
) -> s.Signal:
    """A signal of this name. `ttl` is a duration: seconds, or text such as `1h`. A payload that was
    `decoded` from JSON for this call needs no look."""
    if not SIGNAL_NAME.fullmatch(name):
        raise InputError(
            f"{name[:80]!r} cannot be the name of a signal: "
            "use up to 100 letters, digits, `_`, `.` and `-`",
            code="signal_name",
        )
    if len(id) > ID_LETTERS or not id.isprintable():
        message = f"the id of a signal has at most {ID_LETTERS} letters, all of them printable"
        raise InputError(message, code="signal_id")
    if not decoded:
        payload = require_json(payload, "the payload", root="payload")
    return s.Signal(id or uuid4().hex, name, payload, actor, _milliseconds(ttl))


def _milliseconds(ttl: float | str | None) -> int:
    if ttl is None or ttl == "":
        return 0
    try:
        milliseconds = parse_duration(ttl)
    except ValueError as error:
        raise InputError(f"the ttl of a signal: {error}", code="signal_ttl") from None
    if not milliseconds:
        message = "the ttl of a signal is zero; leave it out to keep the signal until the run ends"
        raise InputError(message, code="signal_ttl")
    return milliseconds


async def send_signal(verbs: Verbs, run: str, said: s.Signal) -> SignalSent:
    """Send it; returns once it is durable, with what has become of it."""
    found = verbs.read.find(run).run
    async with repeats_heard(verbs, found, said):
        await verbs.send(found, said)
    return await sent(verbs, found, said)


@asynccontextmanager
async def repeats_heard(verbs: Verbs, run: str, said: s.Signal) -> AsyncIterator[None]:
    """One that was sent before is heard as well when its run has ended since."""
    try:
        yield
    except Refused as refusal:
        if refusal.code != "run_finished":
            raise
        state = await asyncio.to_thread(verbs.read.state, run)
        if not sent_before(state, said):
            raise


async def sent(verbs: Verbs, run: str, said: s.Signal) -> SignalSent:
    """What became of a signal that the run has received."""
    head = verbs.read.find(run)
    became = signal_status(await _durable_state(verbs, head), said.id)
    return SignalSent(run=run, id=said.id, name=said.name, signal=became, status=head.status)


async def _durable_state(verbs: Verbs, head: Head) -> State:
    """It may be large: where memory is ahead of the store, it is read beside the event loop."""
    live = verbs.engine.live_run(head.run)
    if live is not None and live.state.seq == head.seq:
        return live.state
    return await asyncio.to_thread(verbs.read.state, head.run)
