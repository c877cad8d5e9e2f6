"""Triggers that a finished run fires: once for each, whatever crashes.

    log ─▶ look (the cursor moves, firings are written: one transaction) ─▶ fire ─▶ settle

The way is that of webhooks, whose cursors and deliveries these are: a trigger has a hook of its own
in the store, and instead of a call to a receiver a run begins, under an id that follows from the
trigger and the run that has finished. A crash at any point repeats a look or a firing, which finds
the run. What passes is tried again; what is refused is kept until somebody asks for it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from anabranch.clock import Clock
from anabranch.errors import AnabranchError, Conflict, InputError, NotFound
from anabranch.kernel.privacy import public
from anabranch.kernel.quiescence import result_of, status_of
from anabranch.kernel.summary import problem_of
from anabranch.operations.read.reader import Reader
from anabranch.operations.schedules.starter import passing
from anabranch.operations.triggers.firing import (
    TriggerFirer,
    TriggerSource,
    chain_depth,
    refusal_text,
)
from anabranch.operations.triggers.trigger import FAMILY, LABEL, TRIGGERS, Trigger
from anabranch.operations.webhooks.dispatcher import WebhookDispatcher
from anabranch.operations.webhooks.matcher import WebhookMatcher
from anabranch.operations.webhooks.sender import SendResult
from anabranch.settings import Settings
from anabranch.store.hook_ports import INTERNAL, Hook, WebhookDelivery
from anabranch.store.ports import Head, Store

log = logging.getLogger("anabranch.triggers")

FINISHED = "run.finished"
BODY_BYTES = 16 * 1024  # of a firing; the run itself has the rest
BEGUN, SIGNALLED, LEFT_OUT = 201, 202, 204  # how a firing went, where it went well
HOOK = "tr."


def hook_of(name: str) -> str:
    """The id of the hook of a trigger."""
    return f"{HOOK}{name}"


def trigger_name(hook: Hook) -> str:
    return hook.url.removeprefix(INTERNAL)


def run_after(name: str, run: str, finished_at: int) -> str:
    """The id of the run that this trigger begins after that one."""
    digest = sha256(f"{name}\0{run}\0{finished_at}".encode()).hexdigest()
    return f"{name[:100]}-{digest[:20]}"


def finished_at(body: bytes) -> int:
    found = msgspec.json.decode(body)
    return int(found["at"])


# -- the hooks of triggers -----------------------------------------------------------------------


def keep_hook(store: Store, trigger: Trigger) -> None:
    """The hook of this trigger as it should be; a new one begins where the log ends."""
    wanted, known = _hook(trigger), store.hook(hook_of(trigger.name))
    if wanted is None:
        if known is not None:
            store.drop_hook(known.id)
    elif known is None:
        try:
            store.add_hook(wanted, from_now=True)
        except Conflict:  # another process was quicker
            return
    elif _said(known) != _said(wanted):
        store.change_hook(wanted)


def keep_hooks(store: Store) -> bool:
    """The hooks of all triggers as they should be, also after a crash between record and hook; says
    whether there is any."""
    triggers = {
        record.name: TRIGGERS.document(record) for record in store.records(FAMILY, limit=10_000)
    }
    known = [hook for hook in store.hooks() if hook.internal]
    for hook in known:
        trigger = triggers.get(trigger_name(hook))
        if trigger is None or trigger.after is None:
            store.drop_hook(hook.id)
    chains = [trigger for trigger in triggers.values() if trigger.after is not None]
    for trigger in chains:
        keep_hook(store, trigger)
    return bool(chains)


def _hook(trigger: Trigger) -> Hook | None:
    after = trigger.after
    if after is None:
        return None
    return Hook(
        id=hook_of(trigger.name),
        url=f"{INTERNAL}{trigger.name}",
        secret="none:trigger",  # its deliveries leave nowhere
        kinds=(FINISHED,),
        labels=after.labels,
        name=after.definition or None,
        enabled=trigger.paused_at is None,
        created_at=trigger.created_at,
    )


def _said(hook: Hook) -> tuple[Any, ...]:
    return hook.url, hook.kinds, dict(hook.labels), hook.name, hook.enabled


# -- looking -------------------------------------------------------------------------------------


def takes(trigger: Trigger, head: Head) -> bool:
    """Whether this finished run fires the trigger, as far as its rules say; `when` is asked later.

    A run that the trigger began fires it again only where the definition is named: otherwise
    whatever is told of any failure would be told of its own.
    """
    after = trigger.after
    if after is None or not head.finished or head.status not in after.statuses:
        return False
    if after.definition:
        named = head.name == after.definition
    else:
        named = head.labels.get(LABEL) != trigger.name
    return named and all(head.labels.get(key) == text for key, text in after.labels.items())


class FinishMatcher(WebhookMatcher):
    """Finds the runs that fire triggers."""

    def find_runs(self, hook: Hook) -> Callable[[Head], bool]:
        record = self._store.record(FAMILY, trigger_name(hook))
        if record is None:
            return lambda _head: False
        trigger = TRIGGERS.document(record)
        return lambda head: takes(trigger, head)

    def _wanted(self, entry: Any, wish: Any, now: int) -> list[WebhookDelivery]:
        head = self._store.head(entry.run)
        if head is None or not self.find_runs(wish.hook)(head):
            return []
        return super()._wanted(entry, wish, now)


# -- firing --------------------------------------------------------------------------------------


def names_after(read: Reader, run: str) -> tuple[dict[str, Any], int]:
    """What templates can read of a finished run, and how many runs above it began one another."""
    found = read.find(run)
    if found.run != run:
        raise NotFound(f"the run {run} is not there any more", code="no_run")
    state, net = read.state_of(found), read.net(found)
    names = {
        "id": found.run,
        "name": found.name,
        "dialect": found.dialect,
        "status": status_of(state),
        "labels": dict(found.labels),
        "parent": found.parent,
        "input": public(read.whole(state.workload), net.private),
        "result": read.whole(public(result_of(state), net.private)),
        "problem": problem_of(state),
        "problems": found.problems,
        "created_at": found.created_at,
        "finished_at": state.finished_at or None,
    }
    return {"run": names}, state.depth


class ChainDispatcher(WebhookDispatcher):
    """Fires triggers for finished runs beside an engine."""

    METRIC = ("anabranch_trigger_attempts_total", "finished runs that fired a trigger, by outcome")

    def __init__(
        self,
        store: Store,
        matcher: FinishMatcher,
        firer: TriggerFirer,
        read: Reader,
        *,
        clock: Clock,
        settings: Settings,
        may_act_for: Callable[[str], bool] = lambda _run: True,
    ) -> None:
        super().__init__(
            store, matcher, None, clock=clock, settings=settings, may_act_for=may_act_for
        )
        self._firer = firer
        self._read = read
        self._depth_max = settings.child_depth_max

    def _looks_after(self, hook: Hook) -> bool:
        return hook.internal

    async def _post(self, hook: Hook, one: WebhookDelivery) -> SendResult:
        try:
            return await self._fire(trigger_name(hook), one)
        except AnabranchError as error:
            return SendResult(None, refusal_text(error), refused=not passing(error))

    async def _fire(self, name: str, one: WebhookDelivery) -> SendResult:
        record = await asyncio.to_thread(self._store.record, FAMILY, name)
        if record is None:
            raise InputError(f"the trigger {name} was removed", code="no_trigger")
        names, depth = await asyncio.to_thread(names_after, self._read, one.run)
        cause = TriggerSource(
            id=run_after(name, one.run, finished_at(one.body)),
            run=one.run,
            depth=chain_depth(depth, self._depth_max),
        )
        fired = await self._firer.fire(TRIGGERS.document(record), names, cause)
        if not fired.fired:
            return SendResult(LEFT_OUT)
        return SendResult(BEGUN if fired.run is not None else SIGNALLED)

    def _tell(self, hook: Hook, after: WebhookDelivery) -> None:
        self.attempts.add(("fired" if after.state == "done" else "failed",))
        if after.state == "dead":
            log.error(
                "trigger %s: gave up after run %s: %s",
                *(trigger_name(hook), after.run, after.last_error),
            )
