"""Pipelines: a program's tasks in order, on one worker, with rules for what follows each.

The outcome of a task is laid before its rules; the first that matches decides. Without a match a
success goes on and an error fails. Retries are counted per success: a task that succeeded starts
from zero when a jump comes back to it. Writes to the context travel with the answer and are
recorded when the step ends; inside the pipeline they are visible at once.

Every execution that is a new deed has a key of its own: retries of a failed attempt share one, and
the next round of a jump has another. A job that runs again from the start makes the same keys.

Secrets of the keychain are there while inputs are rendered; the answer leaves without them.
"""

from __future__ import annotations

import asyncio
import time
from collections import ChainMap
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from anabranch.errors import AnabranchError, ExpressionError, InputError, StoreError
from anabranch.kernel.reducers import check_patch, reduce_into
from anabranch.kernel.values import Answer, ContextPatch, Fault, failed, succeeded
from anabranch.net.program import Program, Rule, TaskSpec, Write
from anabranch.work import inputs
from anabranch.work.keychain import KeychainError
from anabranch.work.outcomes import outcome_of
from anabranch.work.payloads import PayloadPort
from anabranch.work.port import Parked, Performer, Task
from anabranch.work.redaction import Redactor
from anabranch.work.results import keep, read_policy, seen_by_tasks

DELAY_SECONDS = 1.0
_CONTINUE = Rule(None, "continue")
_FAIL = Rule(None, "fail")

KeyringFor = Callable[[Task], Awaitable[Mapping[str, Any]]]
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a pipeline works with."""

    performers: Mapping[str, Performer]
    payloads: PayloadPort | None = None  # for results that are too large to travel
    keyring: KeyringFor | None = None  # the secrets a task may use
    redactor: Redactor | None = None
    sleep: Sleep = asyncio.sleep


class Pipeline:
    """The performer for programs; it calls the performers of the tasks' kinds."""

    def __init__(self, means: Means) -> None:
        self._means = means

    async def perform(
        self, task: Task, iteration: Mapping[str, Any] | None = None
    ) -> Answer | Parked:
        """Carry out `task.program`; `iteration` is what `iter` holds at the start."""
        answer = await Passage(task.program, task, self._means, iteration).run()
        redactor = self._means.redactor
        if redactor is None or isinstance(answer, Parked):
            return answer
        return redactor.answer(answer)


