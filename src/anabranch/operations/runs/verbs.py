"""Verbs that change something: they go through the engine that owns the store.

`Verbs` speaks to an engine in this process. `say` is for a process that has none: if another engine
owns the store, the stimulus is posted to it and its answer awaited; if none does, this process
becomes the engine for a moment, records the stimulus and lets go. Either way it has taken effect
when the call returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, get_args
from weakref import WeakValueDictionary

import msgspec

from anabranch import files
from anabranch.dialects.port import RegisteredTool
from anabranch.dialects.source import SourceLimits
from anabranch.dialects.xrc729.words import DIALECT, SESSION
from anabranch.errors import AnabranchError, InputError, Refused, StoreInUse
from anabranch.ids import checked_run_id
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.kernel.values import ContextPatch
from anabranch.literals import PRIORITY_MAX, Reducer
from anabranch.net.net import Net
from anabranch.operations.definitions.compile_cache import CACHE
from anabranch.operations.definitions.input_check import require_input
from anabranch.operations.definitions.preflight import Preflight
from anabranch.operations.definitions.prepare import Prepared, Rules, Source, path_in, prepare
from anabranch.operations.read.event_view import EventRecord
from anabranch.operations.read.reader import Reader
from anabranch.operations.read.task_events import with_tasks
from anabranch.operations.runs.earlier_decision import decision_refusals
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.messages.codec import MailAnswer, Sayable, read_answer, write_message
from anabranch.store.access_ports import AuditEntry, RequestRecord
from anabranch.store.ports import Definition, Store
from anabranch.work.values.json_values import require_json

if TYPE_CHECKING:
    from anabranch.operations.runs.redrive_plan import PreparedRedrive, RedrivePlan

Right = Literal["", "operate", "decide"]

ANSWER_SECONDS = 10.0
ASK_SECONDS = 0.02
LABEL_LETTERS = 1024
LABELS_MAX = 64


class Verbs:
    """What can be done with an engine, by people and programs alike."""

    def __init__(
        self,
        engine: EngineLoop,
        tools: Callable[[], Iterable[RegisteredTool]],
        preflight: Preflight | None = None,
    ) -> None:
        self.engine = engine
        self.preflight = preflight or Preflight()
        self.read = Reader(engine.store, engine.nets, self.preflight)
        self._tools = tools
        self._files = files.SharedReads(SourceLimits().bytes_max)
        #: Of origins: two who redrive one at the same time do not both come first.
        self._redriving = WeakValueDictionary[str, asyncio.Lock]()

    async def start(
        self,
        source: Source | Prepared,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word users know
        *,
        run: str | None = None,
        step: str | None = None,
        labels: Mapping[str, str] | None = None,
        parent: str | None = None,
        returns: str = "",
        rules: Rules | None = None,
        trace: str = "",
        marks: Mapping[str, Any] | None = None,
        begun_by: str = "",
        depth: int = 0,
        allow_extra_input: bool = False,
        handed_on: bool = False,
        priority: int | None = None,
        held: tuple[str, ...] = (),
        request: RequestRecord | None = None,
        opening: files.Opening = files.open_regular,
        decoded: bool = False,
    ) -> str:
        """Begin a run of this definition; returns its id once that is durable. Its first commit
        writes what the `request` leaves, too: see `EngineLoop.start`. Input that a parent hands on
        need not have the types of defaults. A file is opened with `opening`. Input that was
        `decoded` from JSON for this call is nobody else's, and is taken as it is."""
        if isinstance(source, Prepared):
            prepared = source
        else:
            prepared = await self._prepared(source, rules, opening)
        self.preflight.require(prepared.net)
        given = dict(input or {}) if decoded else _checked_input(input)
        require_input(prepared.net, given, extra=allow_extra_input, handed_on=handed_on)
        return await self._begun(
            prepared.definition,
            prepared.net,
            run,
            _checked_labels(labels),
            input=given,
            step=step,
            parent=parent,
            returns=returns,
            trace=trace,
            marks=marks,
            begun_by=begun_by,
            depth=depth,
            started_with=await self.preflight.started_with(prepared.net, given),
            priority=_checked_priority(priority),
            held=held,
            request=request,
        )

    async def _begun(
        self,
        definition: Definition,
        net: Net,
        run: str | None,
        labels: Mapping[str, str],
        **given: Any,
    ) -> str:
        """A session of somebody gets their next number."""
        engine = self.engine
        if net.dialect != DIALECT or (run is not None and engine.known(run)):
            return await engine.start(definition, net, run=run, labels=labels, **given)
        from anabranch.operations.sessions.numbers import numbered, session_owner

        owner = session_owner(net, labels)
        if not owner:
            return await engine.start(definition, net, run=run, labels=labels, **given)
        chosen = engine.new_run_id() if run is None else checked_run_id(run)
        async with numbered(engine.store, owner, chosen, labels) as with_number:
            return await engine.start(definition, net, run=chosen, labels=with_number, **given)

    async def _prepared(
        self, source: Source, rules: Rules | None, opening: files.Opening
    ) -> Prepared:
        """Files are not read in the event loop, and only regular ones."""
        path, tools = path_in(source), self._tools()
        if path is None and (rules is None or isinstance(rules, Mapping)):
            return prepare(source, tools, rules)
        content = None
        if path is not None:
            content = await self._files.read(path, opening)
            if rules is None and CACHE.knows(content, file=str(path), tools=tools):
                return prepare(source, tools, content=content)
        return await asyncio.to_thread(prepare, source, tools, rules, content=content)

    async def redrive(
        self,
        run: str,
        *,
        new: str | None = None,
        trace: str = "",
        from_step: str = "",
        again: bool = False,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word users know
        request: RequestRecord | None = None,
    ) -> str:
        """Begin a linked run that reuses what succeeded and works again only on what failed.

        `new` is its id, where somebody has chosen one. With `from_step` that step and what depends
        on it are done again as well, however they ended. A run that another redrives already is
        refused without `again`. `input` are its secret inputs once more, which no store keeps. Its
        first commit writes what the `request` leaves, as with `start`.
        """
        found = await self._redrive(run, from_step)
        async with self._redriving.setdefault(found.run, asyncio.Lock()):
            again_given = _checked_input(input)
            marks = found.marks(again_given)
            async with self._first_redrive(found.run, new, again=again):
                return await self._begin_redrive(
                    found, new, again_given, trace=trace, marks=marks, request=request
                )

    def _first_redrive(
        self, run: str, new: str | None, *, again: bool
    ) -> AbstractAsyncContextManager[None]:
        if again:
            return nullcontext()
        from anabranch.operations.runs.redrive_claim import first_redrive

        return first_redrive(self.engine.store, run, new, self.engine.clock.now())

    async def _begin_redrive(
        self, found: PreparedRedrive, new: str | None, secrets: Mapping[str, Any], **given: Any
    ) -> str:
        before = found.state
        await self.preflight.require_again(found.net, before)
        labels = {key: text for key, text in before.labels.items() if key != SESSION}
        return await self._begun(
            found.definition,
            found.net,
            new,
            labels,
            **given,
            input={**before.workload, **secrets, **found.secrets},
            origin=found.run,
            sealed=tuple(before.sealed),  # marks stand for secrets in them
            **found.redrive.start_fields,
            priority=before.priority,
            started_with=await self.preflight.started_with(found.net, before.workload),
        )

    async def plan_redrive(self, run: str, from_step: str = "") -> RedrivePlan:
        """What `redrive` would do with this run; refused like it, and nothing is begun."""
        return (await self._redrive(run, from_step)).plan()

    async def _redrive(self, run: str, from_step: str) -> PreparedRedrive:
        from anabranch.operations.runs.redrive_plan import prepare_redrive

        return await asyncio.to_thread(prepare_redrive, self.read, run, from_step)

    async def send(self, run: str, stimulus: Sayable, request: RequestRecord | None = None) -> None:
        """Returns once it has taken effect, in one commit with what the request leaves."""
        found = self.read.find(run).run
        async with decision_refusals(self.engine.store, found, stimulus):
            await self.engine.send(found, stimulus, request)

    async def wait(self, run: str, *, standing: bool = False) -> State:
        return await self.engine.wait(run, standing=standing)

    async def events(
        self, run: str, after: int = 0, *, tasks: bool = False
    ) -> AsyncIterator[EventRecord]:
        """Every event of the run, from the log and then live, until it has finished. With `tasks`
        also what each task did, before the report of its job and under its number."""
        run = self.read.find(run).run
        shown = self.read.shown(run, after)
        async for _, at, event in self.engine.events(run, after):
            record = shown.record(at, event)
            for each in with_tasks([record]) if tasks else (record,):
                yield each


