"""The logs of the process, guarded: every record passes, without secrets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

LOGGERS = (  # all that the package uses
    *("anabranch", "anabranch.engine", "anabranch.work.python", "anabranch.market.directory"),
    *("anabranch.http", "anabranch.ui", "anabranch.access", "anabranch.webhooks"),
    *("anabranch.schedules", "anabranch.triggers"),
    *("anabranch.tracing", "anabranch.worker", "anabranch.store", "anabranch.cluster"),
    *("anabranch.node", "anabranch.module", "anabranch.testing", "anabranch.pools"),
    "anabranch.retention",
    "anabranch.limits",
)


class Cleans(Protocol):
    @property
    def knows_any(self) -> bool: ...

    def text(self, text: str, /) -> str: ...


def guard_logs(redactor: Cleans) -> Callable[[], None]:
    """Keep secrets out of what the package logs, whoever listens; returns how to stop that.

    On the loggers, not on handlers: those belong to the program, and come and go as it likes.
    """
    guard = RedactingFilter(redactor)
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addFilter(guard)

    def stop() -> None:
        for logger in loggers:
            logger.removeFilter(guard)

    return stop


class RedactingFilter(logging.Filter):
    """For loggers and log handlers: every record passes, without secrets."""

    def __init__(self, redactor: Cleans) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        if self._redactor.knows_any:
            record.msg, record.args = self._redactor.text(record.getMessage()), None
            if record.exc_info and not record.exc_text:
                record.exc_text = logging.Formatter().formatException(record.exc_info)
            if record.exc_text:
                record.exc_text = self._redactor.text(record.exc_text)
        return True
