"""The table as lines for a terminal and as Markdown for `bench/README.md`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.peers import table as peers
from bench.rows import Row, figure, processor, times

HEADS = ("case", "ratio", "measured", "beside", "aim")
_MET = {True: "met", False: "NOT met", None: ""}


def line(row: Row) -> str:
    return (
        f"{row.case:<58} {times(row.ratio):>8} {figure(row):>16} {processor(row):>9}  "
        f"{row.probe:<45} {row.aim:<28} {_MET[row.met]}".rstrip()
    )


def markdown(rows: Iterable[Row], words: str) -> str:
    """`words` says the machine and the hours. Neighbours first, then every case of ours."""
    found = list(rows)
    ours = [row for row in found if peers.is_ours(row)]
    beside, reasons = peers.matrix([row for row in found if not peers.is_ours(row)])
    parts = [f"{words}. {aims(ours)}."]
    if beside:
        parts.append(_table(peers.MATRIX_HEADS, beside))
    if reasons:
        parts.append("\n".join(f"- {reason}" for reason in reasons))
    parts.append(_table(HEADS, [_cells(row) for row in ours]))
    return "\n\n".join(parts)


def aims(rows: Iterable[Row]) -> str:
    judged = [row.met for row in rows if row.met is not None]
    return f"Aims met: {sum(judged)} of {len(judged)}"


def _cells(row: Row) -> list[str]:
    said = _MET[row.met].replace("NOT met", "**not met**")
    aim = ": ".join(filter(None, (row.aim, said)))
    return [row.case, times(row.ratio), figure(row), row.probe, aim]


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join([_joined(heads), "|---" * len(heads) + "|", *map(_joined, lines)])


def _joined(cells: Sequence[str]) -> str:
    """A pipe in a text would end its cell."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