def _checked_input(given: Mapping[str, Any] | None) -> dict[str, Any]:
    if given is None or (type(given) is dict and not given):
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"the input must be a mapping, not {type(given).__name__}")
    checked: dict[str, Any] = require_json(dict(given), "the input")
    return checked


def _checked_priority(given: int | None) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or abs(given) > PRIORITY_MAX:
        message = f"a priority is a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}"
        raise InputError(f"{message}, not {given!r:.40}", code="priority")
    return given


def _checked_labels(given: Mapping[str, str] | None) -> dict[str, str]:
    labels = dict(given or {})
    if labels:
        require_json(labels, "a label")
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InputError(f"the label {key!r} is not text: labels are pairs of texts")
        if len(key) > LABEL_LETTERS or len(value) > LABEL_LETTERS:
            raise InputError(
                f"the label {key[:40]!r} has more than {LABEL_LETTERS:,} letters: labels are for "
                "finding runs, larger things belong into the input"
            )
    if len(labels) > LABELS_MAX:
        raise InputError(f"a run has at most {LABELS_MAX} labels, not {len(labels):,}")
    return labels


def decision(
    gate: str,
    verdict: str,
    actor: str = "",
    reason: str = "",
    evidence: Any = None,
    *,
    override: bool = False,
    decoded: bool = False,
) -> s.Decide:
    """An answer to a gate; `evidence` is plain data that is kept with it.

    `override` answers in the place of the source that the definition declares. What was `decoded`
    for this call needs no look.
    """
    checked = evidence if decoded else require_json(evidence, "the evidence", root="evidence")
    match verdict:
        case "fulfil" | "reject" | "ask_again":
            return s.Decide(gate, verdict, actor, reason, checked, override)
        case _:
            raise InputError(
                f"a gate is answered with fulfil, reject or ask_again, not {verdict!r}"
            )


