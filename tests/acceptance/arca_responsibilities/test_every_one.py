"""Every responsibility of Arca stands in docs/coming-from-arca.md with a test that exists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "coming-from-arca.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Responsibilities\n")[2].partition("\n## ")[0]
HERE = "tests/acceptance/arca_responsibilities/"
#: How many the description has, by its headings.
GROUPS = {
    "Must: running workflows": 9,
    "Must: execution completed, task fulfilled": 5,
    "Must: remote orders by artifact delivery": 7,
    "Must: offers of others": 7,
    "Must: a guest of the host": 4,
    "May: templates": 3,
    "May: fan-out and aggregation": 5,
    "May: time": 3,
    "May: targets by type of task, and answers to others": 3,
    "Out of scope, and left to others": 5,
}


def rows() -> dict[str, list[list[str]]]:
    """The cells of each row, by the heading above it."""
    found: dict[str, list[list[str]]] = {}
    for part in SECTION.split("\n### ")[1:]:
        title, _, text = part.partition("\n")
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        found[title] = [
            [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]
        ]
    return found


def named() -> list[str]:
    """The tests that the rows name, each as a path and a name."""
    names = re.findall(r"`((?:\w+/)*\w+\.py::\w+)`", SECTION)
    return [name if name.startswith("tests/") else HERE + name for name in names]


def test_every_responsibility_has_a_row_with_a_place_and_a_test() -> None:
    assert {title: len(cells) for title, cells in rows().items()} == GROUPS
    for cells in (one for group in rows().values() for one in group):
        assert all(cells[:2]), cells
        assert "::test_" in cells[-1], cells


def test_every_test_that_is_named_exists() -> None:
    assert len(named()) >= sum(GROUPS.values())
    for reference in named():
        file, _, name = reference.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(?:async )?def {name}\(", text, re.M), reference


def test_most_are_proved_here_and_no_test_here_is_left_out() -> None:
    counted = Counter(reference.startswith(HERE) for reference in named())
    assert counted[True] > 4 * counted[False]
    written = {
        f"{HERE}{file.name}::{name}"
        for file in Path(__file__).parent.glob("test_*.py")
        if file.name not in (Path(__file__).name, "test_states.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text("utf-8"), re.M)
    }
    assert written <= set(named())


def test_the_places_exist() -> None:
    source = ROOT / "src" / "anabranch"
    for place in re.findall(r"`((?:\w+/)+\w+(?:\.py)?)`", SECTION):
        assert any((base / place).exists() for base in (source, ROOT)), place
