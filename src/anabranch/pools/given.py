"""The pools that an engine is given for clusters, by its program or by the settings.

Apart from `wiring`, which loads all that works with clusters: most engines have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.pools.address import PoolOptions, parse_pools, pools_of, require_elsewhere
from anabranch.settings import Settings

if TYPE_CHECKING:
    from anabranch.operations.read.reader import Reader
    from anabranch.operations.workers.worker_api import WorkerApi
    from anabranch.pools.wiring import ClusterPools
    from anabranch.runtime.engine import EngineLoop
    from anabranch.work.kinds.callables import Toolbox

#: As programs give them: the address of each pool by its name, or the text of the setting.
Pools = Mapping[str, str] | Mapping[str, PoolOptions] | str


def options_of(pools: Pools | None, settings: Settings) -> dict[str, PoolOptions]:
    """What a program gives, or else the setting says; raises `InputError` for a mistake in it."""
    given = settings.pools if pools is None else pools
    options = parse_pools(given) if isinstance(given, str) else pools_of(given)
    require_elsewhere(options, settings.pools_here)
    return options


def without_server(options: Mapping[str, PoolOptions], *, served: bool) -> list[str]:
    """Pools whose work cannot ask the engine: it has no server, or the pool is not to use it."""
    usual = "server" if served else "cluster"
    return [name for name, one in options.items() if (one.values or usual) != "server"]


def cluster_pools(
    options: Mapping[str, PoolOptions],
    engine: EngineLoop,
    api: WorkerApi,
    settings: Settings,
    toolbox: Toolbox,
    read: Reader,
    *,
    serves: bool,
) -> ClusterPools:
    """What works with these clusters, told to reader and metrics."""
    from anabranch.pools.seen.places import show_clusters
    from anabranch.pools.wiring import ClusterPools

    pools = ClusterPools(options, engine, api, settings, toolbox, serves=serves)
    show_clusters(pools, read, engine.engine_metrics.registry)
    return pools
