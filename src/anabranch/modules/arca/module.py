"""Arca as a module: runs, results of orders, offers and templates behind one table and one report.

It opens no connection but that to its host, and signs nothing: orders are drafts, deliveries and
messages are handed to the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.clock import Clock
from anabranch.errors import AnabranchError
from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.modules.arca.catalog import CatalogPart
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.details import StepDetails
from anabranch.modules.arca.hosted_runs import HostedRuns
from anabranch.modules.arca.results import Results
from anabranch.modules.arca.templates import TemplatesPart
from anabranch.modules.arca.work.attempts import Attempt
from anabranch.modules.arca.work.performers import hosted_performers
from anabranch.modules.kit.composed import ComposedModule
from anabranch.modules.kit.host import Host
from anabranch.store.ports import Store

MODULE_ID = "arca"
ENDPOINT = "http://127.0.0.1:47981"
WORKFLOW_KIND = "service-order-orchestration"
ABOUT: Mapping[str, Any] = {
    "module_name": "Arca",
    "module_description": "Runs workflows of orders, and keeps a catalog of offers.",
    "module_role": "workflow-orchestrator",
    "handles_workflow_kinds": [WORKFLOW_KIND],
    "catalog_endpoints": [{"catalog_kind": "service-offers", "path": "/v1/service-catalog"}],
    "operator_surfaces": [
        {
            "surface_id": "arca-runs",
            "label": "Runs",
            "description": "Workflow runs with their steps, orders and deliveries.",
            "rendering": "host-mediated",
            "entry_path": "/v1/enact/arca/runs",
            "nav_group": "market",
        },
        {
            "surface_id": "arca-templates",
            "label": "Templates",
            "description": "Workflow templates of this node.",
            "rendering": "host-mediated",
            "entry_path": "/v1/enact/arca/templates",
            "nav_group": "market",
        },
        {
            "surface_id": "arca-catalog",
            "label": "Catalog",
            "description": "Offers of this node and of others.",
            "rendering": "host-mediated",
            "entry_path": "/v1/enact/service-catalog",
            "nav_group": "market",
        },
    ],
    "readiness_requirements": ["the engine is open", "the host has answered once"],
}


class ArcaModule(ComposedModule):
    """`store` has the runs, `catalog` the offers of others; both outlive the module."""

    def __init__(
        self,
        *,
        host: Host,
        clock: Clock,
        store: Store,
        catalog: OfferCatalog,
        config: ArcaConfig | None = None,
    ) -> None:
        config = config or ArcaConfig()
        details = StepDetails()
        offers = CatalogPart(host=host, catalog=catalog, clock=clock, config=config)
        self.results = Results(host, self._is_attempt_open)
        performers = hosted_performers(
            host=host,
            offers=offers,
            details=details,
            results=self.results,
            clock=clock,
            config=config,
            component=lambda: self.module_id,
        )
        self.runs = HostedRuns(
            host=host,
            clock=clock,
            store=store,
            performers=performers,
            details=details,
            config=config,
        )
        templates = TemplatesPart(host=host, start_run=self.runs.part.start_run, config=config)
        self.runs.part.materialise = templates.materialise
        super().__init__(MODULE_ID, [offers, self.results, templates, self.runs], ABOUT)

    def _is_attempt_open(self, attempt: Attempt) -> bool:
        return self.runs.is_attempt_open(attempt)

    async def ready(self) -> bool:
        return self.runs.ready

    async def accept(self, invoke: Mapping[str, Any]) -> dict[str, Any]:
        return dict(await self.results.accept(invoke))

    async def broken(self) -> AnabranchError:
        """Returns when the engine has stopped by itself, with the reason."""
        return await self.runs.engine.loop.stopped()
