"""The short way through a program: one task, and rules that only go on or fail.

Most items of large loops are like that. Doing one without the pipeline's bookkeeping for retries,
jumps and parking takes half the time, in place where it never waits. What comes out is the same; a
test compares them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, ExpressionError, StoreError
from anabranch.kernel.tracker import TaskRun
from anabranch.kernel.values import Answer, ContextPatch, Fault, failed, succeeded
from anabranch.net.program import Program, Rule, TaskSpec
from anabranch.net.reads import KEYCHAIN, reads_keychain
from anabranch.work.evaluations import evaluate
from anabranch.work.faults import unexpected
from anabranch.work.kinds.lazy import LazyPerformer
from anabranch.work.pipeline.controls import carried_out, rule_for, told_to_fail
from anabranch.work.pipeline.outcomes import outcome_of
from anabranch.work.pipeline.pipeline import Services
from anabranch.work.pipeline.scope import PipelineScope
from anabranch.work.port import Performer, Task

Done = tuple[Answer, Sequence[ContextPatch]]  # and what it shares with the loop around


def short_way(program: Program, services: Services, task: Task) -> FastPath | None:
    """The short way for the items of this task, where there is one."""
    if len(program.tasks) != 1 or program.variables is not None or services.keyring is not None:
        return None
    spec = program.tasks[0]
    perform_now = getattr(services.performers.get(spec.kind), "perform_now", None)
    if perform_now is None or not only_goes_on(spec):
        return None
    if KEYCHAIN in task.names and reads_keychain(spec.inputs):
        return None
    return FastPath(spec, perform_now, task)


def short_wait(program: Program, services: Services, task: Task) -> WaitingPath | None:
    """The same for a task that waits, of a kind that always comes back with an answer."""
    if len(program.tasks) != 1 or program.variables is not None or services.keyring is not None:
        return None
    spec = program.tasks[0]
    performer = services.performers.get(spec.kind)
    itself = performer.itself() if isinstance(performer, LazyPerformer) else performer
    if performer is None or not getattr(itself, "never_parks", False) or not only_goes_on(spec):
        return None
    if KEYCHAIN in task.names and reads_keychain(spec.inputs):
        return None
    return WaitingPath(spec, performer, task)


def only_goes_on(spec: TaskSpec) -> bool:
    """Nothing but rules follows the task, and they share values, go on or fail."""
    limited = spec.timeout_ms or spec.timeout
    own = spec.output or limited or spec.loop or spec.waits or spec.hooks
    writes = spec.set_ctx or spec.set_iter or spec.set_prev
    return not own and not writes and all(map(_goes_on, spec.rules))


def _goes_on(rule: Rule) -> bool:
    writes = rule.set_ctx or rule.set_iter or rule.set_prev
    return not writes and rule.do in ("continue", "break", "fail")


class FastPath:
    def __init__(self, spec: TaskSpec, perform_now: Callable[[Task], Answer], task: Task) -> None:
        self._spec = spec
        self._perform_now = perform_now
        self._names = task.names
        self._base = msgspec.structs.replace(
            task, kind=spec.kind, attempt=1, program=None, memory=None, heard=None
        )

    def see(self, context: Mapping[str, Any]) -> None:
        """What the items to come see as the context of the run."""
        self._names = {**self._names, "ctx": context}

    async def perform(self, key: str, given: dict[str, Any]) -> Done:
        """Carry out the task for one item; `given` is what its templates see as `iter`. The answer
        says which task was executed where that went wrong."""
        begin = time.monotonic()
        task = await evaluate(partial(self.task, key, given))
        answer = task if isinstance(task, Answer) else self._answer(task)
        if answer.status == "ok" and self._spec.simple:
            return answer, ()
        return await evaluate(partial(self.done, given, answer, begin))

    def done(self, given: dict[str, Any], answer: Answer, begin: float) -> Done:
        """What the item comes to that was begun then, with this answer of its task."""
        spec = self._spec
        if answer.status == "ok" and spec.simple:
            return answer, ()
        found, shared = self._judged(given, answer, begin)
        if answer.status == "ok":
            return found, shared
        kind = answer.fault.kind if answer.fault is not None else "unknown"
        return msgspec.structs.replace(found, tasks=(TaskRun(spec.label, 1, kind),)), shared

    def _judged(self, given: dict[str, Any], answer: Answer, begin: float) -> Done:
        """What follows from the answer of the task."""
        spec = self._spec
        if answer.status in ("aborted", "cancel_run"):
            return answer, ()
        milliseconds = int((time.monotonic() - begin) * 1000)
        try:
            return self._followed(given, answer, milliseconds)
        except AnabranchError as error:  # a write that does not work out
            fault = Fault(error.code, f"task {spec.label}: {error}", "", _may_heal(error))
            return Answer(status="error", outcome="error", fault=fault), ()
        except Exception as error:
            return unexpected(error, f"what follows task {spec.label} went wrong"), ()

    def _seen(
        self, given: dict[str, Any], prev: Any, results: Mapping[str, Any], outcome: Any
    ) -> dict[str, Any]:
        return {
            **self._names,
            "local": {
                "prev": prev,
                "task": self._spec.label,
                "attempt": 1,
                "results": results,
                "iter": given,
                "outcome": outcome,
            },
        }

    def task(self, key: str, given: dict[str, Any]) -> Task | Answer:
        """The task for one item, or why there is none."""
        spec, names = self._spec, self._seen(given, None, {}, None)
        try:
            found = spec.inputs.evaluate(names) if spec.inputs is not None else {}
        except ExpressionError as error:
            return failed("transform", str(error), retryable=False)
        except Exception as error:
            return unexpected(error, f"task {spec.label} cannot be prepared")
        inputs = found if isinstance(found, Mapping) else {"value": found}
        return msgspec.structs.replace(
            self._base, inputs=inputs, names=names, key=f"{key}/{spec.label}"
        )

    def _answer(self, task: Task) -> Answer:
        spec = self._spec
        try:
            answer: object = self._perform_now(task)
        except TimeoutError as error:
            return failed("timeout", str(error) or f"the {spec.kind} work ran out of time")
        except Exception as defect:
            message = f"the {spec.kind} performer failed: {defect!r}"
            return failed("defect", message, retryable=False)
        if isinstance(answer, Answer):
            return answer
        message = f"the {spec.kind} performer gave a {type(answer).__name__} for an answer"
        return failed("defect", message, retryable=False)

    def _followed(self, given: dict[str, Any], answer: Answer, milliseconds: int) -> Done:
        """What the rule that matches makes of the answer."""
        spec, fine = self._spec, answer.status == "ok"
        outcome = outcome_of(answer, 1, milliseconds)
        if fine:
            names = self._seen(given, answer.result, {spec.label: answer.result}, outcome)
        else:
            names = self._seen(given, None, {}, outcome)
        if answer.patches and fine:  # rules see what was written
            names["ctx"] = self._written(given, answer)
        rule = rule_for(spec, names, fine)
        if answer.patches and not fine:  # what it writes sees what failed has written
            names["ctx"] = self._written(given, answer)
        writes = (*spec.set_shared, *rule.set_shared) if fine else rule.set_shared
        shared = [ContextPatch(w.key, w.value.evaluate(names), w.reducer) for w in writes]
        if rule.do == "fail":
            fault = answer.fault or told_to_fail(spec, rule)
            said = () if fine else answer.patches
            return Answer(status="error", outcome="error", fault=fault, patches=said), shared
        return (answer if fine else succeeded(patches=answer.patches)), shared

    def _written(self, given: dict[str, Any], answer: Answer) -> Mapping[str, Any]:
        """The context with what the answer writes; refuses what does not fit."""
        scope = PipelineScope(self._names.get("ctx", {}), given)
        scope.take(answer.patches)
        return scope.ctx


class WaitingPath(FastPath):
    def __init__(self, spec: TaskSpec, performer: Performer, task: Task) -> None:
        without_limit = msgspec.structs.replace(task, timeout_seconds=None)
        super().__init__(spec, _never, without_limit)
        self._performer = performer

    async def perform_waiting(self, key: str, given: dict[str, Any]) -> Done:
        """Carry out the task for one item, as `perform` does."""
        begin = time.monotonic()
        task = await evaluate(partial(self.task, key, given))
        answer = task if isinstance(task, Answer) else await carried_out(self._performer, task)
        assert isinstance(answer, Answer), "its kind never parks"
        return await evaluate(partial(self.done, given, answer, begin))


def _never(task: Task) -> Answer:
    raise AssertionError(f"items of {task.loop} wait")


def _may_heal(error: AnabranchError) -> bool:
    return isinstance(error, StoreError)
