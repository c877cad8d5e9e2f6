"""One verb over many runs: those that a filter finds, a bounded page at a time, newest first.

A dry run lists what would be done. Otherwise every run gets its own outcome: one that refuses does
not keep the others from it. Pages go by when runs were created, which nothing changes, so that a
verb that changes what the filter looks at (a pause of everything running) misses none and does none
twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from anabranch.errors import AnabranchError, InputError, Refused, StoreInUse
from anabranch.kernel import stimuli as s
from anabranch.literals import BulkVerb, Reducer
from anabranch.operations.runs.purge import STEPS_AT_ONCE, give_back, kept_back
from anabranch.operations.runs.redrive_plan import RedrivePlan
from anabranch.operations.runs.verbs import ANSWER_SECONDS, ASK_SECONDS, Verbs, patches
from anabranch.runtime.messages.codec import Sayable, read_answer, write_message
from anabranch.store.ports import Head, HeadFilter, Store

VERBS: tuple[BulkVerb, ...] = get_args(BulkVerb)
PAGE_MAX = 500
AT_ONCE = 32  # runs that are told at the same time: they share commits

Say = Callable[[str, Sayable], Awaitable[Any]]
Redrive = Callable[[str], Awaitable[str]]
Plan = Callable[[str], Awaitable[RedrivePlan]]


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and with which runs."""

    verb: BulkVerb
    wanted: HeadFilter
    dry_run: bool = False
    actor: str = ""
    reason: str = ""
    values: Mapping[str, Any] = {}  # of a patch
    reducer: Reducer = "set"
    everything: bool = False  # needed where the filter leaves nothing out


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one run."""

    run: str
    name: str
    status: str  # as it was found
    outcome: Literal["done", "refused", "would"]
    new: str | None = None  # the run that redrives it
    code: str = ""
    message: str = ""


class BulkReport(msgspec.Struct, frozen=True, kw_only=True):
    """One page. `next` is where the next one begins: (created_at, run)."""

    verb: BulkVerb
    dry_run: bool
    found: int
    done: int
    refused: int
    items: list[Outcome]
    next: tuple[int, str] | None


class Bulks:
    """Who speaks to the engine is handed in: an engine here, or the mailbox of another's."""

    def __init__(self, store: Store, say: Say, redrive: Redrive, plan: Plan) -> None:
        self._store = store
        self._say = say
        self._redrive = redrive
        self._plan = plan

    async def page(self, asked: Bulk) -> BulkReport:
        _check(asked)
        limit = max(1, min(asked.wanted.limit, PAGE_MAX))
        wanted = replace(asked.wanted, limit=limit + 1)
        if asked.verb == "redrive":
            wanted = replace(wanted, redriven=False)
        found = await asyncio.to_thread(self._store.heads, wanted)
        heads = found[:limit]
        more = (heads[-1].created_at, heads[-1].run) if len(found) > limit else None
        return _report(asked, await self._items(asked, heads), more)

    async def these(self, asked: Bulk, runs: Sequence[str]) -> BulkReport:
        """The same for runs that somebody has picked; the filter is not looked at."""
        _check(replace(asked, everything=True))
        heads = await asyncio.to_thread(lambda: {run: self._store.head(run) for run in runs})
        there = [head for head in heads.values() if head is not None]
        items = {item.run: item for item in await self._items(asked, there)}
        return _report(asked, [items.get(run) or _unknown(run) for run in runs], None)

    async def _items(self, asked: Bulk, heads: list[Head]) -> list[Outcome]:
        if asked.verb == "purge":
            return await asyncio.to_thread(self._purge, asked, heads)
        if asked.verb == "redrive":
            return await self._redrive_all(asked, heads)
        if asked.dry_run:
            return [_unfit(asked, head) or _outcome(head, "would") for head in heads]
        return await self._each(asked, heads)

    async def _redrive_all(self, asked: Bulk, heads: list[Head]) -> list[Outcome]:
        """Those that were picked may be redriven already."""
        runs = [head.run for head in heads]
        found = await asyncio.to_thread(self._store.redrives, runs)
        by = {head.origin: head.run for head in reversed(found)}
        refused = {
            head.run: _outcome(
                head, "refused", code="redriven", message=f"redriven already: by {by[head.run]}"
            )
            for head in heads
            if head.run in by
        }
        done = await self._each(asked, [head for head in heads if head.run not in by])
        outcomes = refused | {item.run: item for item in done}
        return [outcomes[run] for run in runs]

    async def _each(self, asked: Bulk, heads: list[Head]) -> list[Outcome]:
        items: list[Outcome] = []
        said = None if asked.verb == "redrive" or asked.dry_run else _stimulus(asked)
        for start in range(0, len(heads), AT_ONCE):
            some = heads[start : start + AT_ONCE]
            items += await asyncio.gather(*(self._one(asked, head, said) for head in some))
        return items

    async def _one(self, asked: Bulk, head: Head, said: Sayable | None) -> Outcome:
        """`said` is made once for all of them: what it writes may be large."""
        try:
            refused = _unfit(asked, head)
            if refused is not None:
                return refused
            if asked.dry_run:  # of a redrive: only the log tells whether anything failed
                if head.status == "completed":
                    await self._plan(head.run)
                return _outcome(head, "would")
            if said is None:
                return _outcome(head, "done", new=await self._redrive(head.run))
            await self._say(head.run, said)
        except AnabranchError as error:
            if error.code in ("engine_stopped", "engine_closed"):
                raise  # nobody is there any more: the rest would be told the same
            return _outcome(head, "refused", code=error.code, message=error.message)
        return _outcome(head, "done")

    def _purge(self, asked: Bulk, heads: list[Head]) -> list[Outcome]:
        """In a thread."""
        kept = kept_back(self._store, heads)
        items, gone = [], []
        for head in heads:
            why = _not_purged(head, kept(head))
            if why is not None:
                items.append(why)
            else:
                gone.append(head.run)
                items.append(_outcome(head, "would" if asked.dry_run else "done"))
        if gone and not asked.dry_run:
            self._store.forget(gone)
            give_back(self._store, STEPS_AT_ONCE)
        return items


