"""Where the tokens, the context and the results of a redriven run come from.

A step run is either as it was in the origin, or something is not: it was done again itself
(`redone`), or it depends on what was (`stale`), by an arc, a join, the context or a result. What is
stale takes nothing over from the origin. `kernel.evolve_provenance` hands the marks on; marks that
need the net (who reads what) are found by `cause_for` and, live, recorded.

A step run is recognised by its way through the net: the steps that led to it from the entry, each
with its place among its siblings. Where paths meet, all of them count, in no order.
"""

from __future__ import annotations

import msgspec

from anabranch.kernel.values import Cause
from anabranch.net.reads import Reads


class Provenance(msgspec.Struct, gc=False):
    stale: dict[int, Cause] = {}  # token → why
    redone: dict[int, Cause] = {}
    rerouted: dict[int, Cause] = {}  # its work is as it was; what follows may not be
    ctx: dict[str, Cause] = {}  # keys that something redone or stale wrote
    results: dict[str, Cause] = {}  # steps whose last result is not that of the origin
    gathers: dict[str, Cause] = {}
    ways: dict[int, str] = {}  # token → its way through the net, as a hash
    met: dict[str, list[str]] = {}  # gather → the ways that met there
    spawner: int = 0  # whose children are being made,
    spawned: dict[str, int] = {}  # and how many of them at which step
    last: int = 0  # the token that ended last: it delivers when it is gone
    last_step: str = ""
    last_way: str = ""
    last_cause: Cause | None = None
    #: When the log of an origin is gone through: what is redone was found out before.
    found_before: bool = False
    #: What is not there and might be: for whoever asks by name.
    missing_ctx: dict[str, Cause] = {}
    missing_results: dict[str, Cause] = {}

    def changed(self, token: int) -> Cause | None:
        """Why what this token does is not what it did in the origin."""
        return self.stale.get(token) or self.redone.get(token) or self.rerouted.get(token)

    def cause_for(self, token: int, reads: Reads) -> Cause | None:
        """Why a token that reads these is stale; None as well where it was marked before."""
        if token in self.stale:
            return None
        return _first(self.ctx, self.missing_ctx, reads.ctx) or _first(
            self.results, self.missing_results, reads.results
        )


def _first(
    marked: dict[str, Cause], missing: dict[str, Cause], names: frozenset[str] | None
) -> Cause | None:
    if names is None:
        return next(iter(marked.values()), None)
    if not marked and not missing:
        return None
    found = sorted(name for name in names if name in marked or name in missing)
    return (marked.get(found[0]) or missing[found[0]]) if found else None


def writer_of(by: str) -> int:
    """The token that a context write is by; 0 for somebody."""
    _, token, number = by.rpartition("token ")
    return int(number) if token and number.isdecimal() else 0
