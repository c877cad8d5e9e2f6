"""Look at the cluster of a pool without an engine: is it there, and can it do our jobs?"""

from __future__ import annotations

from anabranch.clock import Clock
from anabranch.pools.address import PoolOptions
from anabranch.pools.backend import BackendAway, BackendUnfit, Capacity
from anabranch.pools.backends import make_backend
from anabranch.pools.pool_state import ClusterPoolState, Contact

NOTHING = Capacity(slots=0, workers=0)


async def probe(pool: PoolOptions, clock: Clock) -> ClusterPoolState:
    """Connect as an engine would, and leave again. Raises `InputError` where Dask or Ray is not
    installed here."""
    backend = make_backend(pool)
    capacity, reason = NOTHING, ""
    state: Contact = "open"
    try:
        capacity = await backend.open()
    except BackendAway as away:
        state, reason = "away", away.message
    except BackendUnfit as unfit:
        state, reason = "unfit", unfit.message
    finally:
        await backend.close()
    return ClusterPoolState(
        pool=pool.name,
        engine=pool.engine,
        address=pool.shown,
        state=state,
        since=clock.now(),
        reason=reason,
        version=capacity.version,
        dashboard=capacity.dashboard,
        workers=capacity.workers,
        slots=capacity.slots,
    )
