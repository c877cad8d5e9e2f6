"""New SQLite stores as copies of one that was made as they all are.

To make one takes 68 statements and 9 ms of the processor, and a run of the suite makes thousands.
The tests of the store itself make theirs in earnest; so does every process that is not forked from
here, and every one where `ANABRANCH_FRESH_STARTS=1`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from anabranch.store.access_ports import AuditEntry
from anabranch.store.sqlite import file

EARNEST = "tests/store/"
_make_or_upgrade = file._create_or_upgrade
_migrations = file.MIGRATIONS


def copy_new_stores() -> None:
    """From here on, in this process and in what is forked from it."""
    if os.environ.get("ANABRANCH_FRESH_STARTS", "") in ("", "0"):
        _new_store()
        file._create_or_upgrade = _copy_or_upgrade


def make_new_stores_for(tests: Sequence[str]) -> None:
    """In earnest, where they are what is tested."""
    if tests[0].startswith(EARNEST):
        file._create_or_upgrade = _make_or_upgrade


def _copy_or_upgrade(path: Path, audit: AuditEntry | None) -> None:
    if audit is None and file.MIGRATIONS is _migrations and not path.stat().st_size:
        path.write_bytes(_new_store())
    else:
        _make_or_upgrade(path, audit)


@cache
def _new_store() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "new.db"
        _make_or_upgrade(path, None)
        return path.read_bytes()
