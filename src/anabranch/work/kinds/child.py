"""Child runs: the kind `playbook` starts another definition, and may wait for it without a worker.

The child's id follows from the job's key, so a job that is carried out again after a crash finds
the child it began before; work that failed and is done again begins another child. Who names a
`return_step` or `result_step` waits for the child and gets the result of that step of it; who says
`return_result: true` or `wait: true` waits and gets the result of the run; whoever says nothing
only starts it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from anabranch.errors import AnabranchError, StoreError
from anabranch.expressions.port import Expression
from anabranch.files import FileTimeout
from anabranch.ids import run_number
from anabranch.kernel.values import Answer, failed, postponed, succeeded
from anabranch.literals import AWAIT_CHILD
from anabranch.net.net import Work, child_target
from anabranch.net.program import Program
from anabranch.store.outages import passes
from anabranch.work.faults import fault
from anabranch.work.port import Parked, Task

#: (what to run, its input, the id of the new run, the parked job it answers or None, with the
#: result of which step, or "")
StartChild = Callable[[str, Mapping[str, Any], str, str | None, str], Awaitable[str]]
ID_MAX = 128
AGAIN_MS = 1000  # after the store was away


class Child:
    def __init__(self, start: StartChild) -> None:
        self._start = start

    @staticmethod
    def parks(inputs: Mapping[str, Any]) -> bool:
        """Whether it waits for the child."""
        if inputs.get("wait") is not None:
            return inputs["wait"] not in (False, "false", "False", "", 0)
        return any(inputs.get(name) for name in AWAIT_CHILD)

    async def perform(self, task: Task) -> Answer | Parked:
        path = child_target(task.inputs)
        if not path:
            said = "a playbook task needs the `path` of a definition, or its `catalog_id`"
            return failed("config", said, retryable=False)
        given = task.inputs.get("args") or {}
        if not isinstance(given, Mapping):
            return failed("config", "the args of a playbook must be a mapping", retryable=False)
        waits = self.parks(task.inputs)
        returns = task.inputs.get("result_step") or task.inputs.get("return_step")
        if not isinstance(returns, str | bool | None):
            return failed("config", "return_step must be the name of a step", retryable=False)
        parent = f"{task.run}/{task.job}#{task.attempt}" if waits else None
        try:
            wanted = returns if waits and isinstance(returns, str) else ""
            child = child_id(name_in_run(task.run, task.key) + task.again)
            run = await self._start(path, given, child, parent, wanted)
        except AnabranchError as error:
            if isinstance(error, StoreError) and passes(error):
                return postponed("storage_access", f"child {path}: {error}", AGAIN_MS)
            kind = "storage_access" if isinstance(error, FileTimeout) else "config"
            return fault(kind, f"child {path}: {error}")
        if waits:
            return Parked(run)
        return succeeded({"status": "started", "execution_id": run_number(run), "run_id": run})


def child_tasks(work: Work) -> Iterator[tuple[Expression | None, bool]]:
    """The inputs of every playbook task of a step, and whether it is all there is of the step."""
    if work.kind == "playbook":
        yield work.inputs, True
    program = getattr(work.program, "program", work.program)
    for task in program.every_task() if isinstance(program, Program) else ():
        if task.kind == "playbook":
            yield task.inputs, False


def child_id(key: str) -> str:
    """A run id made from the key of the job that starts it; another key gives another id."""
    plain = key.replace("/", "-")
    made = re.sub(r"[^A-Za-z0-9_.-]", "-", plain)
    if made == plain and len(made) <= ID_MAX:
        return made
    return f"{made[: ID_MAX - 17]}-{sha256(key.encode()).hexdigest()[:16]}"


def name_in_run(run: str, key: str) -> str:
    """What is done under this key, and in no other run: a redrive has keys of its origin."""
    return key if key.startswith(f"{run}/") else f"{run}/{key}"


def child_of(key: str, child: str) -> bool:
    """Whether it can be the id of a child of the job with this key: such an id is made from it."""
    made = re.sub(r"[^A-Za-z0-9_.-]", "-", key)[: ID_MAX - 17]
    return child.startswith(made) and child[len(made) : len(made) + 1] in ("", "-")
