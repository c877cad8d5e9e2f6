"""The cases by name, and the module of each, which is loaded where the case is measured.

A case returns rows: what was measured, the probe beside it, their ratio, the aim.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.rows import Row

Case = Callable[[Path], Coroutine[Any, Any, list[Row]]]

_MODULES = {
    # what the README quotes comes first, so that a run that is interrupted has it
    "bench.runs": "b1 b2 b3 memory",
    "bench.loops": "b4 b5 b6 b11",
    "bench.joins": "b7",
    "bench.parties": "b8 b9 b10",
    "bench.compiling": "s1",
    "bench.startup": "s2",
    "bench.peers.table": "peers_one peers_many peers_items peers_batches peers_start",
    "bench.server": "server server_top",
    "bench.requests": "s6",
    "bench.large": "s7",
    "bench.waiting_runs": "s8",
    "bench.schedules": "e1",
    "bench.logs": "e2",
    "bench.overview": "e3",
    "bench.waits": "e4",
    "bench.postgres.cases": "p1 p2 p3 p4 p5 p6",
    "bench.clusters.cases": "d1 d2 d3 d4 pool_memory",
    "bench.node_orders": "n1 n4",
    "bench.node_deliveries": "n2",
    "bench.node_directory": "n3",
    "bench.stories": "m1 m4",
    "bench.market_fan_out": "m2",
    "bench.offer_catalog": "m3",
}
#: Cases in the order in which they are measured, with the module of each.
CASES = {name: module for module, names in _MODULES.items() for name in names.split()}
PEERS = [name for name in CASES if name.startswith("peers_")]


def case(name: str) -> Case:
    found: Case = getattr(import_module(CASES[name]), name)
    return found
