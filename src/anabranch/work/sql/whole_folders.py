"""Folders that DuckDB is handed whole: those in which there is nothing that it may not open.

DuckDB holds itself to folders and files, but knows no exceptions. So the allowed folders are walked
before a task: one is handed over if no name beneath it is refused, no store lies there, and no link
leads out of it or further up in it. Where that is not so, its sub-folders are looked at one by one,
and of the rest DuckDB gets the files that a statement names. The walk has a limit; it opens no file
but to ask SQLite whether what may be a store is one, and none that is known to be a store of this
process.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from contextlib import suppress

import msgspec

from anabranch.store_files import is_store_file
from anabranch.work.file_policy import FilePolicy, is_beneath, system_devices, why_name_refused
from anabranch.work.store_copies import holds_store

ENTRIES_MAX = 100_000  # that are walked for a task: half a second
DEPTH_MAX = 64

_REASONS_MAX = 4  # that are told
_PAGE_BYTES = 512  # a database of SQLite has some of at least these


class WholeFolders(msgspec.Struct, frozen=True):
    folders: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()  # why not all that is allowed

    def holds(self, path: str) -> bool:
        return any(is_beneath(path, folder) for folder in self.folders)

    @property
    def hint(self) -> str:
        """For who is refused something: why, and what to do."""
        if not self.reasons:
            return ""
        return (
            f"DuckDB is not handed all of these folders, because {'; '.join(self.reasons)}: name "
            "files there in quotes in the statement, or keep data in a folder of its own"
        )


class KnownFolders:
    """Looks anew once in a while: a file that DuckDB keeps open keeps what it was handed, too."""

    def __init__(self, allowed: FilePolicy, keep_seconds: float) -> None:
        self._allowed = allowed
        self._keep_seconds = keep_seconds
        self._lock = threading.Lock()
        self._found = WholeFolders()
        self._until = 0.0

    def now(self) -> WholeFolders:
        if self._allowed.roots is None:
            return WholeFolders()
        with self._lock:
            if time.monotonic() >= self._until:
                self._found = find_whole_folders(self._allowed)
                self._until = time.monotonic() + self._keep_seconds
            return self._found


def find_whole_folders(allowed: FilePolicy) -> WholeFolders:
    walk = _Walk(allowed)
    folders, reasons = set[str](), list[str]()
    for root in dict.fromkeys(map(os.path.realpath, allowed.roots or ())):
        found = walk.look(root)
        folders.update(found.whole)
        reasons += found.reasons or [f"{link} leads out of {root}" for link, _ in found.links]
    return WholeFolders(tuple(sorted(folders)), tuple(reasons[:_REASONS_MAX]))


class _Found:
    """What is beneath a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.refused = False  # for what is in it, and not further down
        self.whole = list[str]()
        self.reasons = list[str]()
        self.links = list[tuple[str, str]]()  # those that lead out of it, and where

    def refuse(self, path: str, why: str) -> None:
        self.refused = True
        if len(self.reasons) < _REASONS_MAX:
            self.reasons.append(f"{path} {why}")

    def take_link(self, path: str, target: str) -> None:
        """DuckDB counts the parts of a name as they are written: behind a link that leads further
        up, `..` takes it out of the folder."""
        if target.count(os.sep) < path.count(os.sep) and not os.path.isfile(target):
            self.refuse(path, f"is a link that leads up, to {target}")
        else:
            self.links.append((path, target))

    def take(self, inner: _Found) -> None:
        self.whole += inner.whole
        self.reasons += inner.reasons[: _REASONS_MAX - len(self.reasons)]
        self.links += inner.links

    def settle(self) -> None:
        self.links = [link for link in self.links if not is_beneath(link[1], self.folder)]
        if not self.reasons and not self.links:
            self.whole = [self.folder]


class _Walk:
    def __init__(self, allowed: FilePolicy) -> None:
        self._allowed = allowed
        self._own_inodes = allowed.own_inodes()
        self._devices = system_devices()
        self._left = ENTRIES_MAX

    def look(self, folder: str, depth: int = 0) -> _Found:
        found = _Found(folder)
        if why := self._why_closed(folder, depth):
            found.refuse(folder, why)
            return found
        if any(is_beneath(own, folder) for own in self._allowed.own):  # be it there yet or not
            found.refuse(folder, "is where files of this engine are")
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        found.refuse(folder, f"has files beyond the {ENTRIES_MAX:,} looked at")
                        break
                    self._take(entry, found, depth)
        except OSError as error:
            found.refuse(folder, f"cannot be listed ({error.strerror})")
        found.settle()
        return found

    def _take(self, entry: os.DirEntry[str], found: _Found, depth: int) -> None:
        if entry.is_symlink():
            found.take_link(entry.path, os.path.realpath(entry.path))
        elif entry.is_dir(follow_symlinks=False):
            found.take(self.look(entry.path, depth + 1))
        elif not found.refused and (why := self._why_not(entry)):
            found.refuse(entry.path, why)

    def _why_closed(self, folder: str, depth: int) -> str:
        """Nothing beneath it is handed over."""
        if self._left < 0 or depth > DEPTH_MAX:
            return f"is beyond the {ENTRIES_MAX:,} files and {DEPTH_MAX} folders that are looked at"
        if any(is_beneath(folder, own) for own in self._allowed.own):
            return "is private to this engine"
        with suppress(OSError):
            if os.stat(folder).st_dev in self._devices:
                return "belongs to the system"
        return self._allowed.why_refused(folder)

    def _why_not(self, entry: os.DirEntry[str]) -> str:
        """Of a file in a folder that is no other reason to refuse it."""
        try:
            about = entry.stat(follow_symlinks=False)
        except OSError:  # it has just gone
            return ""
        if not stat.S_ISREG(about.st_mode):
            return "is no regular file"
        if (about.st_dev, about.st_ino) in self._own_inodes:
            return "is private to this engine, by another name"
        if _is_store(entry.path, about):
            return "is a store of Anabranch, or a copy of one"
        hidden = entry.name.startswith(".")
        return self._allowed.why_refused(entry.path) if hidden else why_name_refused(entry.name)


def _is_store(path: str, about: os.stat_result) -> bool:
    if is_store_file(about):
        return True
    return bool(about.st_size) and not about.st_size % _PAGE_BYTES and holds_store(path)
