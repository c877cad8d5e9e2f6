"""A run that waits in memory is small: counted in bytes of objects, which no machine changes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.kernel.empty import EMPTY
from anabranch.runtime.live_run import LiveRun

from .support import engine, gated, run, start

#: What bench/README.md promises for a run at a closed gate. The benchmark counts more: its place in
#: the tables of the engine, and what the event loop keeps of whoever started it.
BYTES_MAX = 3 * 1024


def own_bytes(value: Any, seen: set[int]) -> int:
    """What this object and those in it take. Texts and numbers are not counted: those of an idle
    run are in its definition too, all but its id."""
    if id(value) in seen or value is EMPTY or value is None or isinstance(value, str | int):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        size += sum(own_bytes(each, seen) for pair in value.items() for each in pair)
    elif isinstance(value, list | tuple):
        size += sum(own_bytes(each, seen) for each in value)
    elif isinstance(value, msgspec.Struct):
        fields = (getattr(value, name) for name in value.__struct_fields__)
        size += sum(own_bytes(each, seen) for each in fields)
    return size


def test_a_run_at_a_closed_gate_takes_no_more_than_three_kibibytes() -> None:
    async def idle() -> LiveRun:
        async with engine() as made:
            return made._core.live[await start(made, gated())]

    live = run(idle())
    assert live.state.held
    found = own_bytes(live, {id(live.net)})
    assert found <= BYTES_MAX, f"an idle run takes {found} bytes"
