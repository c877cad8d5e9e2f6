"""Arca and Dator as modules of nodes of the world.

    buyer = NodeSpec(name="buyer", modules={"arca": arca()})
    dator({"offers": […]}, {"summaries": lambda given: {"summary": given["text"][:9]}})

Their processes can be killed alone or with their node; the runs and the catalog of Arca are on a
disk that outlives both. Dator keeps what it must remember at its host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from anabranch.clock import Clock
from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.modules.arca.config import ArcaConfig, arca_config
from anabranch.modules.arca.module import ArcaModule
from anabranch.modules.dator.config import DatorConfig, dator_config
from anabranch.modules.dator.module import DatorModule
from anabranch.modules.dator.role import FunctionRoles, RoleFunction
from anabranch.modules.kit.entries import Kind, executor_entry
from anabranch.modules.kit.host import Host
from anabranch.store.memory.store import MemoryStore
from anabranch.testing.market.modules import LastingModule, ModuleLife

ROLE = "role"


class ArcaDisk(NamedTuple):
    runs: MemoryStore
    catalog: OfferCatalog


def arca(
    config: Mapping[str, Any] | None = None, *, grants: tuple[str, ...] = ()
) -> LastingModule[ArcaDisk]:
    """`config` is the section `arca` of its configuration; `grants` are further host capabilities,
    such as those of decision sources."""
    settings: ArcaConfig = arca_config({"arca": dict(config or {})})

    def keep(clock: Clock) -> ArcaDisk:
        return ArcaDisk(MemoryStore(), OfferCatalog(":memory:", clock=clock))

    def make(life: ModuleLife, disk: ArcaDisk) -> ArcaModule:
        return ArcaModule(
            host=Host(life.host),
            clock=life.clock,
            store=life.disk(disk.runs),
            catalog=disk.catalog,
            config=settings,
        )

    return LastingModule(keep, make, _executor("arca", grants))


def dator(
    config: Mapping[str, Any],
    roles: Mapping[str, RoleFunction],
    *,
    grants: tuple[str, ...] = (),
) -> LastingModule[None]:
    """`config` is the section `dator` of its configuration; `roles` has a function for each
    capability that its offers name. A role that is not configured has the usual limits."""
    named: dict[str, Any] = {name: {} for name in roles} | dict(config.get("roles", {}))
    settings: DatorConfig = dator_config({"dator": {**config, "roles": named}})

    def make(life: ModuleLife, _kept: None) -> DatorModule:
        return DatorModule(
            host=Host(life.host), clock=life.clock, config=settings, roles=FunctionRoles(roles)
        )

    return LastingModule(lambda _clock: None, make, _executor("dator", grants))


def _executor(kind: Kind, grants: tuple[str, ...]) -> dict[str, Any]:
    row = executor_entry(kind, grants=grants, in_process=True)
    return {name: value for name, value in row.items() if name not in ("id", "kind")}
