from __future__ import annotations

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
    return Here(tmp_path, capsys, monkeypatch)
