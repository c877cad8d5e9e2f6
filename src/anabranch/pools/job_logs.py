"""What the jobs of a worker print, until it is sent to the server or travels with the outcome."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.pools.services import Key
from anabranch.work.logs.attempt_log import AttemptLog, LogBatch
from anabranch.work.logs.attempt_logs import AttemptLogs
from anabranch.work.logs.limits import LogLimits
from anabranch.work.port import Task
from anabranch.work.secrets.redaction import Redactor

BATCHES_KEPT = 128  # of one job: a server that is away must not cost memory


class JobLogs(AttemptLogs):
    def __init__(self, limits: LogLimits, redactor: Redactor) -> None:
        super().__init__(limits, redactor)
        self._of_jobs: dict[Key, AttemptLog] = {}
        self._taken: dict[Key, list[LogBatch]] = {}
        self.heard: Callable[[], None] | None = None  # from any thread: there is something

    def of(self, task: Task, scope: Redactor | None) -> AttemptLog:
        log = self._of_jobs[task.run, task.job, task.attempt] = super().of(task, scope)
        return log

    def awake(self) -> None:
        self.in_use()
        if self.heard is not None:
            self.heard()

    def used(self) -> list[Key]:
        """The jobs that have printed something since this was asked last."""
        keys = ((log.run, log.job, log.attempt) for log in self.waiting())
        return [key for key in keys if key in self._of_jobs]

    def take(self, key: Key) -> list[LogBatch]:
        """What the job has printed and is not dropped yet, oldest first."""
        log = self._of_jobs.get(key)
        if log is None or not log.used:
            return []
        kept = self._taken.setdefault(key, [])
        kept += log.take()
        if len(kept) > BATCHES_KEPT:  # the first and the last of it
            del kept[BATCHES_KEPT // 2 : len(kept) - BATCHES_KEPT // 2]
        return list(kept)

    def sent(self, key: Key, batches: list[LogBatch]) -> None:
        """These need not be kept any more."""
        kept = self._taken.get(key, [])
        self._taken[key] = [one for one in kept if one not in batches]

    def forget(self, key: Key) -> None:
        self._of_jobs.pop(key, None)
        self._taken.pop(key, None)
