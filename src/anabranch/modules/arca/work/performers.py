"""The four kinds of work of Arca definitions, done through the host."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.clock import Clock
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.details import StepDetails
from anabranch.modules.arca.results import Results
from anabranch.modules.arca.work.decisions import CapabilityDecision
from anabranch.modules.arca.work.fan_out import PeerDispatch
from anabranch.modules.arca.work.nodes import ParticipantNodes
from anabranch.modules.arca.work.orders import ServiceOrder
from anabranch.modules.arca.work.patience import Patience
from anabranch.modules.arca.work.ports import Offers
from anabranch.modules.arca.work.search import TargetSearch
from anabranch.modules.kit.host import Host
from anabranch.work.participants.rotation import Rotation
from anabranch.work.port import Performer


def hosted_performers(
    *,
    host: Host,
    offers: Offers,
    details: StepDetails,
    results: Results,
    clock: Clock,
    config: ArcaConfig,
    component: Callable[[], str] = lambda: "arca",
    rotation: Rotation | None = None,
) -> dict[str, Performer]:
    """`component` says as which module deliveries are sent; `rotation` knows who was asked by the
    runs of before."""
    patience = Patience(config)
    nodes = ParticipantNodes(host, offers, clock, patience)
    return {
        "targets": TargetSearch(host, offers, nodes, rotation),
        "dispatch": PeerDispatch(host, nodes, clock, config, patience),
        "request": ServiceOrder(host, offers, details, results, clock, config, component),
        "capability": CapabilityDecision(host),
    }
