"""What work says, made light: a large result or memory is kept beside the log, its ref travels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer, ContextPatch, failed
from anabranch.runtime.values.payloads import TooLarge, lighten, may_exceed
from anabranch.work.values.payloads import REF, is_ref

Keep = Callable[[str, str, bytes], None]  # run, sha256, content: written with the next batch

_SMALL = (type(None), bool, int, float)


class PayloadOffloader:
    def __init__(self, keep: Keep, inline_bytes_max: int, result_bytes_max: int | None) -> None:
        self._keep = keep
        self._inline_max = inline_bytes_max
        self._result_max = result_bytes_max

    def fit(self, run: str, stimulus: s.Stimulus) -> s.Stimulus:
        """The stimulus, or the same with refs for what is large in it."""
        if isinstance(stimulus, s.JobReport):
            result = stimulus.answer.result
            if type(result) is list and len(result) == 1:  # that of a shard with one item
                result = result[0]
            small = type(result) in _SMALL and not stimulus.answer.patches
            return stimulus if small else self._report(run, stimulus)
        if isinstance(stimulus, s.JobPark) and stimulus.memory is not None:
            return self._park(run, stimulus)
        return stimulus

    def _report(self, run: str, report: s.JobReport) -> s.JobReport:
        fit = self._inline if getattr(report.answer, "inline", False) else self._answer
        try:
            answer = fit(run, report.answer)
        except TooLarge as error:
            answer = failed("result", str(error), retryable=False)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            answer = failed("result", f"the result is not JSON: {error}", retryable=False)
        if answer is report.answer:
            return report
        return s.JobReport(report.job, report.attempt, answer)

    def _inline(self, _run: str, answer: Answer) -> Answer:
        """The definition asks for the whole value; only what is too large for any is refused."""
        if self._result_max is not None and may_exceed(answer.result, self._result_max):
            lighten(answer.result, self._result_max, self._result_max)  # raises if it does
        return answer

    def _answer(self, run: str, answer: Answer) -> Answer:
        result = self._light(run, answer.result)
        if result is not answer.result:
            answer = msgspec.structs.replace(answer, result=result)
        if answer.patches:
            patches = tuple(self._patch(run, patch) for patch in answer.patches)
            answer = msgspec.structs.replace(answer, patches=patches)
        return answer

    def _patch(self, run: str, patch: ContextPatch) -> ContextPatch:
        """What work writes into the context is recorded twice, with its report and as a patch."""
        if not may_exceed(patch.value, self._inline_max):
            return patch
        if patch.reducer == "merge" and isinstance(patch.value, Mapping):
            value: Any = {key: self._light(run, each) for key, each in patch.value.items()}
        else:
            value = self._light(run, patch.value)
        return ContextPatch(patch.key, value, patch.reducer)

    def _light(self, run: str, value: Any) -> Any:
        if isinstance(value, dict) and REF in value and is_ref(value):
            return value  # a policy of the task has put it aside already
        light = lighten(value, self._inline_max, self._result_max)
        if light.sha256:
            self._keep(run, light.sha256, light.content)
        return light.result

    def _park(self, run: str, park: s.JobPark) -> s.JobPark | s.JobReport:
        """A large memory of work that waits is no different."""
        report = s.JobReport(park.job, park.attempt, Answer(status="ok", result=park.memory))
        light = self._report(run, report)
        if light.answer.status != "ok":
            return light
        return msgspec.structs.replace(park, memory=light.answer.result)
