"""The kind `noop`: does nothing, answers at once. For routing steps, gates and tests."""

from __future__ import annotations

from anabranch.kernel.values import Answer, succeeded
from anabranch.work.port import Task


class Noop:
    """Answers with the `result` it was given, or says that it did nothing."""

    async def perform(self, task: Task) -> Answer:
        return self.perform_now(task)

    def perform_now(self, task: Task) -> Answer:
        given = task.inputs.get("result")
        return succeeded({"status": "noop", "step": task.step} if given is None else given)
