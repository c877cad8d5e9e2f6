from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from surfaces.cli.support import Terminal

from .quick_commands import quick_commands


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture(scope="session")
def quick_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Stands for Python where programs start `anabranch` with it: nodes, modules, roles. Whoever
    kills it with its number kills the real process an instant later."""
    file = tmp_path_factory.mktemp("quick") / "python"
    with quick_commands(file):
        yield file
