"""Looks for messages that reach new lines of the readers, and for bugs on the way.

    cd tests && python -m fuzz.grow --seconds 60 [--first N] [--keep] [DOOR …]

It begins with what is right and with what was kept, takes the seeds from `--first` on, and writes
each bug with its message to `build/fuzz`. With `--keep` the messages that reached something new are
kept in `messages/`, the shortest that together reach all of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from random import Random

from .bend import bend
from .doors import DOORS
from .kept import keep, kept
from .watched import Place, read_watched

BUGS = Path(__file__).parents[2] / "build" / "fuzz"
BYTES_MAX = 4096  # of a message that is kept


class Growth:
    """The messages of one door, and the lines that they reach."""

    def __init__(self, name: str) -> None:
        self.name, self.tried = name, 0
        self.bugs: dict[str, bytes] = {}
        self._door = DOORS[name]
        self._reached: set[Place] = set()
        self._messages: dict[bytes, frozenset[Place]] = {}
        for message in (*self._door.right, *kept(name)):
            self.try_one(message)

    def try_one(self, message: bytes) -> None:
        self.tried += 1
        found = read_watched(self._door, message)
        if found.bug is not None and (where := _place_of(found.bug)) not in self.bugs:
            self.bugs[where] = message
            self._tell(found.bug, message)
        if not found.reached <= self._reached:
            self._reached |= found.reached
            if len(message) <= BYTES_MAX:
                self._messages[message] = found.reached

    def try_others(self, until: float, seed: int) -> int:
        """The next seed, when the time is over."""
        while time.monotonic() < until:
            random = Random(f"{self.name} {seed}")
            known = [*self._door.right, *self._messages]
            self.try_one(bend(random, random.choice(known)))
            seed += 1
        return seed

    def keep(self) -> int:
        """How many are kept besides the right ones."""
        left, chosen = set(self._reached), list[bytes]()
        for message in self._door.right:
            left -= read_watched(self._door, message).reached
        for message in sorted(self._messages, key=len):
            if message not in self._door.right and self._messages[message] & left:
                left -= self._messages[message]
                chosen.append(message)
        keep(self.name, chosen)
        return len(chosen)

    def _tell(self, bug: str, message: bytes) -> None:
        BUGS.mkdir(parents=True, exist_ok=True)
        path = BUGS / f"{self.name}-{len(self.bugs)}"
        path.write_bytes(message)
        path.with_suffix(".txt").write_text(f"{message!r}\n\n{bug}", "utf-8")
        print(f"{self.name}: {path}\n{bug}", flush=True)


def _place_of(bug: str) -> str:
    """Where it was raised, and what: others from there are the same."""
    lines = bug.strip().splitlines()
    places = [line for line in lines if line.startswith("  File")]
    return f"{places[-1:]} {lines[-1].partition(':')[0]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for all doors together")
    parser.add_argument("--first", type=int, default=int(os.environ.get("ANABRANCH_FIRST_SEED", 0)))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("doors", nargs="*", metavar="DOOR", help=", ".join(DOORS))
    given = parser.parse_args()
    bugs = 0
    names = given.doors or list(DOORS)
    for name in names:
        growth = Growth(name)
        growth.try_others(time.monotonic() + given.seconds / len(names), given.first)
        bugs += len(growth.bugs)
        more = f", {growth.keep()} kept" if given.keep else ""
        print(f"{name:12} {growth.tried:8,} messages, {len(growth.bugs)} bugs{more}", flush=True)
    return 1 if bugs else 0


if __name__ == "__main__":
    sys.exit(main())