class Passage:
    """One way through a program."""

    def __init__(
        self,
        program: Program,
        task: Task,
        means: Means,
        iteration: Mapping[str, Any] | None = None,
    ) -> None:
        self._program = program
        self._task = task
        self._means = means
        self._context: Mapping[str, Any] = task.names.get("ctx", {})  # large, perhaps: not copied
        self._written: dict[str, Any] = {}
        self._iter: dict[str, Any] = dict(iteration or {})
        self._results: dict[str, Any] = {}
        self._prev: Any = None
        self._last = succeeded()  # the last answer that was good, as it will travel
        self._attempts: dict[str, int] = {}
        self._deeds: dict[str, int] = {}  # how often each task was done with
        self._jumps = 0
        self._at = 0
        self._patches: list[ContextPatch] = []
        self.shared: list[ContextPatch] = []  # for the loop this is an item of

    async def run(self) -> Answer | Parked:
        while self._at < len(self._program.tasks):
            spec = self._program.tasks[self._at]
            attempt = self._attempts[spec.label] = self._attempts.get(spec.label, 0) + 1
            begin = time.monotonic()
            answer = await self._perform(spec, attempt)
            if isinstance(answer, Parked):
                return self._parked(spec, answer)
            if answer.status in ("aborted", "cancel_run"):
                return answer
            try:
                ended = await self._follow(spec, attempt, answer, time.monotonic() - begin)
            except AnabranchError as error:  # a write, a delay or a policy that does not work out
                may_heal = isinstance(error, StoreError)
                return self._failed(Fault(error.code, f"task {spec.label}: {error}", "", may_heal))
            if ended is not None:
                return ended
        return self._finished()

    def names(self, label: str, attempt: int, outcome: Any = None) -> dict[str, Any]:
        """What the templates of a task and the rules after it can see."""
        return {
            **self._task.names,
            "ctx": self._ctx(),
            "local": {
                "prev": self._prev,
                "task": label,
                "attempt": attempt,
                "results": self._results,
                "iter": self._iter,
                "outcome": outcome,
            },
        }

    def _ctx(self) -> Mapping[str, Any]:
        if not self._written:
            return self._context
        return ChainMap(self._written, cast(dict[str, Any], self._context))

    # -- one task ----------------------------------------------------------------------------

    async def _perform(self, spec: TaskSpec, attempt: int) -> Answer | Parked:
        performer = self._means.performers.get(spec.kind)
        if performer is None:
            return failed("config", f"there is no work of kind {spec.kind!r}", retryable=False)
        if getattr(performer, "parks", False) and (refusal := self._cannot_park(spec)):
            return failed("config", refusal, retryable=False)
        try:
            task = await self._prepared(spec, attempt)
        except KeychainError as error:
            return failed(error.kind, error.message, retryable=error.retryable)
        except ExpressionError as error:
            return failed("transform", str(error), retryable=False)
        limit = task.timeout_seconds
        if limit is None:
            return await _carried_out(performer, task)
        try:
            async with asyncio.timeout(limit) as timer:
                return await _carried_out(performer, task)
        except TimeoutError:
            assert timer.expired()
            return failed("timeout", f"no answer within {limit:g} s", code="TIMEOUT")

    async def _prepared(self, spec: TaskSpec, attempt: int) -> Task:
        names = self.names(spec.label, attempt)
        if self._means.keyring is not None:
            names["keychain"] = await self._means.keyring(self._task)
        given = spec.inputs.evaluate(names) if spec.inputs is not None else {}
        return msgspec.structs.replace(
            self._task,
            kind=spec.kind,
            attempt=attempt,
            inputs=given if isinstance(given, Mapping) else {"value": given},
            names=names,
            program=None,
            key=self._key(spec.label),
            timeout_seconds=spec.timeout_ms / 1000 if spec.timeout_ms is not None else None,
        )

    def _key(self, label: str) -> str:
        deeds = self._deeds.get(label, 0)
        return f"{self._task.key}/{label}" + (f"~{deeds + 1}" if deeds else "")

    # -- parking -----------------------------------------------------------------------------

    def _parked(self, spec: TaskSpec, parked: Parked) -> Answer | Parked:
        refusal = self._cannot_park(spec)
        return self._failed(Fault("config", refusal, "", False)) if refusal else parked

    def _cannot_park(self, spec: TaskSpec) -> str:
        """Why the answer of this task could not be waited for, since nothing here would go on."""
        what = f"task {spec.label} ({spec.kind}) waits for an answer from outside"
        if self._at + 1 < len(self._program.tasks):
            return f"{what} and must be the last of its step; move what follows to the next step"
        if spec.rules or spec.set_ctx or spec.set_iter:
            return f"{what}, so its rules and writes would never run; use the arcs of its step"
        if self._patches:
            return f"{what}, and what earlier tasks wrote would be lost; give it a step of its own"
        return ""

    # -- what follows ------------------------------------------------------------------------

    async def _follow(
        self, spec: TaskSpec, attempt: int, answer: Answer, seconds: float
    ) -> Answer | None:
        """Carry out the rule that matches; an answer ends the pipeline."""
        before = self._prev
        fine = answer.status == "ok"
        if fine:
            await self._take(spec, answer)
            if not (spec.rules or spec.set_ctx or spec.set_iter):  # most tasks of large loops
                self._at += 1
                return None
        outcome = outcome_of(answer, attempt, int(seconds * 1000))
        names = self.names(spec.label, attempt, outcome) if spec.rules else {}
        rule = self._rule(spec, names, fine)
        if fine:
            self._write(spec, attempt, outcome, spec.set_ctx, spec.set_iter)
        self._write(spec, attempt, outcome, rule.set_ctx, rule.set_iter)
        for write in rule.set_shared:
            value = write.value.evaluate(self.names(spec.label, attempt, outcome))
            self.shared.append(ContextPatch(write.key, value, write.reducer))
        match rule.do:
            case "continue":
                self._at += 1
                if not fine:
                    self._deeds[spec.label] = self._deeds.get(spec.label, 0) + 1
            case "retry":
                self._prev = before  # it sees what it saw
                return await self._retry(spec, rule, answer, names, attempt)
            case "jump":
                return await self._jump(rule)
            case "break":
                return self._finished()
            case "fail":
                return self._failed(answer.fault or _told_to_fail(spec))
        return None

    async def _take(self, spec: TaskSpec, answer: Answer) -> None:
        """A good answer: its result becomes visible, its patches take effect."""
        travels = await self._kept(spec, answer.result)
        self._last = msgspec.structs.replace(answer, result=travels, patches=())
        self._prev = self._results[spec.label] = seen_by_tasks(answer.result, travels)
        self._attempts[spec.label] = 0
        self._deeds[spec.label] = self._deeds.get(spec.label, 0) + 1
        for patch in answer.patches:
            self._patch(patch)

    async def _kept(self, spec: TaskSpec, result: Any) -> Any:
        if spec.output is None:
            return result
        redactor = self._means.redactor
        clean = result if redactor is None else redactor.clean(result)  # the store is outside
        return await keep(read_policy(spec.output), clean, self._means.payloads)

    @staticmethod
    def _rule(spec: TaskSpec, names: Mapping[str, Any], fine: bool) -> Rule:
        for rule in spec.rules:
            if rule.when is None:
                return rule
            try:
                if rule.when.evaluate(names):
                    return rule
            except ExpressionError:
                continue  # it asks about something this outcome does not have
        if fine or spec.on_unmatched_error == "continue":
            return _CONTINUE
        return _FAIL

    def _write(
        self,
        spec: TaskSpec,
        attempt: int,
        outcome: Any,
        ctx: tuple[Write, ...],
        iteration: tuple[Write, ...],
    ) -> None:
        for write in ctx:
            value = write.value.evaluate(self.names(spec.label, attempt, outcome))
            self._patch(ContextPatch(write.key, value, write.reducer))
        for write in iteration:
            value = write.value.evaluate(self.names(spec.label, attempt, outcome))
            patch = ContextPatch(write.key, value, write.reducer)
            check_patch(self._iter, patch)
            reduce_into(self._iter, patch)

    def _patch(self, patch: ContextPatch) -> None:
        if patch.key in self._context and patch.key not in self._written:
            self._written[patch.key] = self._context[patch.key]
        check_patch(self._written, patch)
        reduce_into(self._written, patch)
        self._patches.append(patch)

    async def _retry(
        self, spec: TaskSpec, rule: Rule, answer: Answer, names: Mapping[str, Any], attempt: int
    ) -> Answer | None:
        if attempt >= rule.attempts:
            return self._failed(answer.fault or _not_enough(spec, attempt))
        self._attempts[spec.label] = attempt
        await self._means.sleep(delay_seconds(rule, names, attempt))
        return None

    async def _jump(self, rule: Rule) -> Answer | None:
        self._jumps += 1
        if self._jumps > self._program.jumps_max:
            message = f"more than {self._program.jumps_max:,} jumps: this looks endless"
            return self._failed(Fault("jump_limit", message, "", False))
        labels = [task.label for task in self._program.tasks]
        if rule.to not in labels:
            raise InputError(f"there is no task '{rule.to}' to jump to", code="config")
        self._at = labels.index(rule.to)
        await asyncio.sleep(0)  # tasks that never wait must not keep a cancel from being heard
        return None

    # -- the end -----------------------------------------------------------------------------

    def _finished(self) -> Answer:
        return msgspec.structs.replace(self._last, patches=tuple(self._patches))

    def _failed(self, fault: Fault) -> Answer:
        return Answer(status="error", outcome="error", fault=fault, patches=tuple(self._patches))


