"""What the pages for newcomers claim is shown by definitions of the corpus, word for word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.operations.definitions.prepare import check

from .cases import FOLDER, Case, all_cases

DOCS = FOLDER.parents[1] / "docs"
#: By usage: the page, and the heading of its table.
TABLES = {"noetl": ("coming-from-noetl.md", "## What NoETL has")}
ANSWERS = ("yes", "differently", "no")


@dataclass(frozen=True)
class Row:
    usage: str
    what: str
    here: str
    message: str
    shown_by: tuple[str, ...]


def rows() -> list[Row]:
    found = []
    for usage, (page, heading) in TABLES.items():
        text = (DOCS / page).read_text(encoding="utf-8").partition(heading)[2]
        for line in text.partition("\n## ")[0].splitlines():
            cells = [cell.strip() for cell in line.strip("| ").split(" |")]
            if not line.startswith("| ") or line.startswith(("| NoETL", "|--")):
                continue
            assert len(cells) == 4, line
            what, here, message, shown = cells
            names = tuple(re.findall(r"`([a-z0-9_]+)`", shown))
            found.append(Row(usage, what, here, message[1:-1], names))
    return found


ROWS = rows()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what[:60])
def test_a_row_says_yes_differently_or_no_and_is_shown(row: Row) -> None:
    assert row.here.startswith(ANSWERS)
    cases = [Case(FOLDER / row.usage / f"{name}.yaml") for name in row.shown_by]
    assert cases
    assert all(case.beside.exists() for case in cases), row.shown_by
    if row.message:
        assert any(row.message in told for case in cases for told in said_by(case)), row.message


def said_by(case: Case) -> list[str]:
    """What `check` says about it; and, as expected of it, the reason of a run that fails."""
    found = [f"{one.message}; {one.hint}" for one in check(Path(case.path)).problems]
    expected = case.expectation()
    return [*found, expected.problem or ""]


def test_the_tables_are_as_long_as_they_claim() -> None:
    told = {(row.usage, name) for row in ROWS for name in row.shown_by}
    assert len(told) > 50
    assert {usage for usage, _ in told} == set(TABLES)
    assert {case.path.stem for case in all_cases()} >= {name for _, name in told}
