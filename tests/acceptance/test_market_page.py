"""The commands of docs/market.md, from nothing to a run that buys a step and a template for others:
a shell runs them as they stand, with real processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import part, try_page, with_free_ports

PAGE = Path(__file__).parents[2] / "docs" / "market.md"
PORTS = ("8841", "8842", "8843", "8844", "8845", "8846")
FILES = ("summaries.py", "dator.json", "workflow.json", "template.json")


@pytest.mark.soak
@pytest.mark.slow
def test_every_command_of_the_page_says_what_is_written_under_it(tmp_path: Path) -> None:
    page = with_free_ports(PAGE.read_text(encoding="utf-8"), PORTS)
    blocks = re.findall(r"```(?:json|python)\n(.*?)```", part(page), re.DOTALL)
    for name, text in zip(FILES, blocks, strict=True):
        assert f"`{name}`" in page
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert try_page(page, tmp_path) >= 25
