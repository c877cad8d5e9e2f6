"""The tasks inside one job of a play: a pipeline, or a shard of a loop.

A task named in the script (`"step/task"`) answers by it: one that waits for a child run parks its
job, and the answer comes when the script says; any other adds its time to that of the job. A task
that is not named does what it does, and what would reach outside answers with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.kernel.values import Answer, succeeded
from anabranch.testing.scripted.answers import Planned, planned
from anabranch.testing.scripted.performing import perform_inside
from anabranch.testing.scripted.script import UNSCRIPTED, Script
from anabranch.work.kinds.child import Child
from anabranch.work.port import Parked, Task


class ScriptedParts:
    def __init__(self, script: Script, step: str, spoiled: Callable[[Task], Answer | None]) -> None:
        self._script = script
        self._step = step
        self._spoiled = spoiled
        self.delay_ms = 0
        self.silent = False  # some task never answers, so neither does the job
        self.outside = False  # some task would have reached outside
        self.waits_for = Planned(None)

    def perform(self, task: Task) -> Answer | Parked:
        entry = self._script.take_task(self._step, _label(task))
        if entry is UNSCRIPTED:
            return self._spoiled(task) or self._really(task)
        plan = planned(entry, task)
        if task.kind == "playbook" and Child.parks(task.inputs):
            self.waits_for = plan
            return Parked(task.key + task.again)
        self.delay_ms += plan.delay_ms
        if plan.answer is None:
            self.silent = True
            return succeeded(None)
        return plan.answer

    def _really(self, task: Task) -> Answer | Parked:
        answer = perform_inside(task)
        if answer is None:
            self.outside = True
            return succeeded(None)
        return answer


def _label(task: Task) -> str:
    local: Mapping[str, Any] = task.names.get("local", {})
    return str(local.get("task", ""))
