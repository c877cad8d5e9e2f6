"""Where a pipeline stands: what its tasks can see, what it has taken, what it has written."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from anabranch.dialects.noetl.names import identity_of
from anabranch.dialects.result_policy import ResultPolicy
from anabranch.errors import InputError
from anabranch.kernel.values import Answer, ContextPatch
from anabranch.net.program import Rule, TaskSpec
from anabranch.work.evaluations import evaluate_with
from anabranch.work.pipeline.held_bytes import HeldBytes
from anabranch.work.pipeline.progress import PipelineProgress
from anabranch.work.pipeline.scope import PipelineScope
from anabranch.work.pipeline.services import Services
from anabranch.work.port import Task, whole
from anabranch.work.secrets.redaction import cleaned_for_store
from anabranch.work.values.results import keep, read_policy


class PipelineContext(msgspec.Struct, frozen=True):
    """What a run inside another one sees of it."""

    prev: Any
    results: Mapping[str, Any]
    outcome: Any = None


class PipelineState:
    def __init__(
        self, task: Task, services: Services, scope: PipelineScope, around: PipelineContext | None
    ) -> None:
        self.scope = scope
        self.progress = PipelineProgress(None if around is None else around.prev)
        self._accumulated = HeldBytes(services.held_bytes_max)
        self._rounds: dict[str, ResultPolicy] = {}  # of tasks that may be come back to
        self._task = task
        self._services = services
        self._around = around

    def begin(self, variables: Any) -> None:
        """With what the variables of the program came to."""
        if not isinstance(variables, Mapping):
            raise InputError(f"vars must come to a mapping, not {type(variables).__name__}")
        self.scope.iter.update(variables)

    def names(self, label: str, attempt: int, outcome: Any = None) -> dict[str, Any]:
        """What the templates of a task and the rules after it can see."""
        results: Mapping[str, Any] = self.progress.results
        if self._around is not None:
            results = ChainMap(self.progress.results, cast(dict[str, Any], self._around.results))
            outcome = self._around.outcome if outcome is None else outcome
        return {
            **self._task.names,
            "ctx": self.scope.ctx,
            "local": {
                "prev": self.progress.prev,
                "task": label,
                "attempt": attempt,
                "results": results,
                "iter": self.scope.iter,
                "outcome": outcome,
            },
        }

    def seen_inside(self, outcome: Any = None) -> PipelineContext:
        """For a run inside this one."""
        return PipelineContext(self.progress.prev, self.progress.results, outcome)

    # -- a good answer -----------------------------------------------------------------------

    def take(self, spec: TaskSpec, answer: Answer, travels: Any) -> None:
        """Its result becomes visible, its patches take effect."""
        self.progress.take(spec.label, answer, travels)
        self.scope.take(answer.patches)

    async def keep(self, spec: TaskSpec, answer: Answer) -> None:
        """The same, after what its policy says about results."""
        if spec.output is None:
            self.take(spec, answer, answer.result)
            return
        policy = read_policy(spec.output)
        if policy.accumulate is None:
            self.take(spec, *await self._put_aside(policy, answer))
            return
        result = self.progress.gather(
            spec.label, policy.accumulate, answer.result, self._accumulated
        )
        self.take(spec, msgspec.structs.replace(answer, result=result), result)
        self._rounds[spec.label] = policy

    async def settle(self) -> None:
        """Put aside what rounds have accumulated, now that the task is left: to do so after each of
        them takes the square of their number."""
        while self._rounds:
            label, policy = self._rounds.popitem()
            if label in self.progress.results:
                so_far = self.progress.answer_of(label)
                self.progress.replace(label, *await self._put_aside(policy, so_far))

    async def _put_aside(self, policy: ResultPolicy, answer: Answer) -> tuple[Answer, Any]:
        """The answer, and what travels of its result, after what the policy says."""
        clean = cleaned_for_store(answer.result)
        item = identity_of(self.scope.iter)
        travels = await keep(policy, clean, self._services.payloads, self._task.run, item)
        if policy.decides and travels is clean:
            answer = whole(answer)  # the limit of the engine is for results without a policy
        return answer, travels

    def note_error(self, spec: TaskSpec, outcome: Mapping[str, Any]) -> None:
        """A round that failed, among what its task accumulates, where its policy wants that."""
        policy = None if spec.output is None else read_policy(spec.output)
        if policy is not None and policy.accumulate is not None and policy.accumulate.errors:
            self.progress.gather_error(spec.label, outcome["error"])

    # -- writing -----------------------------------------------------------------------------

    async def write(
        self, spec: TaskSpec, rule: Rule, outcome: Mapping[str, Any], fine: bool
    ) -> list[ContextPatch]:
        """What is written now; gives the rule's own share of it."""
        attempt: int = outcome["meta"]["attempt"]

        def names() -> Mapping[str, Any]:
            return self.names(spec.label, attempt, outcome)

        if fine:
            await self.scope.write(names, spec.set_ctx, spec.set_iter, spec.set_shared)
        before = len(self.scope.patches)
        await self.scope.write(names, rule.set_ctx, rule.set_iter, rule.set_shared)
        return self.scope.patches[before:]

    async def set_prev(
        self, holder: TaskSpec | Rule, spec: TaskSpec, outcome: Mapping[str, Any]
    ) -> None:
        if holder.set_prev is not None:
            names = self.names(spec.label, outcome["meta"]["attempt"], outcome)
            self.progress.prev = await evaluate_with(names, holder.set_prev.evaluate)

    # -- remembering -------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        return {"progress": self.progress.saved(), "scope": self.scope.saved()}

    def restore(self, memory: Mapping[str, Any]) -> None:
        self.progress.restore(memory["progress"])
        self.scope.restore(memory["scope"])
