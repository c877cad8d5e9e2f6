"""A long simulation at random: `python -m anabranch.testing.soak --seeds 20000`.

Every fourth seed is a random playbook, the others are random nets; `--only` chooses one of them.
Prints one line as it goes and the sums at the end. Exit code 1, with the seed, when a law breaks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TextIO

from anabranch.net.net import Net
from anabranch.testing.random.nets import RANDOM_PATCHES, random_net
from anabranch.testing.random.playbooks import random_playbook_net
from anabranch.testing.simulate import MakeNet, simulate
from anabranch.testing.simulation import Simulation, SimulationFailed

_LINE_EVERY_SECONDS = 1.0


def random_definition(seed: int) -> Net:
    """A net, or for every fourth seed a playbook."""
    return random_playbook_net(seed) if seed % 4 == 3 else random_net(seed)


_MAKERS: dict[str, MakeNet] = {
    "": random_definition,
    "nets": random_net,
    "playbooks": random_playbook_net,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    progress = _Progress(sys.stderr)
    try:
        sums = simulate(
            _MAKERS[options.only],
            _seeds(options.start, options.seeds, options.seconds),
            patches=RANDOM_PATCHES,
            on_seed=progress.saw,
            repeat=lambda seed: _repeat(seed, options.only),
        )
    except SimulationFailed as failure:
        progress.end()
        _tell_failure(failure, as_json=options.json)
        return 1
    progress.end()
    print(json.dumps(_fields(sums)) if options.json else sums)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m anabranch.testing.soak",
        description="Simulate random nets and playbooks under faults, checking every law after "
        "every event.",
    )
    parser.add_argument("--seeds", type=int, default=None, help="how many (2000, or no limit)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--only", choices=[*_MAKERS][1:], default="", help="nothing else")
    parser.add_argument("--seconds", type=float, default=None, help="stop after that long")
    parser.add_argument("--json", action="store_true", help="print one object")
    return parser


def _seeds(start: int, how_many: int | None, seconds: float | None) -> Iterator[int]:
    if how_many is None and seconds is None:
        how_many = 2000
    end = time.monotonic() + seconds if seconds is not None else None
    for number in count():
        if how_many is not None and number >= how_many:
            return
        if end is not None and time.monotonic() >= end:
            return
        yield start + number


class _Progress:
    """One line that is written over in a terminal, and now and then a line elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._every = _LINE_EVERY_SECONDS if self._terminal else 30 * _LINE_EVERY_SECONDS
        self._next = time.monotonic() + self._every

    def saw(self, seed: int, sums: Simulation) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        line = (
            f"seed {seed:,}: {sums.seeds:,} seeds, {sums.events:,} events, "
            f"{sums.crashes:,} crashes, {sums.hours:,.0f} simulated hours"
        )
        print(f"\r{line}" if self._terminal else line, end="", file=self._out, flush=True)
        if not self._terminal:
            print(file=self._out)

    def end(self) -> None:
        if self._terminal:
            print(file=self._out)


def _repeat(seed: int, only: str) -> str:
    more = f" --only {only}" if only else ""
    return f"python -m anabranch.testing.soak --start {seed} --seeds 1{more}"


def _tell_failure(failure: SimulationFailed, *, as_json: bool) -> None:
    if as_json:
        told = {"ok": False, "seed": failure.seed, "what": failure.what, "repeat": failure.repeat}
        print(json.dumps(told))
    else:
        print(failure, file=sys.stderr)


def _fields(sums: Simulation) -> dict[str, object]:
    return {
        "ok": True,
        "seeds": sums.seeds,
        "events": sums.events,
        "turns": sums.turns,
        "crashes": sums.crashes,
        "simulated_hours": round(sums.hours, 3),
        "wall_seconds": round(sums.wall_seconds, 3),
        "statuses": dict(sums.statuses),
        "faults": dict(sums.faults),
    }


if __name__ == "__main__":
    sys.exit(main())
