"""`{listing: folder, pattern: "*.csv", recursive: true}`: the files of a folder, in order of name.

A shard remembers the name before its first and the name of its last file. Files that come or go
elsewhere do not matter to it; one that comes or goes between the two is noticed by the count.
An item is `{path, name, size}`. Names that begin with a dot are left out unless the pattern asks
for them; links to folders are not followed.
"""

from __future__ import annotations

import os
import stat
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from anabranch.errors import InputError
from anabranch.work.kinds import inputs
from anabranch.work.kinds.threads import Threads
from anabranch.work.loops.collections.files import path_of
from anabranch.work.loops.collections.port import (
    KIND,
    CollectionError,
    CollectionLimits,
    Cursor,
    Cuts,
    Descriptor,
    ShardRange,
    WalkedInThreads,
    changed,
)

_CACHED = 4  # folders
#: Clocks of file systems go in steps, some of two seconds: what changes within one of them leaves
#: the time of its folder as it was.
_SETTLED_NS = 3_000_000_000
Parts = tuple[str, ...]


class Listings(WalkedInThreads):
    options = frozenset({"pattern", "recursive"})

    def __init__(self, threads: Threads, limits: CollectionLimits) -> None:
        super().__init__(threads)
        self._allowed = limits.files
        self._folders: OrderedDict[tuple[str, int], list[tuple[str, bool]]] = OrderedDict()

    async def describe(self, value: Any) -> Descriptor:
        path = path_of(value["listing"], "listing")
        pattern = inputs.text(value.get("pattern", "*"), "pattern")
        recursive = inputs.flag(value.get("recursive", "/" in pattern), "recursive")
        if not await self._threads.run(lambda: os.path.isdir(self._allowed.resolve(path))):
            raise InputError(f"{path} is not a folder")
        return {KIND: "listing", "path": path, "pattern": pattern, "recursive": recursive}

    # -- in a thread -------------------------------------------------------------------------

    def _cut(self, descriptor: Descriptor, cursor: Cursor | None, count: int, shards: int) -> Cuts:
        after, index = ("", 0) if cursor is None else (cursor["after"], cursor["index"])
        names = self._names(descriptor, after)
        made: list[ShardRange] = []
        while len(made) < shards:
            part = list(islice(names, count))
            if part:
                made.append(ShardRange({"after": after, "last": part[-1]}, index, len(part)))
                after, index = part[-1], index + len(part)
            if len(part) < count:
                return Cuts(made, None, True)
        return Cuts(made, {"after": after, "index": index}, False)

    def _items(self, descriptor: Descriptor, shard: ShardRange) -> list[tuple[str, Any]]:
        cursor = shard.cursor or {"after": "", "last": ""}
        folder = descriptor["path"]
        found = list(islice(self._names(descriptor, cursor["after"]), shard.count))
        if len(found) < shard.count or found[-1] != cursor["last"]:
            raise changed(folder, f"not the same files between item {shard.first:,} and the next")
        return [(name, self._item(folder, name)) for name in found]

    def _names(self, descriptor: Descriptor, after: str) -> Iterator[str]:
        """The paths of matching files below the folder that come after a given one."""
        pattern: str = descriptor["pattern"]
        by_path = "/" in pattern
        for parts in self._walk(
            descriptor["path"], descriptor["recursive"], pattern, _parts(after)
        ):
            name = "/".join(parts)
            if _matches(name if by_path else parts[-1], pattern):
                yield _as_text(name, descriptor["path"])

    def _walk(self, folder: str, deep: bool, pattern: str, after: Parts) -> Iterator[Parts]:
        """Files below the folder as the parts of their paths, in order of those parts."""
        hidden = pattern.rpartition("/")[2].startswith(".")
        first, rest = (after[0], after[1:]) if after else ("", ())
        entries = self._entries(folder)
        begin = bisect_left(entries, (first, False))  # a large folder is entered many times
        for name, is_folder in islice(entries, begin, None):
            if (name == first and not is_folder) or (_hidden(name) and not hidden):
                continue
            if is_folder and deep:
                below = rest if name == first else ()
                for parts in self._walk(os.path.join(folder, name), deep, pattern, below):
                    yield (name, *parts)
            elif not is_folder:
                yield (name,)

    def _entries(self, folder: str) -> list[tuple[str, bool]]:
        """Names and whether they are folders, sorted; kept, because a large folder is cut often."""
        try:
            with self._allowed.open_folder(folder) as descriptor:
                now, changed_at = time.time_ns(), os.fstat(descriptor).st_mtime_ns
                key = (folder, changed_at)
                known = self._folders.get(key)
                if known is None:
                    with os.scandir(descriptor) as entries:
                        known = sorted((e.name, e.is_dir(follow_symlinks=False)) for e in entries)
            if changed_at < now - _SETTLED_NS:
                self._keep(key, known)
        except OSError as error:
            reason = error.strerror or error
            raise CollectionError(f"{folder} cannot be listed: {reason}", retryable=True) from None
        return known

    def _item(self, folder: str, name: str) -> dict[str, Any]:
        path = os.path.join(folder, name)
        try:
            about = os.lstat(path)
            if stat.S_ISLNK(about.st_mode):  # of what it leads to, where that may be named
                about = os.stat(self._allowed.resolve(path))
        except OSError as error:
            raise changed(folder, f"{name} cannot be read any more ({error.strerror})") from None
        return {"path": path, "name": os.path.basename(name), "size": about.st_size}

    def _keep(self, key: tuple[str, int], entries: list[tuple[str, bool]]) -> None:
        self._folders[key] = entries
        while len(self._folders) > _CACHED:
            self._folders.popitem(last=False)


def _matches(name: str, pattern: str) -> bool:
    if fnmatchcase(name, pattern):
        return True
    # `**/` also means no folder at all, as shells have it.
    return "**/" in pattern and fnmatchcase(name, pattern.replace("**/", ""))


def _as_text(name: str, folder: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise CollectionError(f"{folder}: the name {name!r:.80} is not valid text") from None
    return name


def _hidden(name: str) -> bool:
    return name.startswith(".")


def _parts(name: str) -> Parts:
    return tuple(name.split("/")) if name else ()
