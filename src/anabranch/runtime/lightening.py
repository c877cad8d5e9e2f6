"""What work says, made light: a large result or memory is kept beside the log, its ref travels."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer, failed
from anabranch.runtime.payloads import TooLarge, lighten

Keep = Callable[[str, str, bytes], None]  # run, sha256, content: written with the next batch


class Lightener:
    def __init__(self, keep: Keep, inline_bytes_max: int, result_bytes_max: int | None) -> None:
        self._keep = keep
        self._inline_max = inline_bytes_max
        self._result_max = result_bytes_max

    def fit(self, run: str, stimulus: s.Stimulus) -> s.Stimulus:
        """The stimulus, or the same with refs for what is large in it."""
        if isinstance(stimulus, s.JobReport):
            return self._report(run, stimulus)
        if isinstance(stimulus, s.JobPark) and stimulus.memory is not None:
            return self._park(run, stimulus)
        return stimulus

    def _report(self, run: str, report: s.JobReport) -> s.JobReport:
        if getattr(report.answer, "inline", False):
            return report  # somebody asked for the whole value
        try:
            light = lighten(report.answer.result, self._inline_max, self._result_max)
        except TooLarge as error:
            answer = failed("result", str(error), retryable=False)
            return s.JobReport(report.job, report.attempt, answer)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            answer = failed("result", f"the result is not JSON: {error}", retryable=False)
            return s.JobReport(report.job, report.attempt, answer)
        if not light.sha256:
            return report
        self._keep(run, light.sha256, light.content)
        answer = msgspec.structs.replace(report.answer, result=light.result)
        return s.JobReport(report.job, report.attempt, answer)

    def _park(self, run: str, park: s.JobPark) -> s.JobPark | s.JobReport:
        """A large memory of work that waits is no different."""
        report = s.JobReport(park.job, park.attempt, Answer(status="ok", result=park.memory))
        light = self._report(run, report)
        if light.answer.status != "ok":
            return light
        return msgspec.structs.replace(park, memory=light.answer.result)