def _report(asked: Bulk, items: list[Outcome], more: tuple[int, str] | None) -> BulkReport:
    return BulkReport(
        verb=asked.verb,
        dry_run=asked.dry_run,
        found=len(items),
        done=sum(item.outcome == "done" for item in items),
        refused=sum(item.outcome == "refused" for item in items),
        items=items,
        next=more,
    )


def _unknown(run: str) -> Outcome:
    said = "there is no such run any more"
    return Outcome(run=run, name="", status="", outcome="refused", code="not_found", message=said)


def _check(asked: Bulk) -> None:
    if asked.verb not in VERBS:
        raise InputError(f"{asked.verb!r:.40} is none of {', '.join(VERBS)}", code="usage")
    if asked.verb == "patch" and not asked.values and not asked.dry_run:
        raise InputError("a patch needs values", code="usage")
    if asked.verb != "patch" and asked.values:
        raise InputError(f"{asked.verb} takes no values; only patch does", code="usage")
    if asked.verb == "patch":
        patches(asked.values, asked.reducer)  # refuses what no run could take
    if not asked.everything and _is_open(asked.wanted):
        raise InputError(
            "the filter leaves no run out: name a status, dialect, name, label, search, parent or "
            "time, or say that you mean it (`everything`; --all)",
            code="bulk_everything",
        )


def _is_open(wanted: HeadFilter) -> bool:
    given = msgspec.structs.asdict(wanted)
    return not any(given[name] for name in given if name not in ("before", "limit"))


def _stimulus(asked: Bulk) -> Sayable:
    match asked.verb:
        case "pause":
            return s.Pause(asked.actor, asked.reason)
        case "resume":
            return s.Resume(asked.actor)
        case "patch":
            return s.PatchContext(patches(asked.values, asked.reducer), asked.actor)
        case _:
            return s.Cancel(asked.actor, asked.reason)


def _unfit(asked: Bulk, head: Head) -> Outcome | None:
    """What can be told from the index card alone: the same in a dry run and in earnest."""
    if asked.verb == "redrive":
        if head.finished:
            return None
        return _outcome(head, "refused", code="not_finished", message="the run has not ended")
    if head.finished:
        said = f"the run has ended: {head.status}"
        return _outcome(head, "refused", code="run_finished", message=said)
    if asked.verb == "resume" and head.status != "paused":
        return _outcome(head, "refused", code="not_paused", message="the run is not paused")
    return None


def _not_purged(head: Head, kept: str) -> Outcome | None:
    if not head.finished:
        return _outcome(head, "refused", code="not_finished", message="the run has not ended")
    if kept:
        return _outcome(head, "refused", code="needed", message=kept)
    return None


def _outcome(
    head: Head,
    outcome: Literal["done", "refused", "would"],
    *,
    new: str | None = None,
    code: str = "",
    message: str = "",
) -> Outcome:
    return Outcome(
        run=head.run,
        name=head.name,
        status=head.status,
        outcome=outcome,
        new=new,
        code=code,
        message=message,
    )


def bulks_of(verbs: Verbs) -> Bulks:
    """With the engine of this process, which is open."""
    return Bulks(verbs.engine.store, verbs.send, verbs.redrive, verbs.plan_redrive)


async def bulks_at(verbs: Verbs) -> Bulks:
    """With the engine of this process, or through the mailbox of the one that owns the store."""
    store = verbs.engine.store
    try:
        await verbs.engine.open(run_jobs=False)
    except StoreInUse as error:
        owner = error.message

        async def post(run: str, said: Sayable) -> None:
            await _post(store, run, said)

        async def no_redrive(_run: str) -> str:
            raise Refused(f"{owner} Runs are started there: --server URL reaches it.", code="owned")

        return Bulks(store, post, no_redrive, verbs.plan_redrive)
    return bulks_of(verbs)


async def _post(store: Store, run: str, said: Sayable) -> None:
    message = store.post(run, write_message(said), int(time.time() * 1000))
    until = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < until:
        posted = store.message(message)
        if posted is not None and posted.answer is not None:
            answer = read_answer(posted.answer)
            if not answer.ok:
                raise Refused(answer.message, code=answer.code)
            return
        await asyncio.sleep(ASK_SECONDS)
    raise AnabranchError("the engine has not answered; the message stays", code="no_answer")
