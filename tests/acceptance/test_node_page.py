"""The commands of docs/node.md, from nothing to two nodes with an offer, an order and a result: a
shell runs them as they stand, with real processes. The example of the world runs, too."""

from __future__ import annotations

import io
import re
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from .pages import part, try_page, with_free_ports

PAGE = Path(__file__).parents[2] / "docs" / "node.md"
PORTS = ("8801", "8802", "8803")
FILES = ("offer.json", "summaries.py", "provider.json")


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page is written for curl")
def test_every_command_of_the_page_says_what_is_written_under_it(tmp_path: Path) -> None:
    page = with_free_ports(PAGE.read_text(encoding="utf-8"), PORTS)
    blocks = re.findall(r"```(?:json|python)\n(.*?)```", part(page), re.DOTALL)
    for name, text in zip(FILES, blocks, strict=True):
        assert f"`{name}`" in page
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert try_page(page, tmp_path) >= 25


def test_the_example_of_the_world_prints_what_the_page_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    example = page.partition("<!-- world: begin -->")[2].partition("<!-- world: end -->")[0]
    (code,) = re.findall(r"```python\n(.*?)```", example, re.DOTALL)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "docs/node.md", "exec"), {"__name__": "example"})
    assert printed.getvalue() == "released\n"
    assert "It prints `released`." in page
