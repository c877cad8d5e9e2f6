"""The queue of a played engine: one for all kinds of work."""

from __future__ import annotations

from collections import deque
from random import Random

from anabranch.runtime.jobs.concurrency import JobQueues, ReadyJob


class OneLane(JobQueues):
    """One queue for all kinds of work: first come, first served, or in any order with dice."""

    def __init__(self, total: int, dice: Random | None) -> None:
        super().__init__(total)
        self._dice = dice

    def add(
        self,
        run: str,
        job: str,
        attempt: int,
        lane: str,  # noqa: ARG002
        priority: int = 0,  # noqa: ARG002
    ) -> None:
        queue = self._queues.setdefault("", deque())
        assert isinstance(queue, deque), "nothing is more urgent here"
        ready = ReadyJob(run, job, attempt)
        if self._dice is None:
            queue.append(ready)
        else:
            queue.insert(self._dice.randint(0, len(queue)), ready)
