"""A stranger who follows the tutorial sees what it says: all six lessons, as they stand."""

from __future__ import annotations

import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from .lessons import follow, read_lesson
from .pages import with_free_ports

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
LESSONS = sorted(TUTORIAL.glob("[1-9]-*.md"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="a lesson is written for curl"),
]


def test_every_command_of_the_six_lessons_prints_what_is_written_under_it(tmp_path: Path) -> None:
    pages = "\0".join(page.read_text(encoding="utf-8") for page in LESSONS)
    pages = with_free_ports(pages, ("8765",))
    for limit in ("PT5S", "PT1M", "timeout: 1m"):  # a busy machine may need longer
        assert limit in pages
        pages = pages.replace(limit, limit[:-2] + ("1H" if limit[0] == "P" else "1h"))
    lessons = [read_lesson(page) for page in pages.split("\0")]
    assert len(lessons) == 6
    assert all(lesson.files and lesson.commands for lesson in lessons)
    assert follow(lessons, tmp_path, Path(sys.executable).parent) >= 25


def test_the_first_page_leads_to_every_lesson_and_each_lesson_to_the_next() -> None:
    first = (TUTORIAL / "index.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\(([1-9]-[^)]+)\)", first) == [page.name for page in LESSONS]
    for page, following in pairwise(LESSONS):
        assert f"]({following.name})" in page.read_text(encoding="utf-8")


def test_a_command_that_prints_something_else_is_found(tmp_path: Path) -> None:
    page = "```console\n$ echo one\none\n$ echo two\nthree\n```\n"
    with pytest.raises(AssertionError, match="echo two"):
        follow([read_lesson(page)], tmp_path)


def test_a_command_that_ends_otherwise_than_written_is_found(tmp_path: Path) -> None:
    page = "```console\n$ false   # exit code 1\n$ false\n```\n"
    with pytest.raises(AssertionError, match="false"):
        follow([read_lesson(page)], tmp_path)
