"""How Arca is set up: the section `arca` of its configuration, from all layers together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from anabranch.errors import InputError

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
    #: An output of more bytes is shown in snapshots by its digest alone.
    snapshot_output_bytes: _Positive = 256 * 1024


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
    return config
