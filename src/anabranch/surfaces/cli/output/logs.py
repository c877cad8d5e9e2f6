"""What the command line logs: one line for each record, whatever people put into names and paths.

A line break in a name would otherwise begin a line that nobody wrote, and an escape could repaint
the terminal of whoever reads it. Tracebacks keep their lines, moved in, so that none of them looks
like a record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

FORM = "anabranch: %(message)s"
_TALKATIVE: set[str] = set()  # loggers whose every record is told
"\n".encode("unicode_escape")  # loads the codec now: later there may be no file left to load it


class OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        lines = [one_line(self.formatMessage(record))]
        trace = record.exc_text or ""  # made before, where secrets were taken out of it
        if not trace and record.exc_info:
            trace = self.formatException(record.exc_info)
        return "\n".join(lines + [f"  {one_line(line)}" for line in trace.splitlines()])


def one_line(text: str) -> str:
    """Whatever cannot be printed, as it is written in Python."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def begin() -> None:
    """Warnings go to the terminal. Records of level INFO are made all the same: those of callables
    belong to the log of their job."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(FORM))
    handler.addFilter(_for_the_terminal)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _for_the_terminal(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or record.name in _TALKATIVE


def tell_of_clusters(say: Callable[[str], None] | None = None) -> None:
    """Also say when the cluster of a pool is there, and not only when it is away; with `say`, where
    a line must not go into the middle of a live view."""
    log = logging.getLogger("anabranch.pools")
    log.setLevel(logging.INFO)
    _TALKATIVE.add(log.name)
    if say is None:
        return
    handler = Said(say)
    handler.setFormatter(OneLine(FORM))
    log.handlers, log.propagate = [handler], False


class Said(logging.Handler):
    """Hands each line to a function."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(self.format(record))
