"""The lines of a definition that are about one step: from where it stands to where it ends.

Definitions are YAML or JSON. Where the step begins with a bracket, it ends with the bracket that
closes it; otherwise it ends before the first line that is less indented than its first key.
"""

from __future__ import annotations

import msgspec

AROUND = 2  # lines before and after, to see where it is
LINES_MAX = 200

_PAIRS = {"{": "}", "[": "]"}


class StepLines(msgspec.Struct, frozen=True):
    first: int  # of the step, counted from 1
    last: int
    shown_from: int
    shown: list[str]
    total: int  # lines of the whole definition
    cut: bool = False


def lines_of_step(source: str, line: int, column: int) -> StepLines | None:
    lines = source.splitlines()
    if not 1 <= line <= len(lines):
        return None
    last = _end(lines, line, max(1, column))
    cut = last - line >= LINES_MAX
    stop = line + LINES_MAX - 1 if cut else min(len(lines), last + AROUND)
    start = max(1, line - AROUND)
    return StepLines(line, last, start, lines[start - 1 : stop], len(lines), cut)


def _end(lines: list[str], line: int, column: int) -> int:
    text = lines[line - 1]
    place = column - 1
    if text[place : place + 1] == '"':  # a key of JSON: its value is what counts
        after = text.find(":", text.find('"', place + 1) + 1)
        while 0 < after < len(text) - 1 and text[after + 1] == " ":
            after += 1
        place = after + 1 if after > 0 else place
    if text[place : place + 1] in _PAIRS:
        return _closing(lines, line, place)
    return _dedented(lines, line, place)


def _closing(lines: list[str], line: int, place: int) -> int:
    """Where the bracket at this place is closed; brackets in texts do not count."""
    depth, quoted, escaped = 0, "", False
    for number in range(line, len(lines) + 1):
        text = lines[number - 1]
        for sign in text[place:] if number == line else text:
            if escaped:
                escaped = False
            elif quoted:
                escaped = sign == "\\" and quoted == '"'
                quoted = "" if sign == quoted else quoted
            elif sign in "\"'":
                quoted = sign
            elif sign in "{[":
                depth += 1
            elif sign in "}]":
                depth -= 1
                if depth == 0:
                    return number
    return len(lines)


def _dedented(lines: list[str], line: int, indent: int) -> int:
    last = line
    for number in range(line + 1, len(lines) + 1):
        text = lines[number - 1]
        if not text.strip():
            continue
        if len(text) - len(text.lstrip(" ")) < indent:
            break
        last = number
    return last
