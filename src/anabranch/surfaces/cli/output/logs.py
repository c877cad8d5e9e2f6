"""What the command line logs: one line for each record, whatever people put into names and paths.

A line break in a name would otherwise begin a line that nobody wrote, and an escape could repaint
the terminal of whoever reads it. Tracebacks keep their lines, moved in, so that none of them looks
like a record.
"""

from __future__ import annotations

import logging

FORM = "anabranch: %(message)s"
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
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(FORM))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
