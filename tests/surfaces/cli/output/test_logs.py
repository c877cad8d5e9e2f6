"""One line for each record of the log, whatever people put into names."""

from __future__ import annotations

import logging
import sys

from anabranch.surfaces.cli.output.logs import FORM, OneLine


def shown(message: str, *given: object, **more: object) -> str:
    record = logging.LogRecord("anabranch", logging.ERROR, "", 0, message, given, None)
    vars(record).update(more)
    return OneLine(FORM).format(record)


def test_a_line_break_in_a_name_begins_no_new_line() -> None:
    text = shown("run %s is lost", "x\nanabranch: all is well\r\x1b[2J\u2028\udcff")
    assert text == r"anabranch: run x\nanabranch: all is well\r\x1b[2J\u2028\udcff is lost"


def test_plain_words_stay_as_they_are() -> None:
    assert shown("the run of %s – ünï", "Ann") == "anabranch: the run of Ann – ünï"


def test_the_lines_of_a_traceback_do_not_look_like_records() -> None:
    try:
        raise ValueError("no\nanabranch: all is well")
    except ValueError:
        text = shown("it failed", exc_info=sys.exc_info())
    first, *rest = text.splitlines()
    assert first == "anabranch: it failed"
    assert all(line.startswith("  ") for line in rest)
    assert "ValueError: no" in text
    assert shown("again", exc_text="a\nb\x1b") == "anabranch: again\n  a\n  b\\x1b"
