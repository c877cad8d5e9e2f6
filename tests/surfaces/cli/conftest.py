from __future__ import annotations

import os
from pathlib import Path

import pytest

from .support import Here, Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture
def here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Here:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("ANABRANCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("USER", "ann")
    monkeypatch.setenv("LOGNAME", "ann")
    return Here(tmp_path, capsys)
