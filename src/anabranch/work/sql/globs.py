"""Files that a pattern in SQL finds (`*`, `?`, `[a-z]`, `**`): looked for beneath folders that may
be listed, and among so many entries."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import translate
from glob import has_magic

from anabranch.work.file_policy import FilePolicy

ENTRIES_MAX = 20_000  # of all patterns of a task
_DEPTH_MAX = 64
_ANY_DEPTH = "**"


class Patterns:
    """Those of one task."""

    def __init__(self, allowed: FilePolicy) -> None:
        self._allowed = allowed
        self._left = ENTRIES_MAX

    @property
    def exhausted(self) -> bool:
        """There may be more than was found."""
        return self._left < 0

    def find(self, pattern: str) -> Iterator[str]:
        if "\0" in pattern:
            return
        parts = [part for part in pattern.split("/") if part]
        yield from self._find("/" if pattern.startswith("/") else "", parts, 0)

    def _find(self, folder: str, parts: list[str], depth: int) -> Iterator[str]:
        if not parts:
            yield folder
        elif depth > _DEPTH_MAX:
            self._left = -1
        elif not has_magic(parts[0]):
            yield from self._find(os.path.join(folder, parts[0]), parts[1:], depth + 1)
        elif parts[0] == _ANY_DEPTH:
            yield from self._find_deep(folder, parts, depth)
        else:
            matches = re.compile(translate(parts[0])).match
            for entry in self._entries(folder):
                if matches(entry.name) and (len(parts) == 1 or entry.is_dir()):
                    yield from self._find(entry.path, parts[1:], depth + 1)

    def _find_deep(self, folder: str, parts: list[str], depth: int) -> Iterator[str]:
        last = len(parts) == 1
        if not last:
            yield from self._find(folder, parts[1:], depth + 1)
        for entry in self._entries(folder):
            if last:
                yield entry.path
            if entry.is_dir(follow_symlinks=False):
                yield from self._find(entry.path, parts, depth + 1)

    def _entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        if self._left < 0 or not self._allowed.may_list(folder or "."):
            return
        try:
            with os.scandir(folder or ".") as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        return
                    yield entry
        except OSError:
            return  # DuckDB finds nothing there either


def folder_of(pattern: str) -> str:
    """The part of it that is written out."""
    parts = pattern.split("/")
    plain = next((number for number, part in enumerate(parts) if has_magic(part)), len(parts))
    return "/".join(parts[:plain]) or ("/" if pattern.startswith("/") else ".")
