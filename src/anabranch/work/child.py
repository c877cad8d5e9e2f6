"""Child runs: the kind `playbook` starts another definition and waits for it without a worker.

The child's id follows from the job's key, so a job that is carried out again after a crash finds
the child it began before. With `wait: false` (or without a `return_step`, as older playbooks mean
it) the job only starts the child and ends at once.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.work.port import Parked, Task

#: (what to run, its input, the id of the new run, the parked job it answers or None)
StartChild = Callable[[str, Mapping[str, Any], str, str | None], Awaitable[str]]


class Child:
    parks = True  # only the last task of a pipeline may

    def __init__(self, start: StartChild) -> None:
        self._start = start

    async def perform(self, task: Task) -> Answer | Parked:
        path = task.inputs.get("path")
        if not isinstance(path, str) or not path:
            return failed(
                "config", "a playbook task needs the `path` of a definition", retryable=False
            )
        given = task.inputs.get("args") or {}
        if not isinstance(given, Mapping):
            return failed("config", "the args of a playbook must be a mapping", retryable=False)
        waits = bool(task.inputs.get("wait", True))
        parent = f"{task.run}/{task.job}#{task.attempt}" if waits else None
        try:
            run = await self._start(path, given, child_id(task.key), parent)
        except AnabranchError as error:
            return failed("config", f"child {path}: {error}", retryable=False)
        if waits:
            return Parked(run)
        return succeeded({"status": "started", "execution_id": run})


def child_id(key: str) -> str:
    """A run id made from the key of the job that starts it."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", key)[:128]
