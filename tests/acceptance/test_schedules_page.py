"""The commands of docs/schedules.md: a shell runs them as they stand, with a real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import try_page, with_free_ports

PAGE = Path(__file__).parents[2] / "docs" / "schedules.md"


@pytest.mark.soak
def test_the_page_about_schedules_can_be_followed(tmp_path: Path) -> None:
    page = with_free_ports(PAGE.read_text(encoding="utf-8"), ("8720",))
    (definition,) = re.findall(r"```yaml\n(apiVersion.*?)```", page, re.DOTALL)
    (tmp_path / "nightly.yaml").write_text(definition)
    assert try_page(page, tmp_path) > 10
