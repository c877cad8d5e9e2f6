"""The table in `bench/README.md`, and the paragraph of the README that quotes it.

The paragraph is made of cells of the table and nothing else, so that a test can compare the two
texts, whatever machine the figures are from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bench.peers.catalog import CASES as PEERS_WORK

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "bench" / "README.md"
FRONT = ROOT / "README.md"
BEGIN, END = "<!-- the table begins -->", "<!-- the table ends -->"
_SPEED = "- **It is fast on one machine.**"

#: The cells behind the first one, in a line of ours and in that of a neighbour.
_RATIO, _MEASURED = 0, 1
_ONE, _MANY, _START = (list(PEERS_WORK).index(work) for work in ("one", "many", "start"))
_DURABLE, _IN_MEMORY = "DBOS, SQLite in WAL mode", "Dask, threads"
#: What is quoted: the first cell of a line, and which of the others.
_QUOTED = {
    "run": ("B1 nothing_in_place", _MEASURED),
    "over_commits": ("B1 nothing_in_place", _RATIO),
    "steps": ("B2 nothing_in_place ×2,000", _MEASURED),
    "items": ("B4 ×100,000", _MEASURED),
    "hello": ("S2 run hello.yaml", _MEASURED),
    "durable_one": (_DURABLE, _ONE),
    "durable_many": (_DURABLE, _MANY),
    "durable_start": (_DURABLE, _START),
    "memory_one": (_IN_MEMORY, _ONE),
    "memory_many": (_IN_MEMORY, _MANY),
}
_PARAGRAPH = f"""\
{_SPEED} A durable run of ten steps takes {{run}}, {{over_commits}} what its
  commits alone take; many small runs do {{steps}}, a fan-out {{items}};
  `anabranch run hello.yaml` takes {{hello}} from shell to shell. For the same small work
  DBOS on SQLite in WAL mode, which is durable too, takes {{durable_one}} as long (one run),
  {{durable_many}} (many at once) and {{durable_start}} (start-up); Dask's threads, which keep
  nothing, take {{memory_one}} and {{memory_many}} as long for runs. {{aims}}. One table, one
  machine, with other neighbours: [bench/README.md](bench/README.md)."""
_WITHOUT = f"{_SPEED} Figures, with neighbours beside them: [bench/README.md](bench/README.md)."


class Unquotable(Exception):
    """The table lacks a figure that the README quotes."""


def write(table: str) -> str:
    """Put a table into `bench/README.md`, and its figures into the README."""
    said = paragraph(table)
    text = TABLE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    front = FRONT.read_text(encoding="utf-8")
    quoting = front.replace(speed_paragraph(front), said)
    TABLE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")
    FRONT.write_text(quoting, encoding="utf-8")
    return "bench/README.md and README.md"


def table() -> str:
    """What stands between the two marks."""
    text = TABLE.read_text(encoding="utf-8")
    return text.partition(BEGIN)[2].partition(END)[0].strip()


def cells(text: str) -> dict[str, list[str]]:
    """The lines of a table by their first cell."""
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    parts = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return {row[0]: row[1:] for row in parts}


def paragraph(table: str) -> str:
    """The words of the README about speed, with the figures of this table; none without one."""
    if not table:
        return _WITHOUT
    rows, aims = cells(table), re.search(r"Aims met: \d+ of \d+", table)
    if aims is None:
        raise Unquotable("the table does not say how many aims are met")
    quoted = {name: _cell(rows, *where) for name, where in _QUOTED.items()}
    return _PARAGRAPH.format_map({**quoted, "aims": aims[0]})


def _cell(rows: Mapping[str, list[str]], line: str, cell: int) -> str:
    """A figure; of a neighbour's cell the ratio alone, which stands in bold."""
    try:
        found = rows[line][cell]
    except (KeyError, IndexError):
        found = ""
    if line in (_DURABLE, _IN_MEMORY):
        ratio = re.match(r"\*\*(\S+×)\*\*", found)
        found = ratio[1] if ratio else ""
    if found in ("", "–"):
        raise Unquotable(f"the table has no figure of {line}: measure that case, or `peers`")
    return found


def speed_paragraph(front: str) -> str:
    """The item of the README's list that speaks of speed."""
    begin = front.index(_SPEED)
    end = front.find("\n\n", begin)
    following = front.find("\n- ", begin)
    return front[begin : min(at for at in (end, following, len(front)) if at != -1)]
