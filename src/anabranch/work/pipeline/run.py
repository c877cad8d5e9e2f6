"""Runs of a pipeline: one way through a program, task by task.

The outcome of a task is laid before its rules; the first that matches decides. Without a match a
success goes on and an error fails. Retries are counted per success: a task that succeeded starts
from zero when a jump comes back to it.

Every execution that is a new deed has a key of its own: retries of a failed attempt share one, and
the next round of a jump has another. A job that runs again from the start makes the same keys.

Hooks and the items of inner loops are runs of their own, inside this one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, ExpressionError, InputError, StoreError
from anabranch.expressions.budget import TurnBudget, share_budget, unshare_budget
from anabranch.kernel.values import Answer, ContextPatch, Fault, failed
from anabranch.net.program import InnerLoop, Program, Rule, TaskHooks, TaskSpec
from anabranch.work.evaluations import evaluate_with
from anabranch.work.faults import unexpected
from anabranch.work.pipeline.controls import (
    cannot_wait,
    carried_out,
    delay_seconds,
    done_now,
    endless,
    limit_seconds,
    not_enough,
    rule_after,
    told_to_fail,
)
from anabranch.work.pipeline.held_bytes import HeldBytes, TooMuchHeld, keep_answer
from anabranch.work.pipeline.inner_loops import Done, InnerCrossing
from anabranch.work.pipeline.outcomes import outcome_of
from anabranch.work.pipeline.progress import Before
from anabranch.work.pipeline.scope import PipelineScope
from anabranch.work.pipeline.services import Services
from anabranch.work.pipeline.state import PipelineContext, PipelineState
from anabranch.work.port import Parked, Performer, Task
from anabranch.work.secrets.keychain import KeychainError
from anabranch.work.secrets.redaction import cleaned_for_store, render_with
from anabranch.work.time_limit import time_limit

_NO_HOOKS = TaskHooks()


class PipelineRun:
    """One way through a program."""

    def __init__(
        self,
        program: Program,
        task: Task,
        services: Services,
        scope: PipelineScope,
        around: PipelineContext | None = None,
    ) -> None:
        self.scope = scope
        self._program = program
        self._task = task
        self._services = services
        self._around = around  # none but the outermost can wait for an answer from outside
        self._state = PipelineState(task, services, scope, around)
        self._progress = self._state.progress
        self._limit: float | None = None  # seconds for the attempt that was begun last
        self._work = TurnBudget()
        self._held = HeldBytes(services.held_bytes_max)
        self._said: tuple[ContextPatch, ...] = ()  # what the rule that decided last has written

    @property
    def results(self) -> Mapping[str, Any]:
        """Of the tasks so far, by label."""
        return self._progress.results

    async def run(self) -> Answer | Parked:
        shared = share_budget(self._work)
        try:
            return await self._run()
        finally:
            unshare_budget(shared)

    async def _run(self) -> Answer | Parked:
        try:
            heard = await self._begin()
        except AnabranchError as error:
            return self._failed(Fault(error.code, str(error), "", False))
        except Exception as error:
            return unexpected(error, "the pipeline cannot start")
        while self._progress.at < len(self._program.tasks):
            self._work.begin_again()
            spec = self._program.tasks[self._progress.at]
            begin = time.monotonic()
            answer: Answer | Parked
            if heard is not None:
                answer, heard = heard, None
            else:
                answer = await self._visit(spec)
            if isinstance(answer, Parked):
                return await self._settle() or self._parked(spec, answer)
            answer = self._keep_result(spec, answer)
            self._progress.note(spec.label, answer)
            if answer.status in ("aborted", "cancel_run"):
                return msgspec.structs.replace(answer, tasks=tuple(self._progress.executed))
            if answer.status == "ok" and spec.simple and spec.output is None:
                self._state.take(spec, answer, answer.result)  # most tasks of large loops
                self._progress.at += 1
                continue
            milliseconds = int((time.monotonic() - begin) * 1000)
            ended = await self._follow(spec, answer, milliseconds)
            if ended is not None:
                return ended
        return self._finished()

    async def _begin(self) -> Answer | None:
        """From the start, or from where it was parked: then with what it waited for."""
        if self._task.memory is not None and self._around is None:
            self._state.restore(self._task.memory)
            return self._task.heard
        variables = self._program.variables
        if variables is not None:
            self._state.begin(await render_with(self._state.names("", 0), variables.evaluate))
        return None

    def _keep_result(self, spec: TaskSpec, answer: Answer) -> Answer:
        """The answer, or why there is no room to keep it beside those of the other tasks."""
        if answer.status != "ok" or (len(self._program.tasks) == 1 and not answer.patches):
            return answer
        try:
            self._held.put(spec.label, answer.result)
            self._held.add_patches(answer.patches)
        except TooMuchHeld as error:
            return failed(error.code, error.message, retryable=False)
        return answer

    async def _settle(self) -> Answer | None:
        """Put aside what rounds accumulated, before the pipeline waits; why that went wrong."""
        try:
            await self._state.settle()
        except AnabranchError as error:
            return self._failed(Fault(error.code, str(error), "", isinstance(error, StoreError)))
        return None

    # -- one task ----------------------------------------------------------------------------

    async def _visit(self, spec: TaskSpec) -> Answer | Parked:
        """Execute the task once, behind its hook."""
        attempts = self._progress.attempts
        attempt = attempts[spec.label] = attempts.get(spec.label, 0) + 1
        if spec.hooks is not None and spec.hooks.before is not None:
            refused = await self._open(spec, spec.hooks.before)
            if refused is not None:
                return refused
        performer = self._services.performers.get(spec.kind)
        if performer is None and spec.loop is None:
            return failed("config", f"there is no work of kind {spec.kind!r}", retryable=False)
        try:
            names = self._state.names(spec.label, attempt)
            if self._services.keyring is not None:
                names["keychain"] = await self._services.keyring(self._task)
            task = await self._prepared(spec, attempt, names)
        except KeychainError as error:
            return failed(error.kind, error.message, retryable=error.retryable)
        except ExpressionError as error:
            return failed("transform", str(error), retryable=False)
        except InputError as error:  # a time limit that is none
            return failed("config", error.message, retryable=False)
        except Exception as error:
            return unexpected(error, f"task {spec.label} cannot be prepared")
        limit = self._limit = task.timeout_seconds
        if limit is None:
            now = getattr(performer, "perform_now", None)
            if now is not None and spec.loop is None:
                return done_now(now, task)
            return await self._carried_out(spec, performer, task)
        try:
            async with time_limit(limit) as timer:
                return await self._carried_out(spec, performer, task)
        except TimeoutError:
            assert timer.expired()
            return failed("timeout", f"no answer within {limit:g} s", code="TIMEOUT")

    async def _carried_out(
        self, spec: TaskSpec, performer: Performer | None, task: Task
    ) -> Answer | Parked:
        if spec.loop is not None:
            return await self._inner_loop(spec, spec.loop, task)
        assert performer is not None, "looked for before"
        parks = getattr(performer, "parks", None)
        if self._around is not None and parks is not None and parks(task.inputs):
            return Answer(status="error", outcome="error", fault=cannot_wait(spec))
        return await carried_out(performer, task)

    async def _open(self, spec: TaskSpec, before: Program) -> Answer | None:
        """Run its `before`, once for all its attempts; an answer is why that went wrong."""
        if self._progress.opened == spec.label:
            return None
        refused = await self._hook(before, spec, "before")
        if refused is None:
            self._progress.opened = spec.label
        return refused

    async def _prepared(self, spec: TaskSpec, attempt: int, names: Mapping[str, Any]) -> Task:
        return await render_with(names, partial(self._make, spec, attempt))

    def _make(self, spec: TaskSpec, attempt: int, names: Mapping[str, Any]) -> Task:
        given = spec.inputs.evaluate(names) if spec.inputs is not None else {}
        return msgspec.structs.replace(
            self._task,
            kind=spec.kind,
            attempt=attempt,
            inputs=given if isinstance(given, Mapping) else {"value": given},
            names=names,
            program=None,
            key=self._key(spec.label),
            again=self._task.again + (f".a{attempt}" if attempt > 1 else ""),
            timeout_seconds=limit_seconds(spec, names),
            memory=None,
            heard=None,
        )

    def _key(self, label: str) -> str:
        deeds = self._progress.deeds.get(label, 0)
        return f"{self._task.key}/{label}" + (f"~{deeds + 1}" if deeds else "")

    # -- runs inside this one ----------------------------------------------------------------

    async def _hook(
        self, program: Program, spec: TaskSpec, name: str, outcome: Any = None
    ) -> Answer | None:
        """Carry out a hook; an answer is the error it ended with."""
        task = msgspec.structs.replace(self._task, key=f"{self._key(spec.label)}/{name}")
        around = self._state.seen_inside(outcome)
        answer = await PipelineRun(program, task, self._services, self.scope, around).run()
        assert isinstance(answer, Answer), "only the outermost run parks"
        if answer.status == "ok":
            return None
        fault = answer.fault or Fault("unknown", "it failed")
        message = f"`{name}` of task {spec.label}: {fault.message}"
        return failed(fault.kind, message, code=fault.code, retryable=fault.retryable)

    async def _inner_loop(self, spec: TaskSpec, loop: InnerLoop, task: Task) -> Answer:
        around = self._state.seen_inside()
        context = PipelineScope(self.scope.ctx, None)  # as the next item sees it
        held = HeldBytes(self._services.held_bytes_max)

        async def one(index: int, iteration: Mapping[str, Any]) -> Done:
            item = msgspec.structs.replace(self._task, key=f"{task.key}/{index}", again=task.again)
            scope = PipelineScope(context.ctx, iteration, HeldBytes(self._services.held_bytes_max))
            answer = await PipelineRun(loop.program, item, self._services, scope, around).run()
            assert isinstance(answer, Answer), "only the outermost run parks"
            answer = keep_answer(held, answer, scope.shared)
            if loop.window is None:  # one after the other
                context.take(answer.patches)
            return Done(answer, scope.shared)

        done = await InnerCrossing(loop, spec.label, task.names).run(one)
        self.scope.shared.extend(done.shared)
        return done.answer

    # -- parking -----------------------------------------------------------------------------

    def _parked(self, spec: TaskSpec, parked: Parked) -> Answer | Parked:
        if self._around is not None:
            return self._failed(cannot_wait(spec))
        try:
            memory = msgspec.to_builtins(self._state.saved())
        except TypeError as error:
            message = f"task {spec.label}: what was done before it is not JSON: {error}"
            return self._failed(Fault("result", message, "", False))
        memory = cleaned_for_store(memory)
        limit_ms = parked.limit_ms if self._limit is None else round(self._limit * 1000)
        return msgspec.structs.replace(parked, memory=memory, limit_ms=limit_ms)

    # -- what follows ------------------------------------------------------------------------

    async def _follow(self, spec: TaskSpec, answer: Answer, milliseconds: int) -> Answer | None:
        """Do what follows the task; an answer ends the pipeline."""
        attempt = self._progress.attempts[spec.label]
        outcome = outcome_of(answer, attempt, milliseconds)
        hooks = spec.hooks or _NO_HOOKS
        if hooks.after is not None:
            refused = await self._hook(hooks.after, spec, "after", outcome)
            if refused is not None and answer.status == "ok":
                answer, outcome = refused, outcome_of(refused, attempt, milliseconds)
        try:
            stays, ended = await self._decide(spec, answer, outcome)
        except AnabranchError as error:  # a write, a delay or a policy that does not work out
            may_heal = isinstance(error, StoreError)
            fault = Fault(error.code, f"task {spec.label}: {error}", "", may_heal)
            stays, ended = False, self._failed(fault)
        except Exception as error:
            wrong = unexpected(error, f"what follows task {spec.label} went wrong")
            tasks = tuple(self._progress.executed)
            stays, ended = False, msgspec.structs.replace(wrong, tasks=tasks)
        if stays:
            return None
        self._progress.opened = ""
        if hooks.leaving is not None:
            refused = await self._hook(hooks.leaving, spec, "finally", outcome)
            went_well = ended is None or ended.status == "ok"
            if refused is not None and went_well:
                ended = self._failed(refused.fault or told_to_fail(spec))
            elif ended is not None and went_well:
                ended = self._finished()  # with what the hook has written
        return ended

    async def _decide(
        self, spec: TaskSpec, answer: Answer, outcome: Mapping[str, Any]
    ) -> tuple[bool, Answer | None]:
        """Carry out the rule that matches: does the task go on, and has the pipeline ended?"""
        before = self._progress.before(spec.label)
        attempt: int = outcome["meta"]["attempt"]
        fine = answer.status == "ok"
        if fine:
            await self._state.keep(spec, answer)
        else:
            self._state.note_error(spec, outcome)
        inside = answer.patches if spec.loop is not None and not fine else ()
        self.scope.take(inside)  # what rules of its items wrote when they said fail
        names = self._state.names(spec.label, attempt, outcome) if spec.rules else {}
        decide = partial(rule_after, spec, attempt=attempt, fine=fine)
        rule, repeats = await evaluate_with(names, decide)
        if not (fine or repeats or inside):  # of an attempt that is repeated nothing is kept
            inside = answer.patches
            self.scope.take(inside)
        self._said = (*inside, *await self._state.write(spec, rule, outcome, fine))
        if rule.do == "retry":
            if not repeats:
                ended = answer.fault or not_enough(spec, attempt)
                return False, self._failed(ended, self._said)
            self._progress.attempts[spec.label] = attempt
            self._progress.prev = before.prev  # it sees what it saw
            self._progress.take_back(before)
            await self._state.set_prev(rule, spec, outcome)
            find_delay = partial(delay_seconds, rule, retry=attempt, fault=answer.fault)
            await self._services.sleep(await evaluate_with(names, find_delay))
            return True, None
        return False, await self._leave(spec, rule, answer, outcome, before)

    async def _leave(
        self, spec: TaskSpec, rule: Rule, answer: Answer, outcome: Mapping[str, Any], before: Before
    ) -> Answer | None:
        if rule.do != "jump" or not self._leads_back(spec, rule):
            await self._state.settle()
        fine = answer.status == "ok"
        if rule.do == "skip":
            self._progress.forget(before)
        if fine:
            await self._state.set_prev(spec, spec, outcome)
        await self._state.set_prev(rule, spec, outcome)
        match rule.do:
            case "jump":
                return await self._jump(rule)
            case "break":
                return self._finished()
            case "fail":
                return self._failed(answer.fault or told_to_fail(spec, rule), self._said)
            case _:
                self._progress.at += 1
                if not fine:
                    self._progress.done_with(spec.label)
                return None

    def _leads_back(self, spec: TaskSpec, rule: Rule) -> bool:
        labels = [task.label for task in self._program.tasks]
        return rule.to in labels[: labels.index(spec.label) + 1]

    async def _jump(self, rule: Rule) -> Answer | None:
        self._progress.jumps += 1
        if self._progress.jumps > self._program.jumps_max:
            return self._failed(endless(rule, self._program.jumps_max))
        labels = [task.label for task in self._program.tasks]
        if rule.to not in labels:
            raise InputError(f"there is no task '{rule.to}' to jump to", code="config")
        self._progress.at = labels.index(rule.to)
        await asyncio.sleep(0)  # tasks that never wait must not keep a cancel from being heard
        return None

    # -- the end -----------------------------------------------------------------------------

    def _finished(self) -> Answer:
        return msgspec.structs.replace(
            self._progress.last,
            patches=tuple(self.scope.patches),
            tasks=tuple(self._progress.executed),
        )

    def _failed(self, fault: Fault, patches: tuple[ContextPatch, ...] = ()) -> Answer:
        """Of a pipeline that fails only what failed and the rule that ended it have a say."""
        tasks = tuple(self._progress.executed)
        return Answer(status="error", outcome="error", fault=fault, patches=patches, tasks=tasks)
