"""The page about documents: its commands run, its tables name every kind and every code."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from anabranch.market.documents import CODES, KINDS
from anabranch.market.documents.signing import AUTHORITIES
from anabranch.surfaces.cli.main import command

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "market-documents.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^\$ anabranch (.*)\n((?:(?!\$ |```).*\n)*)", PAGE, re.MULTILINE)
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize(("line", "printed"), SHOWN)
def test_every_command_prints_what_the_page_shows(
    line: str, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    code = command(shlex.split(line, comments=True))
    assert capsys.readouterr().out.rstrip("\n") == printed.rstrip("\n")
    assert code == (2 if "with problems" in printed else 0)


def test_there_are_commands_on_the_page() -> None:
    assert len(SHOWN) == 4


def test_the_example_in_python_prints_what_the_page_shows() -> None:
    ((code, printed),) = re.findall(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", PAGE, re.S)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "page", "exec"), {})
    assert out.getvalue() == printed


def test_every_kind_has_its_row_that_says_whether_it_is_closed() -> None:
    said = {
        kind: cells[2].strip().startswith("no")
        for row in ROWS
        if len(cells := row.split("|")) == 5 and cells[2].strip().split(",")[0] in ("yes", "no")
        for kind in re.findall(r"`([^`]+)`", cells[1])
    }
    assert said == {kind: shape.closed for kind, shape in KINDS.items()}


def test_every_code_is_listed_with_its_meaning_and_no_other_is_named() -> None:
    listed = dict(
        re.findall(r"^\| `([a-z0-9-]+)` \| (.*) \|$", PAGE.partition("## Codes")[2], re.M)
    )
    assert listed == dict(CODES)


def test_every_signed_document_is_in_the_table_of_signatures() -> None:
    table = PAGE.partition("## Signatures")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([^`]+)`", table, re.M)) == set(AUTHORITIES)
