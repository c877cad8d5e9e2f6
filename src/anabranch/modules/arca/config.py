"""How Arca is set up: the section `arca` of its configuration, from all layers together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.documents.delivery import PLAN
from anabranch.market.documents.orders import REPLY_PLAN
from anabranch.market.documents.problems import Found

SECTION = "arca"
_Positive = Annotated[int, msgspec.Meta(ge=1)]


class ArcaConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every field has a default that is good for a node on one machine."""

    #: How often the host is asked how an order stands: at first, and at most.
    poll_first_ms: _Positive = 250
    poll_max_ms: _Positive = 5_000
    #: Steps that wait for an answer at once; they wait for others, so there may be many.
    waiting_steps_max: _Positive = 100_000
    #: How long to wait before a host that was away is asked again: at first, and at most.
    host_retry_first_ms: _Positive = 200
    host_retry_max_ms: _Positive = 5_000
    #: How long a peer that says nothing is asked again, where the step has no time limit.
    silence_ms: _Positive = 120_000
    #: Where providers send their results in place of this node alone (`reply/delivery_plan`), and
    #: the stages for requests that the node of the provider does not take.
    reply_plan: dict[str, Any] | None = None
    fallback_stages: list[dict[str, Any]] = []
    #: An output of more bytes is shown in snapshots by its digest alone.
    snapshot_output_bytes: _Positive = 256 * 1024
    #: Other catalogs: how often they are asked for their offers; how soon a search for an offer may
    #: ask them again; how long one may take to answer; how many offers are taken from one at once.
    peer_sync_interval_sec: _Positive = 300
    peer_sync_again_ms: _Positive = 1_000
    peer_sync_timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=60_000)] = 10_000
    peer_sync_offers_max: _Positive = 10_000
    #: Offers of others that the catalog keeps.
    catalog_max_rows: _Positive = 4_096
    #: A file, or a folder of files, with records of Agora as JSON lines; none where it is empty.
    agora_source: str = ""
    agora_interval_sec: _Positive = 60


def arca_config(raw: Mapping[str, Any]) -> ArcaConfig:
    """The section `arca` of all layers. Raises `InputError` with the name of the setting."""
    section = raw.get(SECTION, {})
    try:
        config = msgspec.convert(section, ArcaConfig)
    except msgspec.ValidationError as error:
        raise InputError(f"{SECTION}: {error}", code="module_config") from None
    for first, most in (("poll_first_ms", "poll_max_ms"),
                        ("host_retry_first_ms", "host_retry_max_ms")):  # fmt: skip
        if getattr(config, first) > getattr(config, most):
            raise InputError(f"{SECTION}: {first} is at most {most}", code="module_config")
    _check_plans(config)
    return config


def _check_plans(config: ArcaConfig) -> None:
    """A plan that no host takes is told before anything is ordered with it."""
    direct = {
        "stage/id": "direct",
        "targets": [{"selector/kind": "configured-default", "name": "provider"}],
    }
    for name, shape, plan in (
        ("reply_plan", REPLY_PLAN, config.reply_plan),
        ("fallback_stages", PLAN, {"stages": [direct, *config.fallback_stages]}),
    ):
        if plan is None:
            continue
        found = Found()
        shape.check(plan, "", found)
        if problems := found.problems():
            text = f"{problems[0].path or '/'}: {problems[0].message}"
            raise InputError(f"{SECTION}.{name}: {text}", code="module_config")
