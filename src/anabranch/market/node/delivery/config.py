"""The section `delivery` of a node: who may send what, routes, acceptors, limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.documents import check

#: Where the section names no rules: what the market of this node needs, between nodes, inline.
DEFAULT_RULES: tuple[Mapping[str, Any], ...] = tuple(
    {
        "component/id": "*",
        "schema": schema,
        "recipient/selectors": ["node", "participant"],
        "fanout/max-targets": 8,
        "fallback/max-stages": 4,
        "max/bytes": 1024 * 1024,
    }
    for schema in ("service-order.dispatch.request.v1", "service-order.result.v1")
)


class HostAcceptor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Artifacts of this kind are admitted by the host itself, and kept."""

    acceptor_id: str
    artifact_schema: str
    content_type: str = ""  # "" takes any


class DeliveryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    outbound: tuple[dict[str, Any], ...] = DEFAULT_RULES  # type: ignore[assignment]
    acceptors: tuple[HostAcceptor, ...] = ()
    routes: dict[str, list[dict[str, Any]]] = {}  # stages by `route/ref`
    groups: dict[str, tuple[str, ...]] = {}  # nodes by `group/id`
    defaults: dict[str, tuple[str, ...]] = {}  # nodes by the name of `configured-default`
    #: Schemas whose acceptor has to hand the invocation token back before they are admitted.
    closeout_tokens: tuple[str, ...] = ()
    ttl_seconds: float = 900.0
    stage_timeout_ms: int = 30_000
    acceptor_timeout_ms: int = 20_000
    retry_seconds_min: float = 1.0
    retry_seconds_max: float = 60.0
    max_in_flight: int = 256
    max_per_peer: int = 32  # messages to one node at once
    max_open: int = 100_000
    max_bytes: int = 4 * 1024 * 1024
    inbox_max: int = 1000
    inbox_per_peer: int = 100
    inbox_bytes: int = 64 * 1024 * 1024
    inbox_bytes_per_peer: int = 8 * 1024 * 1024
    #: How old an order may be when its request comes, and how long what has ended is remembered.
    remember_seconds: float = 30 * 86_400


_POSITIVE = (
    "ttl_seconds", "stage_timeout_ms", "acceptor_timeout_ms", "retry_seconds_min",
    "retry_seconds_max", "max_in_flight", "max_per_peer", "max_open", "max_bytes", "inbox_max",
    "inbox_per_peer", "inbox_bytes", "inbox_bytes_per_peer", "remember_seconds",
)  # fmt: skip


def read_config(section: object) -> DeliveryConfig:
    """Raises `InputError` that names the setting."""
    try:
        config = msgspec.convert(section or {}, DeliveryConfig)
    except msgspec.ValidationError as error:
        raise InputError(f"delivery: {error}") from None
    for name in _POSITIVE:
        if not 0 < getattr(config, name) < 10**12:
            raise InputError(f"delivery.{name}: write a number above 0")
    if config.retry_seconds_max < config.retry_seconds_min:
        raise InputError("delivery.retry_seconds_max is below delivery.retry_seconds_min")
    for at, rule in enumerate(config.outbound):
        _require(rule, "artifact-delivery-outbound-rule", f"delivery.outbound[{at}]")
    for name, stages in config.routes.items():
        _require_route(name, stages)
    for kind, table in (("groups", config.groups), ("defaults", config.defaults)):
        for name, nodes in table.items():
            if not nodes:
                raise InputError(f"delivery.{kind}.{name} names no node")
    return config


def _require(document: Any, kind: str, where: str) -> None:
    problems = check(document, kind=kind)
    if problems:
        raise InputError(f"{where}: {problems[0]}")


def _require_route(name: str, stages: list[dict[str, Any]]) -> None:
    """The stages of a route are those of a plan; a plan is checked as part of an envelope."""
    envelope = {
        "schema": "artifact-delivery-envelope.v1",
        "component/id": "host",
        "artifact": {
            "schema": "route",
            "content/type": "application/json",
            "digest": "sha256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU",
            "size/bytes": 0,
            "bytes/base64": "",
        },
        "delivery/plan": {"stages": stages},
    }
    _require(envelope, "artifact-delivery-envelope.v1", f"delivery.routes.{name}")
