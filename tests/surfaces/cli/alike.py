"""The same commands at a store and at a server: what they print, without what must differ."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .support import Done

#: What depends on the moment, on chance, and on whether somebody is at work there.
MOMENTS = (
    (r"\d+(\.\d+)? (ms|s|min|h|d)\b( \d+ (s|min|h)\b)?", "TIME"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?Z?", "INSTANT"),
    (r"\b1[789]\d{11}\b", "MS"),
    (r"\+ +\d+\.\d{3}", "+OFFSET"),
    (r"taken by the running engine|recorded;", "TAKEN;"),
    (r'"taken": "(engine|recorded)"', "TAKEN"),
    (r'TAKEN, "status": "(running|completed)"', "IT GOES ON"),
    (r"TAKEN;;", "TAKEN;"),
    (r'"engine": "anabranch[^"]*"', "ENGINE"),
    (r"\bdispatch:[\w-]+", "DISPATCH"),
    (r"\bwh[0-9a-f]{12}\b", "HOOK"),
    (r"\bwhs_[\w-]{20,}", "SECRET"),
    (r"\b([0-9a-hjkmnp-tv-z]{16}|k[0-9a-hjkmnp-tv-z]{25})\b", "ID"),
    (r'\([\d,]+ bytes\)|"bytes": \d+', "BYTES"),  # instants are written as digits
    (r"unfinished in this store: .*\n", ""),
    (r"no engine is running: .*\n", ""),
    (r" +", " "),  # columns are as wide as the times in them
)


def plain(done: Done) -> tuple[int, str, str]:
    text = f"{done.out}\n----\n{done.err}"
    for pattern, instead in MOMENTS:
        text = re.sub(pattern, instead, text)
    out, _, err = text.partition("\n----\n")
    return done.code, out, err


Told = tuple[int, str, str]


def differences(lines: Sequence[str], here: Sequence[Told], there: Sequence[Told]) -> str:
    """Every command that reads otherwise at the server; nothing when all are alike."""
    return "\n".join(
        f"{line}\n  here:  {one}\n  there: {other}"
        for line, one, other in zip(lines, here, there, strict=True)
        if one != other
    )
