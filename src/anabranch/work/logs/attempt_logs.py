"""Who takes what attempts print: the engine, which writes it, or a worker, which sends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from weakref import WeakSet

from anabranch.work.logs.attempt_log import AttemptLog
from anabranch.work.logs.limits import LogLimits
from anabranch.work.logs.listening import stop_listening
from anabranch.work.port import Task
from anabranch.work.secrets.redaction import Redactor

_open: WeakSet[AttemptLogs] = WeakSet()


class AttemptLogs:
    """Opens the logs of attempts, and knows which of them have something to be taken."""

    def __init__(
        self,
        limits: LogLimits,
        redactor: Redactor | None = None,
        now: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """`now` is asked for every word that a callable prints, in any thread."""
        self.limits = limits
        self.redactor = redactor  # all that this process knows of secrets
        self.now = now
        self._waiting: dict[AttemptLog, None] = {}
        self._lock = threading.Lock()

    def of(self, task: Task, scope: Redactor | None) -> AttemptLog:
        return AttemptLog(self, task.run, task.job, task.attempt, task.step, scope)

    def wake(self, log: AttemptLog) -> None:
        """From any thread: there is something to be taken."""
        with self._lock:
            self._waiting[log] = None
        self.awake()

    def awake(self) -> None:
        """Told, from any thread, that there is something."""

    def in_use(self) -> None:
        """Something is printed: the streams of the process are as they are until `shut`."""
        _open.add(self)

    def waiting(self) -> list[AttemptLog]:
        """Those with something to be taken, each once."""
        if not self._waiting:
            return []
        with self._lock:
            found, self._waiting = list(self._waiting), {}
        return found

    def shut(self) -> None:
        """No more will come. With the last hub of the process its streams are as they were."""
        _open.discard(self)
        if not _open:
            stop_listening()
