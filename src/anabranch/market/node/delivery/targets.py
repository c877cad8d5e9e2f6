"""From the selectors of a plan to nodes. Every target is found when the envelope is taken on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.market.node.delivery.config import DeliveryConfig
from anabranch.market.node.delivery.envelope import Envelope, refused
from anabranch.market.node.delivery.plan import NO_STAGE, Stage
from anabranch.market.node.ports import Directory

SUPPORTED = ("node", "participant", "group", "configured-default")


def find_targets(
    envelope: Envelope, config: DeliveryConfig, directory: Directory
) -> tuple[Stage, ...]:
    """The stages with their nodes. A stage whose targets cannot be found has none and fails at
    once; a plan of such stages alone is `route-unresolved`."""
    stages: Sequence[Mapping[str, Any]] = envelope.stages
    if envelope.route_ref:
        found = config.routes.get(envelope.route_ref)
        if found is None:
            raise refused(
                "route-unresolved", f"this node has no route {envelope.route_ref[:200]!r}"
            )
        stages = found
    for stage in stages:
        for target in stage["targets"]:
            _require_supported(target)
    places = {stage["stage/id"]: place for place, stage in enumerate(stages)}
    resolved = tuple(
        _stage(stage, _next(stage, place, len(stages), places), config, directory)
        for place, stage in enumerate(stages)
    )
    if not any(stage.nodes for stage in resolved):
        raise refused(
            "route-unresolved",
            f"no node is known for stage {resolved[0].stage_id!r}, nor for those after it",
        )
    return resolved


def is_supported(target: Mapping[str, Any]) -> bool:
    return target["selector/kind"] in SUPPORTED and "inac/authorization" not in target


def _require_supported(target: Mapping[str, Any]) -> None:
    if (kind := target["selector/kind"]) not in SUPPORTED:
        raise refused(
            "kind-not-supported",
            f"this node finds no targets by {kind!r}; use {', '.join(SUPPORTED)}",
        )
    if "inac/authorization" in target:
        raise refused(
            "kind-not-supported", "this node delivers directly, without `inac/authorization`"
        )


def _next(stage: Mapping[str, Any], place: int, count: int, places: Mapping[str, int]) -> int:
    if "on/failure" in stage:
        return places[stage["on/failure"]]
    return place + 1 if place + 1 < count else NO_STAGE


def _stage(
    stage: Mapping[str, Any], following: int, config: DeliveryConfig, directory: Directory
) -> Stage:
    found = [_nodes(target, config, directory) for target in stage["targets"]]
    nodes = tuple(dict.fromkeys(node for each in found for node in each))
    policy = stage.get("success/policy", "all")
    need = {"any": 1, "quorum": stage.get("quorum/min-success", 1)}.get(policy, len(nodes))
    complete = all(found) if policy == "all" else len(nodes) >= need
    return Stage(
        stage_id=stage["stage/id"],
        policy=policy,
        nodes=nodes if complete else (),
        need=max(need, 1),
        next=following,
    )


def _nodes(
    target: Mapping[str, Any], config: DeliveryConfig, directory: Directory
) -> Sequence[str]:
    nodes: Sequence[str]
    match target["selector/kind"]:
        case "node":
            nodes = [target["node/id"]]
        case "participant":
            nodes = directory.nodes_of(target["participant/id"])
        case "group":
            nodes = config.groups.get(target["group/id"], ())
        case _:
            nodes = config.defaults.get(target["name"], ())
    return nodes[: target.get("max/nodes")]
