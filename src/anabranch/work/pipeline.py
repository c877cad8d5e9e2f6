"""Pipelines: a program's tasks in order, on one worker, with rules for what follows each.

The outcome of a task is laid before its rules; the first that matches decides. Without a match a
success goes on and an error fails. Retries are counted per success: a task that succeeded starts
from zero when a jump comes back to it. Writes to the context travel with the answer and are
recorded when the step ends; inside the pipeline they are visible at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import ExpressionError, InputError
from anabranch.kernel.reducers import check_patch, reduce_into
from anabranch.kernel.values import Answer, ContextPatch, Fault, failed, succeeded
from anabranch.net.program import Program, Rule, TaskSpec, Write
from anabranch.work.port import Parked, Performer, Task

DELAY_SECONDS = 1.0
_CONTINUE = Rule(None, "continue")
_FAIL = Rule(None, "fail")


class Pipeline:
    """The performer for programs; it calls the performers of the tasks' kinds."""

    def __init__(self, performers: Mapping[str, Performer]) -> None:
        self._performers = performers

    async def perform(self, task: Task) -> Answer | Parked:
        program: Program = task.program
        return await Passage(program, task, self._performers).run()


class Passage:
    """One way through a program."""

    def __init__(
        self,
        program: Program,
        task: Task,
        performers: Mapping[str, Performer],
        iteration: Mapping[str, Any] | None = None,
    ) -> None:
        self._program = program
        self._task = task
        self._performers = performers
        self._ctx = dict(task.names.get("ctx", {}))
        self._iter: dict[str, Any] = dict(iteration or {})
        self._results: dict[str, Any] = {}
        self._prev: Any = None
        self._attempts: dict[str, int] = {}
        self._jumps = 0
        self._at = 0
        self._patches: list[ContextPatch] = []
        self.shared: list[ContextPatch] = []  # for the loop this is an item of

    async def run(self) -> Answer | Parked:
        while self._at < len(self._program.tasks):
            spec = self._program.tasks[self._at]
            answer, outcome = await self._execute(spec)
            if isinstance(answer, Parked) or answer.status in ("aborted", "cancel_run"):
                return answer
            try:
                ended = await self._follow(spec, answer, outcome)
            except (ExpressionError, InputError) as error:
                return self._failed(Fault(error.code, f"task {spec.label}: {error}", "", False))
            if ended is not None:
                return ended
        return succeeded(self._prev, patches=tuple(self._patches))

    # -- one task ----------------------------------------------------------------------------

    async def _execute(self, spec: TaskSpec) -> tuple[Answer | Parked, dict[str, Any]]:
        attempt = self._attempts.get(spec.label, 0) + 1
        self._attempts[spec.label] = attempt
        begin = time.monotonic()
        answer = await self._perform(spec, attempt)
        spent = int((time.monotonic() - begin) * 1000)
        return answer, outcome_of(answer, attempt, spent) if isinstance(answer, Answer) else {}

    async def _perform(self, spec: TaskSpec, attempt: int) -> Answer | Parked:
        performer = self._performers.get(spec.kind)
        if performer is None:
            return failed("config", f"there is no work of kind {spec.kind!r}", retryable=False)
        names = self.names(spec.label, attempt)
        try:
            inputs = spec.inputs.evaluate(names) if spec.inputs is not None else {}
        except ExpressionError as error:
            return failed("transform", str(error), retryable=False)
        seconds = spec.timeout_ms / 1000 if spec.timeout_ms is not None else None
        task = msgspec.structs.replace(
            self._task,
            kind=spec.kind,
            attempt=attempt,
            inputs=inputs,
            names=names,
            program=None,
            key=f"{self._task.key}/{spec.label}",
            timeout_seconds=seconds,
        )
        try:
            async with asyncio.timeout(seconds):
                return await performer.perform(task)
        except TimeoutError:
            return failed("timeout", f"no answer within {seconds:g} s", code="TIMEOUT")

    def names(self, label: str, attempt: int, outcome: Any = None) -> dict[str, Any]:
        """What the templates of a task and the rules after it can see."""
        return {
            **self._task.names,
            "ctx": self._ctx,
            "local": {
                "prev": self._prev,
                "task": label,
                "attempt": attempt,
                "results": self._results,
                "iter": self._iter,
                "outcome": outcome,
            },
        }

    # -- what follows ------------------------------------------------------------------------

    async def _follow(self, spec: TaskSpec, answer: Answer, outcome: Any) -> Answer | None:
        """Carry out the rule that matches; an answer ends the pipeline."""
        attempt = self._attempts[spec.label]
        names = self.names(spec.label, attempt, outcome)
        fine = answer.status == "ok"
        rule = self._rule(spec, names, fine)
        if fine:
            self._prev = self._results[spec.label] = answer.result
            self._attempts[spec.label] = 0
            self._patches.extend(answer.patches)
            self._write(spec.set_ctx, spec.set_iter, self.names(spec.label, attempt, outcome))
        if rule.set_ctx or rule.set_iter:
            self._write(rule.set_ctx, rule.set_iter, self.names(spec.label, attempt, outcome))
        for write in rule.set_shared:
            value = write.value.evaluate(self.names(spec.label, attempt, outcome))
            self.shared.append(ContextPatch(write.key, value, write.reducer))
        match rule.do:
            case "continue":
                self._at += 1
            case "retry":
                return await self._retry(spec, rule, answer, names, attempt)
            case "jump":
                return self._jump(rule)
            case "break":
                return succeeded(self._prev, patches=tuple(self._patches))
            case "fail":
                return self._failed(answer.fault or Fault("policy", "a rule said fail", "", False))
        return None

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
        self, ctx: tuple[Write, ...], iteration: tuple[Write, ...], names: Mapping[str, Any]
    ) -> None:
        for write in ctx:
            patch = ContextPatch(write.key, write.value.evaluate(names), write.reducer)
            check_patch(self._ctx, patch)
            reduce_into(self._ctx, patch)
            self._patches.append(patch)
        for write in iteration:
            self._iter[write.key] = write.value.evaluate(names)

    async def _retry(
        self, spec: TaskSpec, rule: Rule, answer: Answer, names: Mapping[str, Any], attempt: int
    ) -> Answer | None:
        if attempt >= rule.attempts:
            spent = Fault("retries", f"task {spec.label}: {attempt} attempts were not enough")
            return self._failed(answer.fault or spent)
        self._attempts[spec.label] = attempt
        await asyncio.sleep(delay_seconds(rule, names, attempt))
        return None

    def _jump(self, rule: Rule) -> Answer | None:
        self._jumps += 1
        if self._jumps > self._program.jumps_max:
            message = f"more than {self._program.jumps_max:,} jumps: this looks endless"
            return self._failed(Fault("jump_limit", message, "", False))
        self._at = self._program.index(rule.to)
        return None

    def _failed(self, fault: Fault) -> Answer:
        return Answer(
            status="error", outcome="error", fault=fault, result=None, patches=tuple(self._patches)
        )


def delay_seconds(rule: Rule, names: Mapping[str, Any], retry: int) -> float:
    """How long to wait before the retry with that number."""
    base = rule.delay.evaluate(names) if rule.delay is not None else DELAY_SECONDS
    try:
        base = max(0.0, float(base))
    except (TypeError, ValueError):
        raise InputError(f"a delay must be a number of seconds, not {base!r}") from None
    match rule.backoff:
        case "none" | "constant":
            return base
        case "linear":
            return base * retry
        case "exponential":
            return float(base * 2 ** min(retry - 1, 40))


def outcome_of(answer: Answer, attempt: int, milliseconds: int) -> dict[str, Any]:
    """The envelope that rules look at."""
    fault = answer.fault
    error = None
    if fault is not None:
        details = fault.details if isinstance(fault.details, Mapping) else {}
        error = {
            "kind": fault.kind,
            "message": fault.message,
            "code": fault.code,
            "retryable": fault.retryable,
            "details": fault.details,
            "status": details.get("http_status"),
            **{key: details[key] for key in ("http_status", "retry_after") if key in details},
        }
    return {
        "status": answer.status,
        "result": answer.result,
        "error": error,
        "meta": {"attempt": attempt, "duration_ms": milliseconds},
    }
