"""docs/stories.md has every arrow with its node, every variant, and every law."""

from __future__ import annotations

import re
from pathlib import Path

from anabranch.surfaces.stories.arrows import ARROWS
from anabranch.surfaces.stories.story006 import Story006
from anabranch.surfaces.stories.story009 import Story009

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "stories.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    after = PAGE.partition(f"\n## {heading}")[2]
    assert after, heading
    return re.split(r"^## ", after, maxsplit=1, flags=re.M)[0]


def first_cells(text: str) -> list[str]:
    return [
        line.split(" | ")[0].strip("| ") for line in text.splitlines() if line.startswith("| `")
    ]


def test_every_arrow_stands_there_with_the_node_that_commits_it() -> None:
    rows = [line for line in section("Killing").splitlines() if line.startswith("| `")]
    found = {
        name: row.split(" | ")[1]
        for row in rows
        for name in re.findall(r"`(\w+)`", row.split(" | ")[0])
    }
    assert found == {arrow.name: arrow.side for arrow in ARROWS}
    assert list(found) == [arrow.name for arrow in ARROWS], "in the order in which they happen"


def test_every_variant_stands_there_and_on_the_page_of_the_command_line() -> None:
    command = (DOCS / "cli.md").read_text(encoding="utf-8").partition("## anabranch story")[2]
    for story, heading in ((Story006, "Story 006"), (Story009, "Story 009")):
        named = tuple(cell.strip("`") for cell in first_cells(section(heading)))
        assert named == story.variants
        said = ", ".join(f"`{variant}`" for variant in story.variants)
        assert f"{said} ({story.number})" in command
