"""Finds the SQL that ships beside this file: named statements and numbered migrations; and says now
and then how far a migration is.

A statement starts with a line `-- name: x`. A migration is a file `0001_what_it_does.sql`; the
numbers run from 1 without gaps. Each database has its own folder in `sql/` and `migrations/`.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
EVERY_SECONDS = 5.0

log = logging.getLogger("anabranch.store")
_PARAMETER = re.compile(r"(?<![:\w]):(\w+)")


def load_statements(database: str) -> Mapping[str, str]:
    named: dict[str, str] = {}
    for file in sorted((HERE / "sql" / database).glob("*.sql")):
        for chunk in file.read_text(encoding="utf-8").split("-- name: ")[1:]:
            name, _, body = chunk.partition("\n")
            if named.setdefault(name.strip(), body.strip()) != body.strip():
                raise ValueError(f"{file}: statement {name.strip()} has a namesake")
    return named


def load_migrations(database: str) -> Sequence[str]:
    """The texts of the migrations; the one at index n leads from version n to n + 1."""
    files = sorted((HERE / "migrations" / database).glob("*.sql"))
    numbers = [int(file.name.partition("_")[0]) for file in files]
    if numbers != list(range(1, len(files) + 1)):
        raise ValueError(f"migrations for {database} are not numbered 1, 2, 3 …: {numbers}")
    return [file.read_text(encoding="utf-8") for file in files]


def parameters(statement: str) -> list[str]:
    """The names of its parameters, in order of appearance."""
    return _PARAMETER.findall(statement)


def positional(statement: str, order: Sequence[str]) -> str:
    """The statement for tuples in this order.

    A tuple binds much faster than a mapping, and hot statements are bound thousands of times a
    second; stating the order keeps a change of the SQL from silently moving a value.
    """
    if parameters(statement) != list(order):
        raise ValueError(f"statement takes {parameters(statement)}, not {list(order)}")
    return _PARAMETER.sub("?", statement)


class Progress:
    """What a migration that takes long says meanwhile, so that nobody takes it for a hang."""

    def __init__(self, shown: str, version: int, wanted: int) -> None:
        self.runs = 0  # whose labels were read
        self._what = (
            f"store {shown}: its schema is being brought from version {version} to {wanted}"
        )
        self._began = self._told = time.monotonic()

    def tell(self) -> None:
        """Called often; says something every few seconds."""
        now = time.monotonic()
        if now - self._told >= EVERY_SECONDS:
            self._told = now
            seconds = now - self._began
            log.warning("%s, for %.0f s so far, %d labelled runs", self._what, seconds, self.runs)