def skipping(
    step: str,
    token: int = 0,
    actor: str = "",
    reason: str = "",
    result: Any = msgspec.UNSET,
    right: Right = "",
    *,
    decoded: bool = False,
) -> s.Skip:
    """The end of a step run without its work; with a result it counts as done. Whoever comes by
    HTTP has a `right`: to operate, or also to decide."""
    if result is msgspec.UNSET:
        return s.Skip(step, token, actor, reason, right=right)
    checked = result if decoded else require_json(result, "the result", root="result")
    return s.Skip(step, token, actor, reason, True, checked, right)


def patches(
    values: Mapping[str, Any], reducer: Reducer = "set", *, decoded: bool = False
) -> tuple[ContextPatch, ...]:
    """Writes to the context, one for each key."""
    if reducer not in get_args(Reducer):
        raise InputError(f"there is no reducer {reducer!r}: {', '.join(get_args(Reducer))}")
    checked = values if decoded else require_json(dict(values), "the patch", root="patch")
    return tuple(ContextPatch(key, value, reducer) for key, value in checked.items())


async def say(
    store: Store,
    open_engine: Callable[[], EngineLoop],
    run: str,
    said: Sayable,
    audit: AuditEntry | None = None,
) -> str:
    """Deliver a stimulus from a process without an engine; tells how ("engine", "recorded"). The
    commit of its effect has the line of the audit trail, whichever engine makes it."""
    engine = open_engine()
    async with decision_refusals(store, run, said):
        if not await _try_to_open(engine):
            return await _post(store, engine, run, write_message(said, audit))
        try:
            request = None if audit is None else RequestRecord(audit=audit)
            await engine.send(run, said, request)
        finally:
            await engine.close(grace_seconds=0)
    return "recorded"


async def _try_to_open(engine: EngineLoop) -> bool:
    try:
        await engine.open(run_jobs=False)
    except StoreInUse:
        return False
    return True


async def _post(store: Store, engine: EngineLoop, run: str, message: bytes) -> str:
    """Put it into the mailbox; whoever owns the store answers. If nobody does any more, we do."""
    number = store.post(run, message, int(time.time() * 1000))
    until = time.monotonic() + ANSWER_SECONDS
    ours = False
    try:
        while time.monotonic() < until:
            posted = store.message(number)
            if posted is not None and posted.answer is not None:
                return _accepted(read_answer(posted.answer), "recorded" if ours else "engine")
            ours = ours or (store.owner() is None and await _try_to_open(engine))
            await asyncio.sleep(ASK_SECONDS)
    finally:
        if ours:
            await engine.close(grace_seconds=0)
    raise AnabranchError(
        f"the engine ({store.owner() or 'gone'}) has not answered within {ANSWER_SECONDS:g} s; "
        "the message stays in its mailbox",
        code="no_answer",
    )


def _accepted(answer: MailAnswer, how: str) -> str:
    if not answer.ok:
        raise Refused(answer.message, code=answer.code)
    return how
