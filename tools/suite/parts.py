"""Cuts the suite into parts: some files of one folder, which one process runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePath
from typing import NamedTuple

from tools.suite.kinds import KINDS, kind_of

#: A process takes a tenth of a second for itself, and shares what is dear (a browser, a database)
#: among its files. Folders with a cluster are one part: there is one of each at a time.
FILES = {"pure": 6, "processes": 5, "browser": 13, "docs": 3, "store": 5}


class Part(NamedTuple):
    name: str
    tests: tuple[str, ...]
    """Files, or tests by their ids."""

    @property
    def kind(self) -> str:
        return kind_of(self.tests[0])


def find_files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / "tests").rglob("test_*.py"))


def cut(files: Iterable[str]) -> list[Part]:
    """In the order in which they are to begin."""

    def place(file: str) -> tuple[int, str]:
        return KINDS.index(kind_of(file)), str(PurePath(file).parent)

    parts: list[Part] = []
    for (number, folder), some in groupby(sorted(files, key=place), key=place):
        name = folder.removeprefix("tests").strip("/") or "tests"
        chunks = list(_chunks(sorted(some), FILES.get(KINDS[number], 1000)))
        for index, chunk in enumerate(chunks, 1):
            number_of = f" {index}/{len(chunks)}" if len(chunks) > 1 else ""
            parts.append(Part(f"{name}{number_of}", tuple(chunk)))
    return parts


def _chunks(files: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    """As few as can be, of about the same size."""
    count = -(-len(files) // most)
    for index in range(count):
        yield files[index * len(files) // count : (index + 1) * len(files) // count]
