"""SQL that would open the engine's own store: refused, for the reason that `store_files` gives."""

from __future__ import annotations

import re
from urllib.parse import unquote

from anabranch.store_files import refuse_store_file
from anabranch.work.sql.task import SqlTask

_QUOTED = re.compile(r"'((?:[^']|'')+)'|\"((?:[^\"]|\"\")+)\"")


_OPENS = frozenset({"ATTACH", "VACUUM"})  # of SQLite; DuckDB opens files in any statement


def refuse_own_store(path: str, work: SqlTask, verbs: frozenset[str] | None = _OPENS) -> None:
    """Looks at the database and at every text in quotes of these verbs, or of all of them.

    A name that a statement puts together is not recognised.
    """
    refuse_store_file(_file(path))
    for command in work.commands:
        if verbs is None or command.statement.verb in verbs:
            for single, double in _QUOTED.findall(command.statement.text):
                refuse_store_file(_file(single.replace("''", "'") or double.replace('""', '"')))


def _file(name: str) -> str:
    for scheme in ("sqlite:", "file:"):
        if name.startswith(scheme):
            name = unquote(name.removeprefix(scheme).partition("?")[0])
            return "/" + name.lstrip("/") if name.startswith("//") else name
    return name
