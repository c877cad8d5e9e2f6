"""The process of Arca: what it finds in its environment, its files, and its one connection.

    runs.db      the runs
    offers.db    the offers of others

Both are in the home that the host gives to the module.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Self

from anabranch.clock import SystemClock
from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.modules.arca.config import arca_config
from anabranch.modules.arca.module import ENDPOINT, MODULE_ID, ArcaModule
from anabranch.modules.kit.environment import read_environment
from anabranch.modules.kit.host import Host
from anabranch.modules.kit.http_host import HttpHost
from anabranch.store.sqlite.store import SqliteStore

RUNS, OFFERS = "runs.db", "offers.db"


class ArcaProcess:
    """`async with ArcaProcess(os.environ) as process:` — the module is served by who enters it."""

    module: ArcaModule

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Raises `InputError` for an environment that no host has made."""
        self.found = read_environment(environment, MODULE_ID, ENDPOINT)
        self._config = arca_config(self.found.config)
        self._left = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as left:
            host = HttpHost.of(self.found)
            left.push_async_callback(host.close)
            store = SqliteStore(self.found.home / RUNS)
            left.callback(store.close)
            clock = SystemClock()
            most = self._config.catalog_max_rows
            catalog = OfferCatalog(self.found.home / OFFERS, clock=clock, max_rows=most)
            left.callback(catalog.close)
            self.module = ArcaModule(
                host=Host(host), clock=clock, store=store, catalog=catalog, config=self._config
            )
            self.module.module_id = self.found.module_id
            self._left = left.pop_all()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._left.aclose()
