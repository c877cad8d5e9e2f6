"""Pipelines: a program's tasks in order, on one worker, with rules for what follows each.

Writes to the context travel with the answer and are recorded when the step ends; inside the
pipeline they are visible at once (see `run.py` for how it goes from task to task).

A task whose answer comes from outside (a child run) parks the whole pipeline: what has been done so
far is remembered with the job, no worker waits, and the pipeline goes on at that task.

Secrets of the keychain are there while inputs are rendered. The memory leaves without those that
were looked up, and so does the answer: whoever carries the job out sees to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.kernel.values import Answer
from anabranch.net.program import Program
from anabranch.work.pipeline.held_bytes import HeldBytes
from anabranch.work.pipeline.run import PipelineRun
from anabranch.work.pipeline.scope import PipelineScope
from anabranch.work.pipeline.services import Services
from anabranch.work.port import Parked, Task

__all__ = ["Pipeline", "PipelineRun", "Services"]

_EMPTY: Mapping[str, Any] = {}


class Pipeline:
    """The performer for programs; it calls the performers of the tasks' kinds."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def perform(
        self, task: Task, iteration: Mapping[str, Any] | None = None
    ) -> Answer | Parked:
        """Carry out `task.program`; `iteration` is what `iter` holds at the start."""
        held = HeldBytes(self._services.held_bytes_max)
        scope = PipelineScope(_ctx(task), iteration, held)
        pipeline_run = PipelineRun(task.program, task, self._services, scope)
        answer = await pipeline_run.run()
        if isinstance(answer, Parked):
            return answer
        if task.program.kept and answer.status == "ok":
            answer = _with_results(answer, task.program.kept, pipeline_run.results)
        exported = _exported(task.program, pipeline_run.scope.iter)
        if exported and answer.status in ("ok", "error"):
            answer = msgspec.structs.replace(answer, locals=exported)
        return answer


def _with_results(answer: Answer, kept: frozenset[str], results: Mapping[str, Any]) -> Answer:
    """The answer with the results of tasks that are asked for by label later."""
    whole = answer.result
    if not isinstance(whole, Mapping) or "results" in whole:
        return answer
    found = {label: results[label] for label in results if label in kept}
    return msgspec.structs.replace(answer, result={**whole, "results": found})


def _exported(program: Program, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the arcs of the step may ask for; the rest of `iter` need not be recorded."""
    wanted = program.exports
    return values if wanted is None else {key: values[key] for key in wanted & values.keys()}


def _ctx(task: Task) -> Mapping[str, Any]:
    found: Mapping[str, Any] = task.names.get("ctx", _EMPTY)
    return found
