"""A folder of definitions as a catalog: files by `metadata.path`, or by where they lie.

    flows/load.yaml with `metadata: {path: etl/load, version: 2}`    etl/load@2
    flows/clean.yaml without a path                                   clean (seen from the folder)

The folder is read again when a file of it has changed.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from anabranch import files
from anabranch.dialects.nodes import Fields, Scalar
from anabranch.dialects.source import SourceLimits, read_source
from anabranch.errors import InputError, NotFound

SUFFIXES = (".yaml", ".yml", ".json")
FILES_MAX = 10_000

_Stamp = tuple[int, int]  # when it was changed, and its size


class _Lying(NamedTuple):
    path: str
    version: str  # "": it does not say


class FolderCatalog:
    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._known: dict[Path, tuple[_Stamp, _Lying]] = {}
        self._lock = Lock()  # children are begun in threads
        if not self._folder.is_dir():
            raise NotFound(f"there is no folder {folder} for a catalog", code="no_catalog")

    def find(self, path: str, version: int | None) -> Path | None:
        """The file of a path; raises `InputError` where two files claim to be it."""
        with self._lock:
            self._look()
            lying = [(file, one) for file, (_, one) in self._known.items() if one.path == path]
        if version is not None:
            lying = [(file, one) for file, one in lying if _number(one.version) == version]
        elif len(lying) > 1 and len({one.version for _, one in lying}) == len(lying):
            newest = max(_number(one.version) for _, one in lying)
            lying = [(file, one) for file, one in lying if _number(one.version) == newest]
        if len(lying) > 1:
            names = " and ".join(sorted(str(file) for file, _ in lying)[:2])
            raise InputError(
                f"the path {path!r} has two definitions, {names}: give one another "
                "`metadata.path`, or each its own `metadata.version`",
                code="catalog_path",
            )
        return lying[0][0] if lying else None

    def _look(self) -> None:
        """What has changed since the last time is read again."""
        seen: dict[Path, tuple[_Stamp, _Lying]] = {}
        for file in self._files():
            about = file.stat()
            stamp = (about.st_mtime_ns, about.st_size)
            before = self._known.get(file)
            fresh = before is None or before[0] != stamp
            seen[file] = (stamp, self._read(file)) if fresh or before is None else before
        self._known = seen

    def _files(self) -> list[Path]:
        found: list[Path] = []
        for where, folders, names in os.walk(self._folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            found += [Path(where) / name for name in sorted(names) if name.endswith(SUFFIXES)]
            if len(found) > FILES_MAX:
                raise InputError(
                    f"the catalog {self._folder} has more than {FILES_MAX:,} files: name a folder "
                    "inside it",
                    code="catalog_path",
                )
        return [file for file in found if file.is_file()]

    def _read(self, file: Path) -> _Lying:
        """What it says of itself; what cannot be read is found by where it lies, and says why."""
        lies_at = file.relative_to(self._folder).with_suffix("").as_posix()
        try:
            text = files.read_limited(file, SourceLimits().bytes_max)
            root = read_source(text, file=str(file)).root
        except InputError:
            return _Lying(lies_at, "")
        metadata = root.get("metadata") if isinstance(root, Fields) else None
        if not isinstance(metadata, Fields):
            return _Lying(lies_at, "")
        return _Lying(_word(metadata, "path") or lies_at, _word(metadata, "version"))


def _word(metadata: Fields, key: str) -> str:
    node = metadata.get(key)
    return str(node.value) if isinstance(node, Scalar) and node.value is not None else ""


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdigit() else 0
