"""What the README says about speed is what the table of the benchmarks says, text against text."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import readme, report
from bench.peers import table
from bench.peers.catalog import OURS, PEERS, Peer
from bench.peers.measured import Measured
from bench.rows import Row


def of(peer: Peer, case: str, wall: float) -> Measured:
    return Measured(peer, case, 10, wall, wall)


def test_the_readme_quotes_the_table_of_the_benchmarks() -> None:
    front = readme.FRONT.read_text(encoding="utf-8")
    assert readme.speed_paragraph(front) == readme.paragraph(readme.table())


def ours_to_quote() -> list[Row]:
    return [
        Row("B1 nothing_in_place", 5.0, "ms", "11 commits: 2.50 ms", 2.0, "≤ 1.7×", False),
        Row("B2 nothing_in_place ×2,000", 14_321.0, "steps/s", "", 0.1, "≥ 14,000/s", True),
        Row("B4 ×100,000", 61_234.0, "items/s", "", 0.3, "≥ 60,000/s", True),
        Row("S2 run hello.yaml", 310.0, "ms", "", 2.6, "≤ 250 ms", False),
    ]


def rows_to_quote() -> list[Row]:
    named = {peer.name: peer for peer in PEERS}
    cases = ("one", "many", "start")
    found = [of(OURS[0], case, 1.5) for case in cases]
    found += [of(named["DBOS, SQLite in WAL mode"], case, 30.0) for case in cases]
    found += [of(named["Dask, threads"], case, 0.75) for case in cases]
    return [*ours_to_quote(), *table.rows(found)]


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    for name in ("TABLE", "FRONT"):
        copy = tmp_path / f"{name}.md"
        copy.write_text(getattr(readme, name).read_text(encoding="utf-8"), encoding="utf-8")
        monkeypatch.setattr(readme, name, copy)
    return readme.TABLE, readme.FRONT


def test_a_new_table_replaces_the_old_one_and_what_is_quoted_of_it(
    documents: tuple[Path, Path],
) -> None:
    before = [path.read_text(encoding="utf-8") for path in documents]
    new = report.markdown(rows_to_quote(), "another machine")
    readme.write(new)
    assert readme.table() == new
    test_the_readme_quotes_the_table_of_the_benchmarks()
    said = readme.speed_paragraph(documents[1].read_text(encoding="utf-8"))
    for words in ("5.00 ms, 2.00× what", "14,321 steps/s", "61,234 items/s", "310 ms", "2 of 4"):
        assert words in said
    assert "takes 20.0× as long" in said
    assert "take 0.50× and 0.50× as long" in said  # who is quicker is told as well
    for path, text in zip(documents, before, strict=True):
        changed = path.read_text(encoding="utf-8")
        assert (changed.splitlines()[0], changed[-200:]) == (text.splitlines()[0], text[-200:])


@pytest.mark.parametrize("lacking", ["B1", "B4", "S2", "one run of 10 steps: Dask", "start-up"])
def test_a_table_that_lacks_a_quoted_figure_changes_nothing(
    documents: tuple[Path, Path], lacking: str
) -> None:
    before = [path.read_text(encoding="utf-8") for path in documents]
    left = [row for row in rows_to_quote() if not row.case.startswith(lacking)]
    with pytest.raises(readme.Unquotable, match="measure that case"):
        readme.write(report.markdown(left, "another machine"))
    assert [path.read_text(encoding="utf-8") for path in documents] == before


def test_a_figure_that_could_not_be_measured_is_not_quoted(documents: tuple[Path, Path]) -> None:
    failed = Row("B1 nothing_in_place", None, "", "failed: no disk", None, "", None)
    with pytest.raises(readme.Unquotable, match="B1 nothing_in_place"):
        readme.write(report.markdown([failed, *rows_to_quote()[1:]], "another machine"))
