"""How many seeds the tests with random cases take, and which: decided here and nowhere else.

`make test` takes six in a hundred of them, the same ones every time: twice as many as the planted
defects need. `make soak` takes all (`ANABRANCH_SEEDS=1`) and begins elsewhere each time
(`ANABRANCH_FIRST_SEED`), so that more and more of them are tried. A failure names its seed, which
repeats it whatever the two are set to.
"""

from __future__ import annotations

import os

SHARE = float(os.environ.get("ANABRANCH_SEEDS", "0.06"))
FIRST = int(os.environ.get("ANABRANCH_FIRST_SEED", "0"))


def seeds(whole: int, *, least: int = 4) -> range:
    """The share of so many that is to be tried, and `least` where the share would be fewer."""
    count = max(min(least, whole), round(whole * SHARE))
    return range(FIRST, FIRST + count)


def examples(whole: int, *, least: int = 30) -> int:
    """How many of so many Hypothesis makes up where each one is dear."""
    return len(seeds(whole, least=least))


def part(number: int, parts: int, whole: int, *, least: int = 4) -> range:
    """One of so many parts of them, for tests that are cut into parts to run side by side."""
    chosen = seeds(whole, least=least)
    return chosen[number * len(chosen) // parts : (number + 1) * len(chosen) // parts]
