"""Rates of kinds and hosts that do not hold where a step is done: workers elsewhere know of none.

They hold in the process that has the setting. The rate of a pool holds for its workers, because the
server hands their jobs out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from anabranch.net.net import Net
from anabranch.net.problems import Problem
from anabranch.operations.definitions.requirements import Requirement, requirements_of


def unheeded_rates(
    net: Net, rates: Collection[str], outside: Callable[[str], bool]
) -> list[Problem]:
    """`rates` are the names of the setting, such as `kind:http`; `outside` says which pools are
    done elsewhere. A pool that has a rate of its own is not warned of."""
    if not any(name.startswith(("kind:", "host:")) for name in rates):
        return []
    needs = requirements_of(net)
    pools = {need.step: need.name for need in needs if need.sort == "pool" and outside(need.name)}
    found = {
        (need.step, name): _problem(need, name, pools[need.step])
        for need in needs
        if need.sort == "kind" and need.step in pools and f"pool:{pools[need.step]}" not in rates
        for name in _of_kind(need.name, rates)
    }
    return list(found.values())


def _of_kind(kind: str, rates: Collection[str]) -> Iterator[str]:
    if f"kind:{kind}" in rates:
        yield f"kind:{kind}"
    hosts = sorted(name for name in rates if name.startswith("host:"))
    if kind == "http" and hosts:
        yield hosts[0]


def _problem(need: Requirement, rate: str, pool: str) -> Problem:
    message = (
        f"the rate of {rate} does not hold for step {need.step!r}: the workers of pool {pool!r} "
        "do it, and do not know the rates of kinds and hosts"
    )
    hint = f"limit the pool as well: `pool:{pool}` in rate_limits"
    return Problem(need.position, "rate-at-workers", message, hint, "warning")
