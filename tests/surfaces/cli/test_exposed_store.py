"""A server whose store other users may read says so, once; it does not change the mode."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from anabranch.store.sqlite.store import SqliteStore

from .server_in_thread import served


@pytest.mark.parametrize(("mode", "times"), [(0o600, 0), (0o644, 1), (0o660, 1)])
def test_a_server_warns_once_of_a_store_that_others_may_read(
    mode: int, times: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    path.chmod(mode)
    with caplog.at_level(logging.WARNING, "anabranch.http"), served(path):
        pass
    said = [each for each in caplog.records if "chmod 600" in each.getMessage()]
    assert len(said) == times
    assert stat.S_IMODE(path.stat().st_mode) == mode
