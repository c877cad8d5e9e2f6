"""Rates as people write them: `kind:http=100/m`, `host:api.example.org=5/s+10`, `pool:gpu=2/s`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from anabranch.errors import InputError

WHAT = ("kind", "host", "pool")
_RATE = re.compile(r"([0-9]{1,9})/([smhd])(?:\+([0-9]{1,6}))?")
_UNITS_US = {"s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6}
_HINT = 'write "kind:http=100/m host:api.example.org=5/s+10 pool:gpu=2/s"'


class Rate(NamedTuple):
    interval_us: int  # between two
    burst: int = 1  # so many at once after a rest


def read_rates(text: str, what: str = "rate_limits") -> Mapping[str, Rate]:
    """By what they are for: `kind:…`, `host:…` or `pool:…`. `what` is the setting as a message
    calls it."""
    found: dict[str, Rate] = {}
    for entry in filter(None, re.split(r"[\s,]+", text)):
        name, equals, rate = entry.rpartition("=")
        family, colon, one = name.partition(":")
        if not equals or not colon or family not in WHAT or not one:
            raise InputError(f"{what}: {entry!r:.80} is no rate of a kind, host or pool: {_HINT}")
        name = name.lower() if family == "host" else name
        if name in found:
            raise InputError(f"{what} names {name:.80} twice")
        found[name] = _rate(name, rate, what)
    return found


def _rate(name: str, text: str, what: str) -> Rate:
    parts = _RATE.fullmatch(text)
    if parts is None:
        message = f"{what}: {name:.80} has a rate as 5/s, 100/m, 1000/h or 5/s+10"
        raise InputError(f"{message}, not {text!r:.40}")
    count, burst = int(parts[1]), int(parts[3] or 1)
    if not count or not burst:
        raise InputError(f"{what}: {name:.80} must be more than 0, not {text}")
    interval = _UNITS_US[parts[2]] // count
    if not interval:
        raise InputError(f"{what}: {name:.80} has at most {_UNITS_US[parts[2]]:,} of them: {text}")
    return Rate(interval, burst)
