"""Somebody removes or replaces the store of a running server, or starts a second one on it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import quick_starts
from anabranch.store.sqlite.store import SqliteStore
from hangs import HANG_SECONDS
from surfaces.cli.support import HELLO

from .beside import site

pytestmark = pytest.mark.slow


def replace(store: Path) -> None:
    shutil.copy(store, store.with_name("old"))
    store.with_name("old").replace(store)


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "the database is removed": (lambda store: store.unlink(), "s.db is gone"),
    "the database is replaced": (replace, "s.db was replaced by another file"),
    "the log is removed": (lambda store: Path(f"{store}-wal").unlink(), "s.db-wal is gone"),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_server_whose_store_is_taken_away_ends_and_says_why(tmp_path: Path, harm: str) -> None:
    do, words = HARM[harm]
    with site(tmp_path) as at:
        run = at.start(HELLO)
        assert at.ended(run) == "completed"
        do(at.store)
        assert at.process.wait(HANG_SECONDS) == 1
        said = (tmp_path / "server.log").read_text()
    (saved,) = tmp_path.glob("s.db.saved-*")
    with closing(SqliteStore(saved)) as store:
        head = store.head(run)
        assert head is not None
        assert head.status == "completed"
    assert words in said
    assert str(saved.name) in said
    assert "restore a backup" in said
    assert "Traceback" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="without OFD locks there is the lock file only")
def test_a_second_server_does_not_start_by_any_name(tmp_path: Path) -> None:
    with site(tmp_path) as at:
        assert at.ended(at.start(HELLO)) == "completed"
        Path(f"{at.store}.lock").unlink()
        (tmp_path / "soft.db").symlink_to("s.db")
        for name, words in (("s.db", "lock file was removed"), ("soft.db", "lock file was removed"), ("hard.db", "hard links")):  # fmt: skip  # noqa: E501
            if name == "hard.db":
                os.link(at.store, tmp_path / name)
            done = quick_starts.run(
                [sys.executable, "-m", "anabranch", "serve", "--port", "0", "--store", name],
                cwd=tmp_path,
                text=True,
                timeout=HANG_SECONDS,
            )
            assert done.returncode == 2, done
            assert words in done.stderr
        (tmp_path / "hard.db").unlink()
        assert at.ended(at.start(HELLO)) == "completed"
        assert not list(tmp_path.glob("hard*"))
