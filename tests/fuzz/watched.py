"""One message at one door: what it reached, what it cost, and whether that is a bug."""

from __future__ import annotations

import sys
import traceback
from types import CodeType, FrameType
from typing import Any, NamedTuple

import anabranch

from .doors import Door

#: Lines of ours that run for one message: a few thousand for what is right.
LINES_MAX = 400_000
LINES_PER_BYTE = 400
_OURS = str(anabranch.__path__[0])

Place = tuple[CodeType, int]


class Watched(NamedTuple):
    reached: frozenset[Place]
    bug: str | None


class _TooMuch(BaseException):
    """More work than a message may cost."""


class _Watch:
    """Counts the lines of our package that run, and remembers which."""

    def __init__(self, most: int) -> None:
        self.reached: set[Place] = set()
        self._left = most

    def enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            self.reached.add((frame.f_code, frame.f_lineno))
            self._left -= 1
            if self._left < 0:
                raise _TooMuch
        return self._line


def read_watched(door: Door, message: bytes) -> Watched:
    most = LINES_MAX + LINES_PER_BYTE * len(message)
    watch = _Watch(most)
    before = sys.gettrace()
    sys.settrace(watch.enter)
    try:
        door.read(message)
        bug = None
    except door.refusals:
        bug = None
    except _TooMuch:
        bug = f"more than {most:,} lines for {len(message):,} bytes"
    except Exception:
        bug = traceback.format_exc(limit=-6)
    finally:
        sys.settrace(before)
    return Watched(frozenset(watch.reached), bug)
