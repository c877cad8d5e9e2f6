"""The cases `peers_…`: ours and the neighbours side by side, with ratios."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.peers import measured as measuring
from bench.peers.catalog import CASES, NOT_MEASURED, OURS, PEERS, Peer
from bench.peers.measured import Measured
from bench.rows import Row, figure, times

_TIMES = {"one": ("ms", 1_000.0), "start": ("ms", 1_000.0)}
_RATES = {"many": "steps/s", "items": "items/s", "batches": "items/s"}
_LEFT_OUT = "not measured: "


def case_of(work: str) -> Callable[[Path], Coroutine[Any, Any, list[Row]]]:
    """One work by all of them, so that those who are compared meet the same minutes."""

    async def case(folder: Path) -> list[Row]:
        seconds = float(os.environ.get("ANABRANCH_BENCH_PEER_SECONDS", measuring.SECONDS))
        found = []
        for peer in chosen(os.environ.get("ANABRANCH_BENCH_PEERS", "")):
            if work in peer.cases:
                found.append(measuring.measured(peer, work, folder, seconds))
                print(f"  {progress(found[-1])}", file=sys.stderr, flush=True)
        return [*rows(found), *(left_out() if work == [*CASES][-1] else [])]

    return case


def chosen(words: str) -> tuple[Peer, ...]:
    """Ours and those whose script is named; all of them where none is."""
    wanted = {word.strip().lower() for word in words.split(",") if word.strip()}
    unknown = wanted - {peer.script for peer in PEERS}
    if unknown:
        raise ValueError(f"no peer {', '.join(sorted(unknown))}")
    return (*OURS, *(peer for peer in PEERS if not wanted or peer.script in wanted))


def rows(found: Iterable[Measured]) -> list[Row]:
    """A line for each; the ratio says how many times as fast ours is."""
    all_of = list(found)
    ours = {
        (one.case, one.peer.variant): one for one in all_of if one.peer in OURS and not one.reason
    }
    return [row(one, ours.get((one.case, one.peer.beside))) for one in all_of]


def row(one: Measured, ours: Measured | None) -> Row:
    name = _name(one.case, one.peer)
    if one.reason:
        return Row(name, None, "", one.reason, None, "", None)
    unit, value = _figure(one)
    words = "" if one.case in _TIMES else f"×{one.number:,}"
    ratio = None
    if ours is not None and one.peer not in OURS:
        ratio = ours.rate / one.rate
    return Row(name, value, unit, words, ratio, "", None, one.each_us)


def _name(work: str, peer: Peer) -> str:
    return f"{CASES[work]}: {peer.name}"


def _figure(one: Measured) -> tuple[str, float]:
    if one.case in _TIMES:
        unit, factor = _TIMES[one.case]
        return unit, one.wall * factor
    return _RATES[one.case], one.rate


def left_out() -> list[Row]:
    return [
        Row(f"{_LEFT_OUT}{name}", None, "", why, None, "", None)
        for name, why in NOT_MEASURED.items()
    ]


def progress(one: Measured) -> str:
    said = one.reason or f"{one.wall:.3f} s, {one.cpu:.3f} s of the processor, ×{one.number:,}"
    return f"{one.peer.name}, {CASES[one.case]}: {said}"


peers_one = case_of("one")
peers_many = case_of("many")
peers_items = case_of("items")
peers_batches = case_of("batches")
peers_start = case_of("start")


# -- a product a line ----------------------------------------------------------------------------

MATRIX_HEADS = ("product", *CASES.values(), "what survives `kill -9`")


def is_ours(row: Row) -> bool:
    """Whether a row is about us alone, and so none of this matrix."""
    return not row.case.startswith((_LEFT_OUT, *(f"{title}: " for title in CASES.values())))


def matrix(found: Sequence[Row]) -> tuple[list[list[str]], list[str]]:
    """A line for each product and a cell for each work; and why cells are empty."""
    by_name = {row.case: row for row in found}
    lines, reasons = [], [row.case + ": " + row.probe for row in found if _LEFT_OUT in row.case]
    for peer in (*OURS, *PEERS):
        done = [by_name.get(_name(work, peer)) for work in CASES]
        if not any(done):
            continue
        lines.append([peer.name, *(_cell(one) for one in done), peer.survives])
        reasons += [
            f"{_LEFT_OUT}{one.case}: {one.probe}" for one in done if one and one.figure is None
        ]
    return lines, reasons


def _cell(row: Row | None) -> str:
    """The ratio first: `31×: 390 steps/s (×500)`."""
    if row is None or row.figure is None:
        return "–"
    words = figure(row) if row.ratio is None else f"**{times(row.ratio)}** {figure(row)}"
    return f"{words} ({row.probe})" if row.probe else words
