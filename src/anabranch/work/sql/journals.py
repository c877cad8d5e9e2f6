"""The journal beside a SQLite database, which SQLite believes whatever it says.

A transaction over several files leaves a journal for each; they name one more file that says which
journals belong together. When SQLite opens a database it opens what its journal names, then what
stands in there, and removes the former. So the files are looked at first, as SQLite would.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from anabranch.errors import InputError
from anabranch.files import read_limited
from anabranch.store_files import refuse_store_file
from anabranch.work.file_policy import FilePolicy

_MAGIC = bytes.fromhex("d9d505f920a163d7")
_END_BYTES = 16  # length of the name, checksum, magic
_NAME_BYTES_MAX = 4096
_NAMES_BYTES_MAX = 1 << 20
_OF_SEVERAL = re.compile(r".*-mj[0-9A-F]{9}", re.DOTALL)


def refuse_foreign_journal(database: str, allowed: FilePolicy) -> None:
    """Raises where opening the database would lead to files that it may not lead to."""
    journal = f"{database}-journal"
    named = ""
    with suppress(OSError):  # there is none, or SQLite cannot read it either
        named = _named_in(journal, allowed)
    if not named or not os.path.lexists(named):
        return
    if not _OF_SEVERAL.fullmatch(named):
        raise InputError(f"{journal} names {named!r:.200}, which is no journal")
    allowed.resolve(named, write=True)
    names = read_limited(named, _NAMES_BYTES_MAX, opening=allowed.open_regular)
    for name in filter(None, names.split(b"\0")):
        refuse_store_file(allowed.resolve(os.fsdecode(name)))


def _named_in(journal: str, allowed: FilePolicy) -> str:
    """The file that the end of a journal names."""
    descriptor = allowed.open_regular(journal)
    try:
        size = os.fstat(descriptor).st_size
        start = max(size - _END_BYTES - _NAME_BYTES_MAX, 0)
        end = os.pread(descriptor, _END_BYTES + _NAME_BYTES_MAX, start)
    finally:
        os.close(descriptor)
    name, end = end[:-_END_BYTES], end[-_END_BYTES:]
    length = int.from_bytes(end[:4], "big")
    if not end.endswith(_MAGIC) or not 0 < length <= len(name):
        return ""
    return os.fsdecode(name[-length:].partition(b"\0")[0])