async def _carried_out(performer: Performer, task: Task) -> Answer | Parked:
    """The answer, also where the performer has none because it is broken."""
    try:
        now = getattr(performer, "perform_now", None)
        answer: object = now(task) if now is not None else await performer.perform(task)
    except TimeoutError as error:  # a performer's own; the task's limit arrives as a cancel
        return failed("timeout", str(error) or f"the {task.kind} work ran out of time")
    except Exception as defect:
        return failed("defect", f"the {task.kind} performer failed: {defect!r}", retryable=False)
    if isinstance(answer, Answer | Parked):
        return answer
    message = f"the {task.kind} performer gave a {type(answer).__name__} for an answer"
    return failed("defect", message, retryable=False)


def _not_enough(spec: TaskSpec, attempts: int) -> Fault:
    message = f"task {spec.label}: {attempts} attempts were not enough"
    return Fault("retries", message, "", False)


def _told_to_fail(spec: TaskSpec) -> Fault:
    return Fault("policy", f"task {spec.label}: a rule said fail", "", False)


def delay_seconds(rule: Rule, names: Mapping[str, Any], retry: int) -> float:
    """How long to wait before the retry with that number."""
    given = rule.delay.evaluate(names) if rule.delay is not None else DELAY_SECONDS
    base = inputs.delay(given, "delay")
    match rule.backoff:
        case "none" | "constant":
            return base
        case "linear":
            return base * retry
        case "exponential":
            return float(base * 2 ** min(retry - 1, 40))
